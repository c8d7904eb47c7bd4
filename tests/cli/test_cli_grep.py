"""`--format grep`: one line for each passage, `path:line:column:text`, for editors and other programs."""

from pathlib import Path

import pytest

from tests.program import Qmd, write_notes

_NOTES = {
    "oven.md": "# Kitchen\n\nThe old one: Öl im Ofen, then bread in the oven.\r\n",
    "deep/long.md": f"# Other\n\n{'filler words in a line without an end ' * 200}with the pelican far inside.\n",
}


@pytest.fixture
def found(qmd: Qmd, home: Path) -> Qmd:
    write_notes(home / "notes", _NOTES)
    assert qmd("index", "notes", "--no-embed").status == 0
    return qmd


def _lines(text: str) -> list[str]:
    assert text.splitlines() == text.split("\n")[:-1]  # no separator forges a line
    return text.splitlines()


def test_a_line_has_path_line_byte_column_and_text(found: Qmd) -> None:
    # The umlaut before the word takes two bytes.
    expected = "notes/oven.md:3:45:The old one: Öl im Ofen, then bread in the oven.\n"
    for spelling in (["--format", "grep"], ["--vimgrep"], ["--format=grep", "--color", "always"]):
        run = found("search", "oven", *spelling)
        assert (run.status, run.out) == (0, expected)


@pytest.mark.parametrize("command", ["vsearch", "query"])
def test_searches_by_meaning_have_the_same_lines(found: Qmd, command: str) -> None:
    assert found("embed").status == 0
    assert found(command, "oven", "--vimgrep").out.startswith("notes/oven.md:3:")


def test_paths_are_relative_to_the_current_folder_or_absolute(
    found: Qmd, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "else").mkdir()
    for folder, path in (("else", "../notes/oven.md"), ("notes", "oven.md"), ("notes/deep", "../oven.md")):
        monkeypatch.chdir(home / folder)
        monkeypatch.setenv("PWD", str(home / folder))
        assert found("search", "oven", "--vimgrep").out.startswith(f"{path}:3:45:")
    assert found("search", "oven", "--vimgrep", "--full-path").out.startswith(f"{home.resolve()}/notes/oven.md:3:45:")


def test_a_long_line_is_whole_and_its_column_right(found: Qmd) -> None:
    [line] = _lines(found("search", "pelican", "--vimgrep").out)
    path, number, column, text = line.split(":", 3)
    assert (path, number, text) == ("notes/deep/long.md", "3", _NOTES["deep/long.md"].split("\n")[2])
    assert text[int(column) - 1 :].startswith("pelican")


def test_each_passage_has_a_line(qmd: Qmd, home: Path) -> None:
    middle = "\n\n".join(f"## Part {n}\n\n{'Nothing of interest here. ' * 20}" for n in range(6))
    write_notes(
        home / "notes", {"a.md": f"# A\n\n## First\n\nThe walrus sleeps.\n\n{middle}\n\n## Last\n\nA toucan flies.\n"}
    )
    qmd("index", "notes", "--no-embed")
    lines = _lines(qmd("search", "walrus toucan", "--vimgrep").out)
    assert sorted(line.split(":")[3] for line in lines) == ["A toucan flies.", "The walrus sleeps."]


def test_nothing_found_is_exit_code_1_of_this_format_alone(found: Qmd) -> None:
    run = found("search", "zxqv", "--vimgrep")
    assert (run.status, run.out) == (1, "")
    assert found("search", "zxqv", "--json").status == 0
    found("embed")
    run = found("query", "opening hours of the swimming pool", "--vimgrep")
    assert (run.status, run.out) == (1, "")
    assert "no good match found; every hit: --all" in run.err
    assert found("query", "opening hours of the swimming pool", "--vimgrep", "--all").status == 0


def test_strangers_names_and_texts_forge_no_line_option_or_colour(
    qmd: Qmd, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "ibis \x1b[31mred\x1b[0m \x85next:1:1:no\u2028x:2:2:no \x0bv \x0cf \ud7ff \u202eback\tend\n"
    names = (
        "a\nb.md:1:1:evil.md",
        "esc\x1b[2J.md",
        "+!touch x.md",
        "-rf.md",
        "~root.md",
        "co:3:lon.md",
        "sep\u2028.md",
    )
    write_notes(home / "notes", dict.fromkeys(names, text))
    qmd("index", "notes", "--no-embed")
    monkeypatch.chdir(home / "notes")
    monkeypatch.setenv("PWD", str(home / "notes"))
    run = qmd("search", "ibis", "--vimgrep")
    lines = _lines(run.out)
    assert sorted(line.partition(":1:1:ibis")[0] for line in lines) == [
        "./+!touch x.md",
        "./-rf.md",
        "./~root.md",
        "co:3:lon.md",
    ]
    assert all(r"\x1b[31mred" in line and line.endswith("back\tend") and "\u202e" not in line for line in lines)
    assert "skipped 3 of 7 results: no file on disk, or control characters in its path" in run.err


def test_a_note_without_its_file_is_skipped_with_a_warning(
    found: Qmd, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QMD_AUTO_UPDATE", "0")
    (home / "notes" / "oven.md").unlink()
    run = found("search", "oven", "--vimgrep")
    assert (run.status, run.out) == (1, "")
    assert "warning: skipped 1 of 1 results" in run.err


def test_documents_have_no_such_format(found: Qmd) -> None:
    for option in (["--format", "grep"], ["--vimgrep"]):
        run = found("multi-get", "*.md", *option)
        assert (run.status, run.out) == (2, "")
        assert run.err == "error: Unknown --format value: grep\nhint: Valid: cli, json, csv, md, xml, files\n"


def test_the_address_of_a_hit_is_one_for_get(found: Qmd) -> None:
    address = found("search", "bread").out.split(" ", 1)[0]
    assert address == "qmd://notes/oven.md:3"
    assert found("get", address).out.endswith("3: The old one: Öl im Ofen, then bread in the oven.\n")
