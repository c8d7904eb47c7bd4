"""docs/models-reference.md lists the known embedding models."""

from tests.docs.embedder_table import PAGE, with_table


def test_the_table_is_that_of_the_program() -> None:
    page = PAGE.read_text("utf-8")
    assert page == with_table(page), "write it again: python -m tests.docs.embedder_table"
