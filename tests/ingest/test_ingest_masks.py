"""Masks: paths that a collection's pattern selects."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from qmd.errors import UsageError
from qmd.ingest.globs import compile_globs, parse_mask, split_mask


def selects(mask: str, path: str) -> bool:
    return compile_globs(split_mask(mask)).fullmatch(path) is not None


def test_a_mask_is_split_at_commas_outside_braces_and_brackets() -> None:
    assert split_mask(" **/*.md , {a,b}/*.txt,[,x].md,, ") == ("**/*.md", "{a,b}/*.txt", "[,x].md")


@pytest.mark.parametrize(
    ("mask", "path"),
    [
        ("**/*.md", "a.md"),
        ("**/*.md", "x/y/a.md"),
        ("*.md", "a.md"),
        ("**/*.{md,txt}", "x/a.txt"),
        ("**/*.md,**/*.txt", "a.txt"),
        ("docs/**", "docs/x/a.rst"),
        ("a/**/b.md", "a/b.md"),
        ("{a,b{c,d}}/*.md", "bd/x.md"),
        ("ch{1..3}.md", "ch2.md"),
        ("[a-c]?.md", "b1.md"),
        ("[!a].md", "b.md"),
        ("@(notes|docs)/*.md", "docs/a.md"),
        ("+(ab).md", "abab.md"),
        ("!(draft).md", "final.md"),
        ("!(draft).md", "drafts.md"),
        ("a/!(b|c)/*.md", "a/d/x.md"),
        ("(a|b).md", "(a|b).md"),
        ("./a.md", "a.md"),
        ("\\*.md", "*.md"),
        ("{a.md", "{a.md"),
        ("[a.md", "[a.md"),
        ("**/*.md", "line\nbreak/a b\u0301.md"),
    ],
)
def test_a_mask_selects(mask: str, path: str) -> None:
    assert selects(mask, path)


@pytest.mark.parametrize(
    ("mask", "path"),
    [
        ("*.md", "x/a.md"),
        ("**/*.md", "a.MD"),
        ("**/*.md", "a.md.bak"),
        ("docs/**", "docs"),
        ("a/*.md", "a/b/c.md"),
        ("[!a].md", "a.md"),
        ("a?b.md", "a/b.md"),
        ("a[^x]b.md", "a/b.md"),
        ("!(draft).md", "draft.md"),
        ("a/!(b|c)/*.md", "a/c/x.md"),
        ("ch{1..3}.md", "ch4.md"),
    ],
)
def test_a_mask_does_not_select(mask: str, path: str) -> None:
    assert not selects(mask, path)


def test_braces_that_explode_are_refused() -> None:
    with pytest.raises(UsageError, match="brace alternatives"):
        compile_globs(["{a,b}" * 20])


@pytest.mark.parametrize(
    "mask", ["{a," * 60 + "}" * 60, "@(" * 60 + ")" * 60, "{1..1000000}", "a" * 10_000, "!(a)" * 40]
)
def test_a_mask_that_is_too_deep_or_too_long_is_refused(mask: str) -> None:
    with pytest.raises(UsageError):
        compile_globs([mask])


@pytest.mark.parametrize("mask", ["\\{a,b}", "{1..99999999999}", "{a", "{{{"])
def test_braces_that_are_none_stay_literal(mask: str) -> None:
    assert selects(mask, mask.replace("\\", ""))


HOSTILE = [
    ("*a" * 12 + "b", "a" * 240),
    ("*a*" * 12 + "/*a*" * 6 + "b", "/".join(["a" * 60] * 7)),
    ("**/a/" * 12 + "b", "a/" * 120 + "c"),
    ("**/*a*/" * 12 + "b", "aaa/" * 60 + "c"),
    ("*(*(*(a)))" * 6 + "b", "a" * 240),
    ("+(a|aa|aaa)" * 12 + "b", "a" * 240),
    ("?(a)" * 40 + "a" * 40 + "b", "a" * 80),
    ("@(a|a)" * 40 + "b", "a" * 40),
    ("!(*a*)" * 12 + "b", "a" * 240),
    ("[ab]*" * 60 + "c", "ab" * 120),
    ("{" * 8000, "a"),
    ("(" * 8000, "a"),
]


def test_no_mask_makes_matching_hang() -> None:
    # A process of its own: an expression that backtracks blocks the interpreter, so no timer of this one would run.
    code = (
        "import ast, sys\nfrom qmd.ingest.globs import compile_globs\n"
        "for mask, path in ast.literal_eval(sys.stdin.read()):\n"
        "    assert compile_globs([mask]).fullmatch(path) is None, mask\n"
    )
    subprocess.run([sys.executable, "-c", code], input=repr(HOSTILE), text=True, timeout=60, check=True)


@given(st.text(alphabet="ab*?[]{}()!@+|,/\\.^-", max_size=14), st.text(max_size=10))
def test_no_mask_breaks_the_matcher(mask: str, path: str) -> None:
    compile_globs(split_mask(mask)).fullmatch(path)


Piece = tuple[str, tuple[tuple["Piece", ...], ...]]
"""Text of a piece, and the alternatives of a group."""

_simple = st.sampled_from(["a", "b", ".", "*", "*", "?", "[ab]", "[!a]"]).map(lambda text: (text, ()))
_group = st.recursive(
    _simple,
    lambda inner: st.tuples(
        st.sampled_from("@?*+"),
        st.lists(st.lists(inner, max_size=2).map(tuple), min_size=1, max_size=2).map(tuple),
    ),
    max_leaves=4,
)
_negated = st.tuples(
    st.just("!"), st.lists(st.lists(_simple, max_size=2).map(tuple), min_size=1, max_size=2).map(tuple)
)
_segment = st.lists(st.one_of(_simple, _group, _negated), min_size=1, max_size=4).filter(
    lambda pieces: written(pieces) != "**"
)
_folders = st.lists(st.one_of(st.just("**"), _segment), max_size=3)


def written(pieces: Sequence[Piece]) -> str:
    return "".join(
        f"{text}({'|'.join(map(written, alternatives))})" if alternatives else text for text, alternatives in pieces
    )


def ends(pieces: Sequence[Piece], text: str, start: int) -> set[int]:
    """Return every place at which `pieces` may end in `text` when they begin at `start`; simple, complete and slow."""
    if not pieces:
        return {start}
    (kind, alternatives), rest = pieces[0], pieces[1:]
    segment_end = text.find("/", start) if "/" in text[start:] else len(text)
    if not alternatives:
        if kind == "**/":
            borders = [start, *(i + 1 for i in range(start, len(text)) if text[i] == "/")]
            return set().union(*(ends(rest, text, border) for border in borders))
        if kind == "*":
            return set().union(*(ends(rest, text, end) for end in range(start, segment_end + 1)))
        char = text[start : start + 1]
        one = {"?": char != "/", "[ab]": char in "ab", "[!a]": char not in "a/"}.get(kind, char == kind)
        return ends(rest, text, start + 1) if char and one else set()
    if kind == "!":
        tail = {end for middle in range(start, segment_end + 1) for end in ends(rest, text, middle)}
        taken = set().union(*(ends((*alternative, *rest), text, start) for alternative in alternatives))
        return {len(text)} & tail - taken
    found = {start} if kind in "?*" else set()
    todo = [start]
    while todo:
        here = todo.pop()
        new = set().union(*(ends(alternative, text, here) for alternative in alternatives)) - found
        found |= new
        todo += new if kind in "*+" else ()
    return set().union(*(ends(rest, text, end) for end in found))


@given(
    _folders,
    _segment,
    st.lists(st.lists(st.text(alphabet="ab.", min_size=1, max_size=4), min_size=1, max_size=4), min_size=1, max_size=8),
)
@settings(max_examples=200)
def test_masks_select_what_trying_everything_selects(
    folders: list[str | list[Piece]], name: list[Piece], paths: list[list[str]]
) -> None:
    pieces: list[Piece] = []
    for folder in folders:
        pieces += [("**/", ())] if isinstance(folder, str) else [*folder, ("/", ())]
    pieces += name
    mask = written(pieces)
    assume(not mask.startswith("./"))
    matcher = compile_globs([mask])
    for path in map("/".join, paths):
        assert (matcher.fullmatch(path) is not None) == (len(path) in ends(pieces, path, 0)), path


@pytest.mark.parametrize(
    ("mask", "wanted", "excluded"),
    [
        ("a/*.md, !a/draft*, !(x|y).md", ["a/*.md", "!(x|y).md"], ["a/draft*"]),
        ("!drafts/**", ["**"], ["drafts/**"]),
        (" , ", ["**/*.md"], []),
    ],
)
def test_a_mask_selects_with_some_globs_and_excludes_with_others(
    mask: str, wanted: list[str], excluded: list[str]
) -> None:
    assert parse_mask(mask) == (wanted, excluded)
