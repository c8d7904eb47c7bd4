"""All characters of a note are shown, except marks of markdown: in a note, in a hit and on the page."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmd.plugins.page.note_html import NoteContext, markdown_html
from qmd.render.drawing import Screen, draw
from qmd.render.markdown import render_markdown
from qmd.render.prose import read_blocks
from tests.render.test_formulas import in_hit, in_note, on_page

SHOWN = pytest.mark.parametrize("show", [in_note, in_hit, on_page])
SOUP = ("==", "`", "*", "_", "~~", "[^1]", "[^1]: ", "$", "\n", "\n\n", "> ", "> [!tip] ", "- ", "| ", " ")
WORD = st.text("abcxyz", min_size=1, max_size=6)


def around(mark: str) -> Callable[[tuple[str, str]], tuple[str, str]]:
    return lambda part: (f"{mark}{part[0]}{mark}", part[1])


PIECE = st.one_of(
    WORD.map(lambda word: (word, word)),
    WORD.map(lambda word: (f"`{word}*`", f"{word}*")),
    WORD.map(lambda word: (f"[^{word}]", f"[{word}]")),
    WORD.map(lambda word: (f"[[{word}|{word}s]]", f"{word}s")),
    WORD.map(lambda word: (f"[{word}](https://x.org/hidden)", word)),
    WORD.map(lambda word: (f"${word}^*$", f"${word}^*$")),
)
MARKED = st.one_of(PIECE, *(PIECE.map(around(mark)) for mark in ("**", "*", "~~", "==")))
LINE = st.lists(MARKED, min_size=1, max_size=5).map(
    lambda parts: tuple(" ".join(one[side] for one in parts) for side in (0, 1))
)
BLOCK = st.one_of(
    LINE,
    WORD.map(lambda word: (f"## w **{word}** =={word}== `{word}`", f"w{word}{word}{word}")),
    LINE.map(lambda one: (f"- {one[0]}", f"•{one[1]}")),
    LINE.map(lambda one: (f"- [x] {one[0]}", f"☑{one[1]}")),
    LINE.map(lambda one: (f"> {one[0]}", one[1])),
    LINE.map(lambda one: (f"> [!note] {one[0]}\n> w {one[0]}", f"{one[1]}w{one[1]}")),
    WORD.map(lambda word: (f"> [!{word}]\n> w", f"{word.capitalize()}w")),
    LINE.map(lambda one: (f"[^1]: {one[0]}\n[^2]: {one[0]}", f"[1]:{one[1]}[2]:{one[1]}")),
    LINE.map(lambda one: (f"w {one[0]}\n{one[0]}", f"w {one[1]}{one[1]}")),
    WORD.map(lambda word: (f"| a | {word} |\n|---|---|\n| =={word}== | c[^1] |", f"a{word}{word}c[1]")),
    WORD.map(lambda word: (f"```mermaid\n{word} --> *b*\n```", f"{word}-->*b*")),
    WORD.map(lambda word: (f"$$\n{word}_1 * b * c\n$$", f"$${word}_1*b*c$$")),
)


def characters(shown: str) -> str:
    """Return the characters without blanks and signs for quotations, lists and tables."""
    return re.sub(r"[\s▌─•]", "", shown)


@SHOWN
@given(st.lists(BLOCK, min_size=1, max_size=5))
def test_what_is_shown_is_the_source_but_for_its_marks(
    show: Callable[[str], str], blocks: list[tuple[str, str]]
) -> None:
    source = "\n\n".join(one for one, _ in blocks)
    assert characters(show(source)) == characters("".join(shown for _, shown in blocks))


@SHOWN
@given(st.lists(st.sampled_from(SOUP), max_size=40))
def test_no_order_of_marks_loses_a_word(show: Callable[[str], str], marks: list[str]) -> None:
    text = "".join(f"{mark}w{number}w" for number, mark in enumerate(marks))
    shown = characters(show(text))
    assert [one for one in range(len(marks)) if f"w{one}w" not in shown] == []


@pytest.mark.parametrize("part", ["==a", "==a ", "[^", "[^a", "[^a]: ", "[^1]:\n", "==`a== ``", "> [!a]\n\n"])
def test_many_signs_that_nothing_closes_are_survived(part: str) -> None:
    assert read_blocks(part * 20_000, "n.md", 80, lambda one: one)
    assert on_page(part * 2_000).lower().count("a") == part.count("a") * 2_000


def test_a_highlight_and_a_footnote_are_seen() -> None:
    text = "A ==b **c**== d[^1].\n\n[^1]: Word"
    (row, *_) = [row for block in read_blocks(text, "n.md", 80, lambda one: one) for row in block.rows]
    assert {(row.plain[span.start : span.end], span.style) for span in row.spans} == {
        ("b c", "markdown.mark"),
        ("[1]", "markdown.sup"),
    }
    assert "\x1b[7mb \x1b[0m\x1b[1;7mc\x1b[0m" in draw(
        Screen(colours="standard"), *render_markdown(text, lambda target: None)
    )
    page = markdown_html(text, NoteContext(lambda one: []))
    assert '<mark class="written">b <strong>c</strong></mark>' in page
    assert '<sup class="written">[1]</sup>: Word' in page


def test_lines_that_an_editor_broke_are_one_paragraph_and_those_of_the_writer_stay() -> None:
    broken = "It accepts 600 calls per minute. After that it answers with status 429, and we wait ten seconds until"
    assert in_hit(f"{broken}\nthe next try.") == f"{broken} the next try."
    assert in_hit("Sleep: 7 h\nMood: good") == "Sleep: 7 h\nMood: good"
