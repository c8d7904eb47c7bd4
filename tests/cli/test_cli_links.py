"""`links`, `related`, and mentions of notes with little text."""

from pathlib import Path

from tests.program import Qmd

MINUTES = "# Minutes\n\nThe pumps are old and have to be replaced before the summer. Back to [[meeting]].\n"
TREE = {
    "people/Ada.md": "---\ntags: person\n---\n# Ada\n\n## Notes\n",
    "meeting.md": "---\nabout: '[[Ada]]'\n---\n# Meeting\n\n- [[Ada]]\n- Asked [[people/Ada|her]] about the pumps, "
    "see [minutes](papers/minutes.md#end) and [[missing note]].\n",
    "papers/minutes.md": MINUTES,
    "papers/copy of minutes.md": MINUTES,
    "alone.md": "# Alone\n\nNothing leads here or away, and that is fine.\n",
}


def test_links_lists_what_a_note_links_to_what_links_to_it_and_what_leads_nowhere(tree: Qmd) -> None:
    run = tree("links", "meeting")
    assert (run.status, run.err) == (0, "")
    head, *lines = run.out.split("\n")
    assert head.startswith("qmd://tree/meeting.md  #")
    assert lines == [
        "",
        "Links to (4)",
        "  2: qmd://tree/people/Ada.md",
        "  6: qmd://tree/people/Ada.md",
        '  7: qmd://tree/people/Ada.md  "her"',
        "  7: qmd://tree/papers/minutes.md",
        "",
        "Linked from (2)",
        "  qmd://tree/papers/copy of minutes.md:3",
        "  qmd://tree/papers/minutes.md:3",
        "",
        "Broken links (1)",
        "  7: missing note",
        "",
    ]


def test_links_as_json_name_the_other_note_the_line_and_what_is_shown(tree: Qmd) -> None:
    found = tree("links", "meeting", "--json").json
    assert found["title"] == "Meeting"
    assert {key: found["outgoing"][3][key] for key in ("file", "line", "target", "fragment", "text")} == {
        "file": "qmd://tree/papers/minutes.md",
        "line": 7,
        "target": "papers/minutes.md",
        "fragment": "end",
        "text": "minutes",
    }
    assert found["unresolved"] == [{"line": 7, "target": "missing note"}]


def test_a_note_without_links_says_so(tree: Qmd) -> None:
    assert tree("links", "alone").out.endswith("\n\nNo links.\n")
    assert tree("links", "alone", "--json").json["incoming"] == []


def test_related_answers_from_links_alone_and_says_so_when_there_are_no_vectors(tree: Qmd) -> None:
    run = tree("related", "people/Ada.md")
    assert "warning: from links only" in run.err
    assert run.out.startswith(" 10%  qmd://tree/meeting.md  #")
    assert run.out.endswith("Meeting  (links here)\n")


def test_related_leaves_out_the_note_itself_and_its_copies(tree: Qmd) -> None:
    rows = tree("related", "papers/minutes.md", "--json").json
    assert [row["file"] for row in rows] == ["qmd://tree/meeting.md"]
    assert (rows[0]["linksTo"], rows[0]["linkedFrom"]) == (True, True)


def test_related_shows_a_text_once_with_the_places_of_its_copies(tree: Qmd) -> None:
    Path("tree/old").mkdir()
    Path("tree/old/minutes.md").write_text(MINUTES)
    tree("update")
    row = tree("related", "meeting", "--json").json[0]
    assert {row["uri"], *row["also_in"]} == {"qmd://tree/old/minutes.md", "qmd://tree/papers/minutes.md"}
    assert tree("related", "meeting").out.count("also in qmd://tree/") == 1


def test_related_by_vectors_puts_the_nearest_first(qmd: Qmd, home: Path) -> None:
    texts = {"tides": "The tide rises twice a day.", "sea": "Moon and sun pull at the ocean.", "tax": "Taxes are due."}
    for name, text in texts.items():
        (home / "notes").mkdir(exist_ok=True)
        (home / "notes" / f"{name}.md").write_text(f"# {name}\n\n{text}\n")
    qmd("index", str(home / "notes"))
    run = qmd("related", "tides", "--json", "-n", "1")
    (row,) = run.json
    assert (row["title"], run.err) == ("sea", "")
    assert 0 < row["similarity"] <= row["score"]


def test_a_name_that_is_missing_is_an_error_and_no_name_wrong_usage(tree: Qmd) -> None:
    assert tree("links", "nobody").status == 3
    assert tree("related", "nobody").status == 3
    assert tree("links").status == 2
    assert tree("related", "Ada", "-c", "nowhere").status == 3


def test_a_hit_that_says_nothing_itself_shows_a_mention(tree: Qmd) -> None:
    (row, *_) = tree("search", "ada", "--json").json
    assert row["file"] == "qmd://tree/people/Ada.md"
    assert row["mention"]["file"] == "qmd://tree/meeting.md"
    assert row["mention"]["line"] == 7
    assert row["mention"]["text"].startswith("- Asked [[people/Ada|her]] about the pumps")
    assert "\nMentioned: qmd://tree/meeting.md:7  - Asked" in tree("search", "ada").out
    assert all("mention" not in row for row in tree("search", "replaced", "--json").json)
