"""docs/configuration.md lists the variables and settings that the program reads."""

from tests.docs.configuration_tables import PAGE, with_tables


def test_the_tables_are_those_of_the_program() -> None:
    page = PAGE.read_text("utf-8")
    assert page == with_tables(page), "write them again: python -m tests.docs.configuration_tables"
