"""`qmd index FOLDER` with files of many kinds: what it includes, and the lines about the others."""

import json
import shlex
from pathlib import Path

import pytest

from qmd import plugins
from qmd.installation import install_command
from qmd.masks import CODE, PROSE
from tests.program import Qmd, write_notes

PAGE = "<html><title>T</title><p>A {} here.</html>"


def mask(qmd: Qmd) -> str:
    return str(qmd("collection", "list", "--json").json[0]["pattern"])


def test_a_folder_of_many_kinds_is_one_collection_of_its_prose(qmd: Qmd, home: Path) -> None:
    texts = {
        "a.md": "numbat",
        "b.org": "bilby",
        "c.rst": "echidna",
        "d.TXT": "quokka",
        "e.srt": "1\n00:00:01,000 --> 00:00:02,000\ndingo\n",
        "f.markdown": "wombat",
    }
    texts |= {"g.html": PAGE.format("potoroo"), "h.eml": "Subject: S\n\nkowari", "n.json": "{}", "LICENSE.txt": "MIT"}
    texts |= {
        "i.ipynb": json.dumps({"cells": [{"cell_type": "markdown", "source": ["platypus"]}]}),
        "t.html": "{% x %}",
    }
    folder = write_notes(home / "mix", texts)
    run = qmd("index", "mix", "--no-embed")
    assert run.out == "✓ mix  9 notes (1 md, 1 org, 1 rst, 6 other)  ~/mix\n"
    assert run.err == (
        "mix: skipped 1 file of other kinds (1 json), 1 licence or requirements file, 1 template; to include them:"
        f" qmd index {shlex.quote(str(folder))} --all\n"
    )
    for word in ["numbat", "bilby", "echidna", "quokka", "dingo", "wombat", "potoroo", "kowari", "platypus"]:
        assert qmd("search", word, "--files").out.count("qmd://mix/") == 1, word
    assert mask(qmd) == PROSE and "**" not in run.out + run.err + qmd("index", "mix", "--no-embed").out
    assert not any("pattern" in line for line in qmd("doctor").out.splitlines()), "no setting of the user's"


def test_templates_are_not_read_twice_and_are_no_problems(qmd: Qmd, home: Path) -> None:
    folder = write_notes(home / "x", {"a.md": "a", "b.html": "{{ zebra }}"})
    qmd("index", "x", "--no-embed")
    # As long and as old as before.
    write_notes(folder, {"b.html": "<p>zebra</p"})
    run = qmd("index", "x", "--no-embed")
    assert (run.out, "x: skipped 1 template; to include them:" in run.err) == ("✓ x  1 note  ~/x\n", True)
    assert qmd("update").err == ""
    assert qmd("status", "--problems").out == "Every file was read completely.\n"
    assert qmd("status", "--json").json["leftOut"] == []
    index = home.parent / "config/qmd/index.yml"
    index.write_text(index.read_text().replace(PROSE, "**/*"))
    assert qmd("index", "--no-embed").out == "✓ x  1 new, 2 notes  ~/x  **/*\n", "another mask skips none"


def test_a_page_that_becomes_a_template_leaves_the_index_and_comes_back(qmd: Qmd, home: Path) -> None:
    folder = write_notes(home / "x", {"a.md": "a", "b.html": PAGE.format("zebra")})
    qmd("index", "x", "--no-embed")
    (folder / "b.html").write_text("{% block %}zebra")
    assert qmd("index", "--no-embed").out == "✓ x  1 removed, 1 note  ~/x\n"
    assert "b.html" not in qmd("search", "zebra", "--files").out
    (folder / "b.html").write_text(PAGE.format("zebra and lion"))
    assert qmd("index", "--no-embed").out == "✓ x  1 new, 2 notes  ~/x\n"


def test_all_includes_every_kind_and_counts_files_that_are_no_text(qmd: Qmd, home: Path) -> None:
    folder = write_notes(home / "x", {"a.md": "a", "b.html": "{{ name }}", "c.py": "c", "requirements.txt": "r"})
    for name in ("d.sqlite", "e.unknown", "f", "g.md"):
        (folder / name).write_bytes(b"\0\1")
    run = qmd("index", "x", "--all", "--no-embed")
    assert run.out == "✓ x  4 notes (1 md, 1 html, 1 py, 1 other)  ~/x  **/*\n"
    assert run.err == "warning: 'g.md' is binary\nx: skipped 3 binary files\n"
    assert [row["path"] for row in qmd("status", "--problems", "--json").json] == ["g.md"]


def test_a_folder_of_source_code_alone_is_indexed_as_code(qmd: Qmd, home: Path) -> None:
    write_notes(home / "x", {"a.py": "zebra = 1", "b.go": "b", "LICENSE.md": "MIT", "t.html": "{{ name }}"})
    run = qmd("index", "x", "--no-embed")
    assert (run.out, mask(qmd)) == ("✓ x  2 notes (1 py, 1 go)  ~/x\n", CODE)
    assert "x: there is no prose, so its source code is indexed\n" in run.err
    assert "no prose" not in qmd("index", "x", "--no-embed").err


@pytest.mark.parametrize("ending", ["pdf", "docx"])
def test_files_without_an_installed_reader_are_one_line_with_the_command(
    qmd: Qmd, home: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    suffix = f".{ending}"
    monkeypatch.setitem(plugins.KINDS, suffix, plugins.KINDS[suffix]._replace(needs="not_installed"))
    write_notes(home / "x", {"a.md": "a", f"b.{ending}": "b", f"c.{ending}": "c"})
    line = f"x: skipped 2 files (2 {ending}); to read {suffix}: {install_command('files')}\n"
    assert qmd("index", "x", "--no-embed").err == line
    assert (qmd("index", "--no-embed").err, qmd("status", "--problems", "--json").json) == ("", [])


def test_names_in_the_lines_stay_on_them(qmd: Qmd, home: Path) -> None:
    folder = write_notes(home / "x\n✓ forged  9 notes\x1b[31m", {"a.md": "a", "b.csv": "b"})
    run = qmd("index", str(folder), "--name", "n", "--no-embed")
    assert (len(run.out.splitlines()), len(run.err.splitlines()), "\x1b" in run.out + run.err) == (1, 1, False)


def test_other_ways_to_add_a_folder_keep_to_markdown(qmd: Qmd, home: Path) -> None:
    write_notes(home / "x", {"a.md": "a", "b.txt": "b"})
    assert "Indexed: 1 new" in qmd("collection", "add", "x").out
    assert qmd("index", "x", "--no-embed").out == "✓ x  1 note  ~/x\n"
