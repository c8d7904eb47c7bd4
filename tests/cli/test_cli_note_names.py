"""References to notes by name, title, alias and wiki link."""

import pytest

from tests.program import Qmd

TREE = {
    "trees/Great Oak.md": "---\ntitle: The Oldest Tree\naliases: [Methuselah, 'Meeting 10:30']\n---\nAn oak.\n\n"
    "## Age\n\nVery old. ^age\n\n### Rings\n\n- one ^first\n- two\n\n## Care\n\n### Rings\n\nNone.\n",
    "birds/owl.md": "# Owl\n\nSee [[Great Oak]].\n",
    "a/index.md": "# Twin\n\ntext\n",
    "b/other.md": "# Twin\n\nanother\n",
    "a, b.md": "A name with a comma.\n",
}


@pytest.mark.parametrize("reference", ["great-oak", "methuselah", "Meeting 10:30", "[[trees/Great Oak|that tree]]"])
def test_get_finds_a_note_by_its_name_title_alias_or_link(tree: Qmd, reference: str) -> None:
    run = tree("get", reference)
    assert run.out.startswith("qmd://tree/trees/Great Oak.md  #"), run.err
    assert "\n1: ---\n" in run.out


@pytest.mark.parametrize(
    ("reference", "first", "last"),
    [
        ("[[Great Oak#Age]]", "7: ## Age", "14: - two"),
        ("[[Great Oak#age#rings]]", "11: ### Rings", "14: - two"),
        ("[[Great Oak#Care#Rings]]", "18: ### Rings", "20: None."),
        ("[[Great Oak#^age]]", "9: Very old. ^age", "9: Very old. ^age"),
        ("[[Great Oak#^first]]", "13: - one ^first", "13: - one ^first"),
        ("[[Great Oak]]:9:1", "9: Very old. ^age", "9: Very old. ^age"),
    ],
)
def test_get_shows_the_part_that_a_link_names(tree: Qmd, reference: str, first: str, last: str) -> None:
    lines = tree("get", reference).out.split("---\n\n", 1)[1].rstrip("\n").split("\n")
    assert (lines[0], lines[-1]) == (first, last)


def test_a_part_that_a_note_lacks_is_an_error_that_names_its_headings(tree: Qmd) -> None:
    run = tree("get", "[[Great Oak#Height]]")
    assert (run.status, run.out) == (3, "")
    assert "'qmd://tree/trees/Great Oak.md' has no heading 'Height'" in run.err
    assert "'Age', 'Rings', 'Care'" in run.err


def test_several_notes_of_one_name_are_listed(tree: Qmd) -> None:
    run = tree("get", "Twin")
    assert run.status == 2
    assert "qmd://tree/a/index.md" in run.err
    assert "qmd://tree/b/other.md" in run.err


def test_a_name_with_a_typo_suggests_the_note(tree: Qmd) -> None:
    assert "Great Oak.md" in tree("get", "The Oldst Tree").err
    assert "Great Oak.md" in tree("get", "[[Graet Oak]]").err


def test_multi_get_takes_names_and_links_in_a_list(tree: Qmd) -> None:
    rows = tree("multi-get", "[[Great Oak]], owl, [[a, b]]", "--json").json
    assert [row["title"] for row in rows] == ["The Oldest Tree", "Owl", "a, b"]
