"""Write the table of known embedders in docs/models-reference.md: `python -m tests.docs.embedder_table`."""

from pathlib import Path

from qmd.inference.models.catalogue import FAMILIES, Family
from tests.docs.configuration_tables import between

PAGE = Path(__file__).parents[2] / "docs" / "models-reference.md"


def with_table(page: str) -> str:
    """Return the page with the current table between its marks."""
    head = "| models | pooling | before a query | before a note | tokens | source |\n|---|---|---|---|---|---|\n"
    rows = "".join(f"{_row(known)}\n" for known in FAMILIES if not known.is_dot_product)
    return between(page, "known embedders", head + rows)


def _row(known: Family) -> str:
    pooling = known.pooling if known.only_in_graph is None else "in the graph"
    prompts = [
        f"`{text}`".replace("\n", "\\n").replace("|", "\\|") if text else ""
        for text in (known.query_prompt, known.document_prompt)
    ]
    card = f"[{known.source}](https://huggingface.co/{known.source})"
    return f"| {' | '.join([known.name, pooling, *prompts, f'{known.max_length:,}', card])} |".replace("  |", " |")


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text("utf-8")), "utf-8")
