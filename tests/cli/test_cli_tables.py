"""Listings and documents on a terminal and for programs."""

import sys
from pathlib import Path

import pytest

from qmd.render.terminal import without_sequences
from tests.cli.terminal_runs import Shown, run_all
from tests.program import Qmd

if sys.platform == "win32":
    pytest.skip("needs pseudo-terminals", allow_module_level=True)

READING = [
    ("status",),
    ("ls",),
    ("ls", "notes"),
    ("get", "pricing.md"),
    ("get", "pricing.md:3:2"),
    ("multi-get", "*.md"),
    ("collection", "list"),
    ("collection", "show", "notes"),
    ("links", "pricing.md"),
    ("models", "list"),
    ("doctor",),
]


def shown(*argv: str, stdout: str = "tty", **env: str) -> Shown:
    return run_all([{"argv": argv, "streams": ("empty", stdout, "pipe"), "env": env}])[0]


def text(*argv: str, **env: str) -> str:
    result = shown(*argv, **env)
    assert (result.status, "unexpected" in result.err) == (0, False)
    return without_sequences(result.out)


@pytest.mark.parametrize("argv", READING, ids=" ".join)
def test_a_person_gets_a_drawing_and_a_program_the_plain_form(indexed: Qmd, argv: tuple[str, ...]) -> None:
    drawn, plain = run_all([{"argv": argv, "streams": ("empty", stdout, "pipe")} for stdout in ("tty", "pipe")])
    assert (drawn.status, plain.status) == (0, 0)
    assert "\x1b[" in drawn.out
    assert "\x1b" not in plain.out
    assert without_sequences(drawn.out) != plain.out


def test_a_note_is_rendered_and_plain_shows_its_lines(indexed: Qmd) -> None:
    rendered = text("get", "pricing.md")
    assert rendered.startswith("notes/pricing.md  #")
    assert "\nPricing decision\n\nWe chose per-seat pricing" in rendered
    assert shown("get", "pricing.md", "--plain").out == shown("get", "pricing.md", stdout="pipe").out
    assert "1: # Pricing decision" in text("get", "pricing.md", "--plain")


def test_a_range_is_numbered(indexed: Qmd) -> None:
    assert text("get", "pricing.md:3:2").endswith("3  We chose per-seat pricing after the interviews.\n4  \n")


def test_a_link_to_a_note_opens_its_file(qmd: Qmd, notes: Path) -> None:
    (notes / "two.md").write_text("see [[pricing]]\n", "utf-8")
    qmd("index", str(notes), "--no-embed")
    assert f"\x1b]8;;{(notes / 'pricing.md').as_uri()}\x07" in shown("get", "two.md").out
    assert "\x1b]8;;code://" in shown("get", "two.md", QMD_EDITOR_URI="code://{path}").out
    (notes / ".obsidian").mkdir()
    assert "\x1b]8;;obsidian://open?path=" in shown("get", "two.md").out
    assert "\x1b]8;;obsidian://open?path=" in shown("ls", "notes").out


def test_several_notes_stand_below_one_another(indexed: Qmd) -> None:
    several = text("multi-get", "*.md")
    assert several.index("notes/pricing.md  #") < several.index("Pricing decision")
    assert text("multi-get", "*.md", "--plain").startswith("\n====")


def test_status_and_models_name_the_next_command(indexed: Qmd) -> None:
    assert "qmd embed" in text("status")
    assert "qmd models pull MODEL" in text("models", "list")


def test_an_empty_index_says_how_to_begin(qmd: Qmd) -> None:
    for argv in (("status",), ("ls",), ("collection", "list")):
        assert "qmd index ~/notes" in text(*argv)


def test_doctor_names_what_to_do_and_what_is_set(indexed: Qmd) -> None:
    report = text("doctor", QMD_OFFLINE="1", QMD_API_KEY="very-secret", QMD_OFLINE="1")
    assert "! 1 problem: vectors" in report
    assert "→ run: qmd embed" in report
    assert "very-secret" not in report
    rows = {line.split()[0]: line for line in report.splitlines() if line.strip()}
    assert "no variable of this version" in rows["QMD_OFLINE"]
    assert rows["QMD_API_KEY"].split()[1] == "(set)"
    assert all(len(line) <= 80 for line in report.splitlines())


def test_doctor_tells_programs_what_is_set(indexed: Qmd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMD_EMBED_MODEL", "jina")
    report = indexed("doctor", "--json").json
    (row,) = [one for one in report["variables"] if one["name"] == "QMD_EMBED_MODEL"]
    assert (row["value"], row["origin"], row["overruled_by"]) == ("jina", "environment", None)
    assert report["settings"] == []
    assert report["environment"]["QMD_EMBED_MODEL"] == "jina"
