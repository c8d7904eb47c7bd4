"""Filters by front matter, from the files to the answer."""

import re
from pathlib import Path

import pytest

from tests.program import Qmd, write_notes

FAR = """---\nstatus: lost\nowner: {odd: "it's \\"; DROP TABLE documents;--"}\n---\n# Cheese\n\nHow cheese ripens.\n"""


@pytest.fixture
def filed(qmd: Qmd, home: Path) -> Qmd:
    """Return an index of notes about one subject, with front matter, and one note about another."""
    texts = {
        f"restore {number}.md": f"---\nstatus: {'draft' if number % 2 else 'Published'}\npriority: {number}\n"
        f"due: 2026-{number + 1:02d}-01\n---\n# Restore {number}\n\nHow to restore backup number {number}.\n"
        for number in range(6)
    }
    texts["far.md"] = FAR
    texts["plain.md"] = "# Plain\n\nRestore without front matter.\n"
    texts["template.md"] = (
        '---\nstatus: "{{status}}"\ndue: <% tp.date.now() %>\npriority: .nan\n---\n# Template\n\nRestore.\n'
    )
    write_notes(home / "notes", texts)
    assert qmd("index", "notes").status == 0
    return qmd


def files(qmd: Qmd, *argv: str) -> list[str]:
    return sorted(row["path"] for row in qmd(*argv, "--json").json)


@pytest.mark.parametrize("command", ["search", "vsearch", "query"])
def test_a_filter_leaves_what_it_names(filed: Qmd, command: str) -> None:
    assert files(filed, command, "restore status:draft priority>=3") == ["restore 3.md", "restore 5.md"]
    assert files(filed, command, "restore", "--filter", "due<2026-03") == ["restore 0.md", "restore 1.md"]
    both = ["far.md", "plain.md", "template.md"]
    assert set(files(filed, command, "restore -has:priority", "-n", "9")) <= {*both}
    assert files(filed, command, "", "--filter", "-status:draft -status:published") == both


@pytest.mark.parametrize("command", ["vsearch", "query"])
def test_vectors_are_filtered_before_the_nearest_are_taken(filed: Qmd, command: str) -> None:
    assert files(filed, command, "how to restore a backup status:lost", "-n", "1") == ["far.md"]
    far = filed(command, "restore a backup", "-n", "1", "--metadata", "--json", "--filter", "has:owner.odd").json[0]
    assert far["metadata"] == {"status": "lost", "owner.odd": "it's \"; DROP TABLE documents;--"}


def test_a_name_that_is_no_field_is_a_word_and_said_to_be(filed: Qmd) -> None:
    run = filed("search", "restore staus:draft", "--json")
    assert "'staus:draft' is searched as words: no note has the field 'staus'; did you mean 'status'?" in run.err
    assert len(run.json) == 9
    run = filed("search", "restore", "--filter", "prio:3 status:draft", "--json")
    assert run.json == [] and "no note has the field 'prio'; " in run.err


def test_fields_are_listed_with_types_and_values(filed: Qmd) -> None:
    found = {row["field"]: row for row in filed("collection", "metadata", "--json").json}
    assert found["status"]["notes"] == 8 and found["status"]["values"]["draft"] == 3
    assert found["priority"]["types"] == {"number": 6, "text": 1} and found["due"]["types"]["date"] == 6
    listed = filed("collection", "metadata", "notes", "Status").out
    assert [line.split() for line in listed.splitlines()] == [
        ["Value", "Notes"], ["Published", "3"], ["draft", "3"], ["lost", "1"], ["{{status}}", "1"],
    ]  # fmt: skip
    assert filed("collection", "metadata", "status").out == listed
    assert re.search(r"(?m)^due +date, text +7 +2026-01-01, 2026-02-01, ", filed("collection", "metadata").out)


def test_a_field_that_is_not_there_is_an_error_that_names_the_nearest(filed: Qmd) -> None:
    run = filed("collection", "metadata", "notes", "prioritty")
    assert run.status == 1 and run.out == ""
    assert run.err.startswith("error: no note has the field 'prioritty'\nhint: did you mean 'priority'? every field: ")
    assert filed("collection", "metadata", "nots").err.startswith("error: Collection not found: nots\n")


def test_hostile_front_matter_stays_what_it_is(qmd: Qmd, home: Path) -> None:
    keys = "".join(f"key{number}: 1\n" for number in range(5_000))
    items = ", ".join(map(str, range(10_000)))
    texts = {
        "many.md": f"---\n{keys}---\n# Many\n\nApple.\n",
        "list.md": f"---\nitems: [{items}]\nlong: {'x' * 50_000}\n---\n# List\n\nApple.\n",
        "odd.md": """---\n"a'b\\"; DROP TABLE documents": 1\n"\\x1b]0;x": 2\nnan: .nan\n---\n# Odd\n\nApple.\n""",
        "date.md": "---\n日期: 2026-13-45\n---\n# Date\n\nApple.\n",
    }
    write_notes(home / "notes", texts)
    run = qmd("index", "notes")
    assert run.status == 0 and "it has 5,000 fields, more than the limit of 1,000" in run.err
    assert files(qmd, "search", "apple items>9998") == ["list.md"]
    assert files(qmd, "search", "apple 日期:2026-13-45") == ["date.md"]
    assert files(
        qmd, "search", "apple", "--filter", '{"field":"a\'b\\"; drop table documents","operator":"eq","value":1}'
    ) == ["odd.md"]
    assert files(qmd, "search", "apple", "--filter", "nan:nan") == ["odd.md"]
    assert files(qmd, "search", "apple") == ["date.md", "list.md", "many.md", "odd.md"]
    assert "\x1b" not in qmd("collection", "metadata").out
    listed = {row["field"]: row for row in qmd("collection", "metadata", "--json").json}
    assert listed["items"]["distinct"] == 10_000 and len(listed["items"]["values"]) == 20
    assert listed["日期"]["types"] == {"text": 1}


def test_fields_of_the_original_are_found_by_their_names(qmd: Qmd, home: Path) -> None:
    write_notes(home / "notes", {"a.md": "---\nqmd:\n  metadata:\n    topics: [typescript]\n---\n# A\n\nApple.\n"})
    qmd("index", "notes")
    assert files(qmd, "search", "apple", "--filter", '{"key":"topics","operator":"all","value":["typescript"]}') == [
        "a.md"
    ]
