"""Formulas stay as written: in a note, in a hit and on the page."""

import html
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from qmd.plugins.page.note_html import NoteContext, markdown_html
from qmd.render.markdown import render_markdown
from qmd.render.prose import read_blocks

FORMULAS = [
    "$x^*$",
    "$a_1 b_1 * c * d$",
    r"\(p * q * r\)",
    r"\[ \frac{a}{b} \\ [c] \]",
    r"$$\begin{pmatrix} 2 & 1 \\ 1 & 2 \end{pmatrix}$$",
    "$$\n*a* <b> [[c]] \\\\\n`d`\n$$",
    "$$\nP(t) = \\det(tI - A)\n\n_one_ more_ row_\n$$",
]

AROUND = ("{}", "one\n{}\ntwo")
IN_A_LINE = ("We see {} here.", "- {}", "> {}", "| a | {} |\n|---|---|\n| b | c |")
CASES = [
    (formula, around)
    for formula in FORMULAS
    for around in (AROUND if "\n" in formula else (*AROUND, *IN_A_LINE[: 3 if "$$" in formula else 4]))
]


def in_note(text: str) -> str:
    console = Console(width=200, color_system=None)
    with console.capture() as shown:
        console.print(*render_markdown(text, lambda target: None))
    return shown.get()


def in_hit(text: str) -> str:
    return "\n".join(row.plain for block in read_blocks(text, "n.md", 200, lambda one: one) for row in block.rows)


def on_page(text: str) -> str:
    return html.unescape(re.sub("<[^>]*>", "", markdown_html(text, NoteContext(lambda one: []))))


SHOWN = pytest.mark.parametrize("show", [in_note, in_hit, on_page])


def squeezed(text: str) -> str:
    return "".join(text.split())


@SHOWN
@pytest.mark.parametrize(("formula", "around"), CASES)
def test_a_formula_is_shown_as_it_is_written(show: Callable[[str], str], formula: str, around: str) -> None:
    assert squeezed(formula) in squeezed(show(around.format(formula)))


@SHOWN
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("It costs $5 and *not* $6.", "It costs $5 and not $6."),
        ("from 5$ to *6$*", "from 5$ to 6$"),
        ("`$a*b*$` and *c*", "$a*b*$ and c"),
        ("$ *a* $", "$ a $"),
        ("$$\n*open*", "$$ open"),
    ],
)
def test_what_is_no_formula_is_markdown(show: Callable[[str], str], text: str, shown: str) -> None:
    assert squeezed(shown) == squeezed(show(text))


@given(
    st.lists(
        st.sampled_from(["$", "$$", "\\(", "\\)", "\\[", "\\]", "\n", "a*b", " ", "\\\\", "> ", "- "]), max_size=40
    )
)
def test_any_order_of_marks_is_survived_and_loses_no_letter(parts: list[str]) -> None:
    text = "".join(parts)
    for show in (in_note, in_hit, on_page):
        assert show(text).count("a") >= text.count("a")


@pytest.mark.parametrize("part", ["$$ ", "$$\n", "\\[ ", "\\( ", "$a ", "$$a\n\n"])
def test_many_marks_that_nothing_closes_are_survived(part: str) -> None:
    assert read_blocks(part * 20_000, "n.md", 80, lambda one: one)
    assert on_page(part * 2_000).count("a") == part.count("a") * 2_000
