"""docs/models.md and docs/models-reference.md have the embedding models that the program knows."""

from __future__ import annotations

from qmd.inference.models.catalogue import READERS
from tests.docs.embedder_table import PAGE, with_table


def test_the_table_is_that_of_the_program() -> None:
    page = PAGE.read_text("utf-8")
    assert page == with_table(page), "write it again: python -m tests.docs.embedder_table"


def test_the_model_for_each_language_is_that_of_the_program() -> None:
    page = PAGE.with_name("models.md").read_text("utf-8")
    assert all(f"| `qmd models pull {model}` |" in page for model in READERS.values())
