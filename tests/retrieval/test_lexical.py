"""Operators and punctuation of plain queries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmd.analysis.query import has_user_operators, parse_lex
from qmd.retrieval.lexical import read_operators
from qmd.retrieval.trace import Trace


def marks(text: str) -> tuple[list[str], list[str]]:
    """Return the (required, excluded) expressions of a plain query."""
    marked = read_operators(text, Trace())
    terms = parse_lex(marked) if marked is not None else ()
    return [term.fts for term in terms if term.required], [term.fts for term in terms if term.excluded]


@pytest.mark.parametrize(
    ("text", "required", "excluded"),
    [
        ('"rate limiter" redis', ['"rate limiter"'], []),
        ('"timeout" client', ['"timeout"'], []),
        ("window -auth", [], ['"auth"']),
        ("+window auth", ['"window"'], []),
        ('how do I set up the "connection pool" of a client', ['"connection pool"'], []),
        ("how do I set up a pool of clients +redis", ['"redis"'], []),
        ("how do I set up a pool of clients -java", [], ['"java"']),
        ('how do I set up a pool of clients -"spring boot"', [], ['"spring boot"']),
        ('how do I set up a pool of clients +"timeout"', ['"timeout"'], []),
    ],
)
def test_operators_require_and_exclude(text: str, required: list[str], excluded: list[str]) -> None:
    assert marks(text) == (required, excluded)


@pytest.mark.parametrize(
    "text",
    [
        "a state-of-the-art parser for the web",
        "the parser - which is slow - fails on what input",
        'how do I print the file "x.txt" to the screen',
        'a disk of 5" or 6" and what it holds for us',
        'how do I execute "ls -l" every two seconds',
        'how do I get "http://www.example.com/a" through a proxy',
        'why is it that he said "no and then left the room',
        "what happens at a temperature of -5 degrees or +3 degrees",
        "how do I use the --dry-run flag of the tool",
        "plain words alone",
        "C++ and C# are what kind of languages",
    ],
)
def test_punctuation_is_no_operator(text: str) -> None:
    assert marks(text) == ([], [])


def test_a_pasted_text_requires_nothing_and_warns() -> None:
    trace = Trace()
    text = "this is what they wrote about it " * 4 + 'in "two words" of theirs -never'
    assert read_operators(text, trace) is None
    assert any("lex:" in warning for warning in trace.warnings)


@given(st.text(alphabet='ab +-"* how do the of', max_size=60))
def test_any_text_can_be_read(text: str) -> None:
    marked = read_operators(text, Trace())
    assert marked is None or has_user_operators(marked)
