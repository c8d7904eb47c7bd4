"""Chunks: coverage, budget, borders, heading paths, and that an edit stays local."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmd.chunking.split import split_document
from qmd.records import Chunk, Document
from tests.parsing import parse_document
from tests.regex_tokens import regex_token_starts


def parse(text: str) -> Document:
    return parse_document("x.md", text.encode("utf-8"))


def split(text: str, max_tokens: int = 40, overlap_tokens: int = 8) -> tuple[Chunk, ...]:
    document = parse(text)
    starts = regex_token_starts(document.text)
    return split_document(document.text, document.headings, document.body_offset, starts, max_tokens, overlap_tokens)


def n_tokens(text: str) -> int:
    return len(regex_token_starts(text))


def sentences(seed: int, n: int) -> str:
    """Return `n` sentences of five short words, different for every seed."""
    draw = random.Random(seed)
    words = ["red", "tree", "box", "lamp", "river", "stone", "cloud", "fish", "road", "wind", "glass", "paper"]
    return " ".join(" ".join(draw.choice(words) for _ in range(5)).capitalize() + "." for _ in range(n))


def sections(n: int, size: int = 4) -> str:
    return "# Title\n\n" + "".join(f"## Part {i}\n\n{sentences(i, size)}\n\n" for i in range(n))


blocks = st.sampled_from(
    ["# A\n", "## B\n", "### C\n", "- item\n", "| cell |\n", "---\n", "```\n", "```\ncode()\n\n```\n"]
)
prose = st.sampled_from(["word ", "a sentence. ", "长句子没有空格。", "x" * 60, "\n", "\n\n", "tail\n", "🎉 ", "  \t"])
markdown = st.lists(blocks | prose, max_size=60).map("".join)


@given(markdown, st.integers(1, 30), st.integers(0, 40))
@settings(max_examples=300)
def test_chunks_tile_the_body_in_order(text: str, max_tokens: int, overlap_tokens: int) -> None:
    document = parse(text)
    chunks = split(text, max_tokens, overlap_tokens)
    covered = document.body_offset
    for seq, chunk in enumerate(chunks):
        assert chunk.seq == seq
        assert chunk.text == document.text[chunk.start : chunk.end] == chunk.text.strip() != ""
        assert document.text[covered : chunk.start].strip() == ""
        assert chunk.end > covered
        covered = chunk.end
    assert document.text[covered:].strip() == ""
    assert [c.start for c in chunks] == sorted({c.start for c in chunks})


@given(markdown, st.integers(1, 30), st.integers(0, 40))
@settings(max_examples=300)
def test_chunks_keep_within_the_token_budget(text: str, max_tokens: int, overlap_tokens: int) -> None:
    starts = regex_token_starts(parse(text).text)
    for chunk in split(text, max_tokens, overlap_tokens):
        assert sum(chunk.start <= s < chunk.end for s in starts) <= max_tokens


@given(st.text(max_size=80), st.lists(st.integers(0, 80)), st.integers(1, 6))
def test_any_token_positions_give_chunks_that_cover_the_text(text: str, starts: list[int], max_tokens: int) -> None:
    chunks = split_document(text, (), 0, sorted(s for s in starts if s < len(text)), max_tokens, 2)
    kept = set[int]().union(*(range(c.start, c.end) for c in chunks)) if chunks else set()
    assert all(char.isspace() or i in kept for i, char in enumerate(text))


@pytest.mark.parametrize("text", ["", " \n\t\n", "---\ntitle: T\n---\n  \n"])
def test_a_blank_body_has_no_chunks(text: str) -> None:
    assert split(text) == ()


def test_a_budget_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        split("text", max_tokens=0)


def test_front_matter_is_in_no_chunk() -> None:
    chunks = split("---\ntitle: secret\n---\n# A\n\ntext\n")
    assert [c.text for c in chunks] == ["# A\n\ntext"]


def test_a_section_that_fits_is_never_cut() -> None:
    text = sections(12)
    for i in range(12):
        part = f"## Part {i}\n\n{sentences(i, 4)}"
        assert sum(part in chunk.text for chunk in split(text)) == 1


def test_small_neighbours_share_a_chunk_under_their_common_path() -> None:
    chunks = split("# Top\n\nintro\n\n## A\n\none\n\n## B\n\ntwo\n", max_tokens=100)
    assert len(chunks) <= 2
    assert chunks[-1].heading_path[:1] == ("Top",)
    assert chunks[-1].text.endswith("two")


def test_every_window_of_a_long_section_knows_its_headings_and_the_first_begins_with_them() -> None:
    chunks = split(f"# Top\n\n## Long\n\n{sentences(1, 30)}\n")
    assert len(chunks) > 2
    assert {c.heading_path for c in chunks} == {("Top", "Long")}
    assert chunks[0].text.startswith("# Top\n\n## Long\n\n")


def test_a_chunk_does_not_leave_its_parent_section() -> None:
    chunks = split(f"# A\n\n{sentences(1, 6)}\n\n## Deep\n\none\n\n# B\n\ntwo\n")
    assert [c.text for c in chunks][1:] == ["## Deep\n\none", "# B\n\ntwo"]


def test_windows_overlap_within_a_section_only() -> None:
    text = f"## One\n\n{sentences(1, 20)}\n\n## Two\n\n{sentences(2, 20)}\n"
    chunks = split(text)
    overlaps = [max(0, a.end - b.start) for a, b in pairwise(chunks)]
    second = next(c.seq for c in chunks if c.text.startswith("## Two"))
    assert overlaps[second - 1] == 0
    assert all(overlaps[i] > 0 for i in range(len(overlaps)) if i != second - 1)
    assert all(n_tokens(text[b.start : a.end]) <= 8 for a, b in pairwise(chunks))


def test_no_overlap_when_none_is_asked_for() -> None:
    chunks = split(sentences(1, 40), overlap_tokens=0)
    assert all(a.end <= b.start for a, b in pairwise(chunks))


@pytest.mark.parametrize(("text", "mark"), [(sentences(3, 40), "."), ("这是一个很长的句子没有空格。" * 20, "。")])
def test_windows_end_at_sentences_with_or_without_spaces(text: str, mark: str) -> None:
    assert {chunk.text[-1] for chunk in split(text, max_tokens=30)[:-1]} == {mark}


def test_a_blank_line_wins_over_a_later_sentence() -> None:
    text = f"{sentences(1, 6)}\n\n{sentences(2, 6)}"
    assert split(text, max_tokens=45)[0].text == sentences(1, 6)


def test_fenced_code_is_kept_whole_where_it_fits() -> None:
    code = "```python\n" + "call(1)\n\n" * 4 + "```"
    text = f"{sentences(1, 6)}\n\n{code}\n\n{sentences(2, 6)}"
    assert any(code in chunk.text for chunk in split(text, max_tokens=45))


def test_table_rows_are_not_cut() -> None:
    rows = "\n".join(f"| cell {i} | value {i} |" for i in range(40))
    chunks = split(rows, overlap_tokens=0)
    assert len(chunks) > 1
    for chunk in chunks:
        assert chunk.text.startswith("|")
        assert chunk.text.endswith("|")


def changed(before: str, after: str) -> tuple[int, int]:
    """Return (chunks of `after` whose text is new, chunks of `after`)."""
    known = {c.text for c in split(before)}
    chunks = split(after)
    return sum(c.text not in known for c in chunks), len(chunks)


@given(st.integers(0, 39), st.integers(0, 5))
def test_a_changed_word_changes_one_or_two_chunks(part: int, variant: int) -> None:
    before = sections(40, size=3 + variant % 3)
    heading = f"## Part {part}\n\n"
    after = before.replace(heading, heading + "Changed ", 1)
    n_changed, n_chunks = changed(before, after)
    assert n_chunks > 15
    assert 1 <= n_changed <= 3


@given(st.integers(0, 20), st.integers(1, 40))
def test_a_rewritten_section_leaves_distant_chunks_alone(part: int, size: int) -> None:
    before = sections(60)
    heading = f"## Part {part}\n\n"
    after = before.replace(heading + sentences(part, 4), heading + sentences(1000 + part, size), 1)
    tail = [c.text for c in split(before)][-8:]
    assert [c.text for c in split(after)][-8:] == tail


def test_an_edit_at_the_start_of_a_long_section_is_absorbed() -> None:
    paragraphs = [sentences(i, 4) for i in range(40)]
    before = "# Long\n\n" + "\n\n".join(paragraphs)
    n_changed, n_chunks = changed(before, before.replace("# Long\n\n", "# Long\n\nNew. ", 1))
    assert n_chunks > 20
    assert n_changed <= 3
