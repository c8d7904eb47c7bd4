"""Vaults of other programs: names, links, properties, and skipped files."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.program import Qmd, write_notes

LOGSEQ = {
    "pages/Project___Apollo.md": "alias:: PA, [[Moon shot]]\ntags:: work, [[side project]]\n"
    "type:: [[Project]]\n\n- rocket\n",
    "pages/What now%3F.md": "- a question\n",
    "journals/2024_03_01.md": "- [[PA]], [[Project/Apollo]], [[What now?]], [[Nobody]]\n",
    "journals/2024_03_12.md": "- after [[Mar 1st, 2024]], [[2024-03-01]]\n",
    "logseq/config.edn": "{}",
    "logseq/bak/pages/Project___Apollo/2024.md": "- rocket\n",
    "logseq/.recycle/pages_x.md": "- rocket\n",
}
DENDRON = {
    "proj.shop.prices.md": "---\nid: a1\ntitle: Prices\n---\nWhat it costs.\n",
    "root.md": "---\nid: r\ntitle: Root\n---\n[[what it costs|proj.shop.prices]] [[dendron://vault/proj.shop.prices#x]]\n",
    ".dendron.cache/x.md": "cache\n",
}
ZETTEL = {"202403011200 Tides.md": "The moon.\n", "b.md": "See [[202403011200]].\n", ".zk/templates/default.md": "x\n"}


@pytest.mark.parametrize(
    ("files", "note", "led_to", "broken"),
    [
        (LOGSEQ, "2024_03_01", 3, ["Nobody"]),
        (LOGSEQ, "2024_03_12", 2, []),
        (DENDRON, "root", 2, []),
        (ZETTEL, "b", 1, []),
    ],
)
def test_links_lead_where_the_program_of_the_vault_leads(
    qmd: Qmd, home: Path, files: Mapping[str, str], note: str, led_to: int, broken: list[str]
) -> None:
    write_notes(home / "v", files)
    qmd("index", "v", "--no-embed")
    found = qmd("links", note, "--json").json
    assert (len(found["outgoing"]), [one["target"] for one in found["unresolved"]]) == (led_to, broken)


@pytest.mark.parametrize(
    ("files", "name", "path"),
    [
        (LOGSEQ, "PA", "pages/Project___Apollo.md"),
        (LOGSEQ, "Moon shot", "pages/Project___Apollo.md"),
        (LOGSEQ, "Project/Apollo", "pages/Project___Apollo.md"),
        (LOGSEQ, "[[What now?]]", "pages/What now%3F.md"),
        (LOGSEQ, "Mar 12th, 2024", "journals/2024_03_12.md"),
        (DENDRON, "proj/shop/prices", "proj.shop.prices.md"),
        (DENDRON, "[[dendron://vault/proj.shop.prices]]", "proj.shop.prices.md"),
    ],
)
def test_get_takes_the_names_of_the_program_of_a_vault(
    qmd: Qmd, home: Path, files: Mapping[str, str], name: str, path: str
) -> None:
    write_notes(home / "v", files)
    qmd("index", "v", "--no-embed")
    assert qmd("get", name).out.startswith(f"qmd://v/{path}  #")


def test_page_properties_filter_and_copies_of_pages_are_left_out(qmd: Qmd, home: Path) -> None:
    write_notes(home / "v", LOGSEQ | {"novel/bak/old.md": "rocket\n"})
    assert "✓ v  5 notes" in qmd("index", "v", "--no-embed").out
    for words in ("tag:work", 'tag:"side project"', "type:Project rocket"):
        assert [row["file"] for row in qmd("search", words, "--json").json] == ["qmd://v/pages/Project___Apollo.md"]
    assert "Ignore rule: bak/" in qmd("get", "v/logseq/bak/pages/Project___Apollo/2024.md").err
