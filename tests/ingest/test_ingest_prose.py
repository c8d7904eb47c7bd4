"""Prose among other files: the masks of new collections, and files that they skip."""

from pathlib import Path

import pytest

from qmd.ingest.document import BOILERPLATE_PATH, PAGES, is_template
from qmd.ingest.exclusion import choose_mask
from qmd.ingest.globs import compile_globs, expand_braces
from qmd.ingest.scan import scan_collection
from qmd.masks import CODE, DEFAULT_PATTERN, OWN_PATTERNS, PROSE, PROSE_BUT_HTML
from qmd.plugins import KINDS
from qmd.records import Collection

NO_PROSE = {"", *[".csv", ".tsv", ".log", ".base", ".json", ".jsonl", ".toml", ".yaml", ".yml", ".xlsx"]}
"""Endings of data; a new kind belongs to a mask or here."""


def endings(mask: str) -> set[str]:
    return {alternative.removeprefix("**/*").lower() for alternative in expand_braces(mask)}


def test_the_masks_are_the_kinds_of_prose_and_of_source_code() -> None:
    names = {suffix for suffix, kind in KINDS.items() if kind.is_name}
    assert endings(CODE) == {suffix for suffix, kind in KINDS.items() if kind.is_source}
    assert endings(PROSE) == KINDS.keys() - NO_PROSE - names - endings(CODE)
    assert endings(PROSE) - endings(PROSE_BUT_HTML) == set(PAGES)
    assert endings(DEFAULT_PATTERN) < endings(PROSE_BUT_HTML)


@pytest.mark.parametrize("mask", OWN_PATTERNS)
def test_a_mask_of_ours_selects_endings_in_any_case_and_nothing_else(mask: str) -> None:
    selects = compile_globs((mask,)).fullmatch
    for suffix in endings(mask):
        assert all(map(selects, (f"a{suffix}", f"a/B.b{suffix.upper()}", f"a\nb{suffix}")))
        assert not any(map(selects, (f"a{suffix}~", f"a{suffix}/b", suffix[1:], f"a{suffix}\n")))


@pytest.mark.parametrize(
    ("names", "mask"),
    [
        ("a.md b.html", PROSE),
        ("", PROSE),
        ("a.csv b.png", PROSE),
        ("a.py b.py LICENSE.md requirements.txt c.html", CODE),
        ("a.py b.py c.go README.md d.html e.html", PROSE_BUT_HTML),
        ("a.py b.html c.html", PROSE),
        ("A.md a.py", PROSE),
        ("Page.html Page_files/a.js Page_files/b.js Seite.htm Seite-Dateien/c.js d.js", PROSE),
        ("out/a.py out/b.py c.py d.md", PROSE),
    ],
)
def test_kinds_of_files_choose_the_mask_of_a_new_collection(tmp_path: Path, names: str, mask: str) -> None:
    for name in names.split():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / ".gitignore").write_text("out/\n")
    assert choose_mask(tmp_path) == mask


def test_a_scan_stops_once_it_has_enough_files(tmp_path: Path) -> None:
    for folder in "abc":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.md").write_text("x")
    assert len(scan_collection(Collection("n", tmp_path), enough=2).files) == 2


@pytest.mark.parametrize(
    "page",
    [
        "<h1>{{ title }}</h1>", '<a href="{{url}}">', "{{{body}}}", "<ul>{% for x in y %}", "{%- if x %}", "<?php a ?>",
        "<?= $x ?>", "<p><%= name %>", "<pre>{{ a }}</pre>{{ b }}", "<CODE></CODE><p>{% x %}", "<tt></tt>{{ x }}",
    ],
)  # fmt: skip
def test_marks_of_a_template_language_are_found(page: str) -> None:
    assert is_template(".html", page.encode())


@pytest.mark.parametrize(
    "page",
    [
        '<?xml version="1.0"?><html>', "<?xml-stylesheet href='a'?>", "<pre>{{ a }}</pre>", "<code>{% if %}</code>",
        "<script>let a = {{b: 1}, c: `{{ d }}`}</script>", "<style>a{b:{{c}}}</style>", "<p>x^{{ab}} {{n}} {\\rm{{a}}}",
        "<title>The {% url %} tag</title>", "<pre><code></code>{{ a }}</pre>", "<pre>{{ a }}", "<p>100 {%", "",
    ],
)  # fmt: skip
def test_pages_that_quote_marks_are_no_templates(page: str) -> None:
    assert not is_template(".html", page.encode())


def test_a_text_is_a_template_if_it_begins_as_one() -> None:
    assert is_template(".txt", b"\n{% load i18n %}Hello")
    assert not is_template(".txt", b"In Jinja, {% load %} is unknown")
    assert not is_template(".md", b"{% raw %}")


@pytest.mark.parametrize("hostile", [b"<pre>", b"{{", b"{{a", b"<", b"{%", b"{{a}", b"<pre></pre>"])
def test_marks_are_sought_once_in_any_text(hostile: bytes) -> None:
    is_template(".html", hostile * 300_000)


def test_notes_are_not_taken_for_licences_and_requirements() -> None:
    skipped = "requirements.txt a/dev-requirements.txt robots.txt CMakeLists.txt LICENSE.md LICENCE-MIT.txt COPYING.txt"
    assert all(map(BOILERPLATE_PATH.fullmatch, skipped.split()))
    notes = ("Requirements.md", "requirements of the house.txt", "Notice of rent.md", "license talks.md", "NOTICES.org")
    assert not any(map(BOILERPLATE_PATH.fullmatch, notes))
