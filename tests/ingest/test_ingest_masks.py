"""Masks: which paths a collection's pattern selects."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmd.errors import UsageError
from qmd.ingest import compile_globs, split_mask


def selects(mask: str, path: str) -> bool:
    expression = compile_globs(split_mask(mask))
    return expression is not None and expression.fullmatch(path) is not None


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


@given(st.text(alphabet="ab*?[]{}()!@+|,/\\.^-", max_size=14), st.text(max_size=10))
@settings(deadline=None)
def test_no_mask_breaks_the_matcher(mask: str, path: str) -> None:
    expression = compile_globs(split_mask(mask))
    assert expression is None or expression.fullmatch(path) is None or isinstance(path, str)
