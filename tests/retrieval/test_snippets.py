"""Passages: right lines, right numbers, never too long."""

from itertools import pairwise
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmd.analysis.query import analyze_query, parse_lex
from qmd.records import Passage
from qmd.retrieval.matching import WeightedTerm, match_text
from qmd.retrieval.snippets import MAX_PARTS, choose_passages

TEXT = "# Notes\n\nintro\n\nThe limiter slides.\nAuth token flow\nend one\nend two\n"


def query_terms(text: str) -> list[WeightedTerm]:
    """Return the terms of `text`, all of the same weight."""
    return [WeightedTerm(term, 1.0) for term in analyze_query(text)]


def best_passage(*args: Any, **options: Any) -> Passage:
    """Return only the best passage."""
    return choose_passages(*args, **options)[0]


PROSE = "This paragraph of filler says nothing that anybody would ask for, and it says so at length.\n\n" * 12


def test_a_short_text_is_shown_whole_with_the_line_that_matched_best() -> None:
    passage = best_passage(TEXT, query_terms("auth tokens"))
    assert passage.text == TEXT.removesuffix("\n")
    assert (passage.start_line, passage.end_line, passage.line) == (1, 8, 6)
    assert (passage.lines_before, passage.lines_after) == (0, 0)


def test_a_passage_ends_where_paragraphs_end() -> None:
    text = f"{PROSE}The limiter slides\nover a window of one\nminute per client.\n\n{PROSE}"
    passage = best_passage(text, query_terms("limiter window"))
    assert "The limiter slides\nover a window of one\nminute per client." in passage.text
    assert passage.text.startswith("This paragraph") and passage.text.endswith("at length.")
    assert passage.line == 25


def test_words_far_from_the_chunk_are_shown_if_they_have_more_of_the_query() -> None:
    text = f"Our tokens are signed.\n\n{PROSE}Refresh tokens expire after thirty days.\n"
    passage = best_passage(text, query_terms("when do refresh tokens expire"), chunk=(0, 20))
    assert "thirty days" in passage.text


def test_of_equally_good_places_the_one_in_the_chunk_is_shown() -> None:
    text = f"Tokens expire at night.\n\n{PROSE}Tokens expire at noon.\n"
    terms = query_terms("tokens expire")
    assert "at night" in best_passage(text, terms).text
    assert "at noon" in best_passage(text, terms, chunk=(text.index("Tokens expire at noon"), len(text))).text


def test_the_chunk_decides_if_the_text_has_little_of_the_query() -> None:
    text = f"My car.\n\n{PROSE}## Motors\n\nAutomobiles burn petrol.\n"
    chunk = (text.index("## Motors"), len(text))
    weights = [WeightedTerm(one.term, 0.1 if one.term.text == "my" else 3.0) for one in query_terms("my vehicle fuel")]
    assert "petrol" in best_passage(text, weights, chunk=chunk).text


def test_a_search_by_meaning_alone_shows_a_part_of_its_chunk() -> None:
    text = f"Fuel prices and fuel taxes.\n\n{PROSE}Automobiles burn petrol.\n\n{PROSE}A car needs fuel.\n"
    chunk = (text.index("Automobiles"), len(text))
    passage = best_passage(text, query_terms("fuel taxes"), chunk=chunk, chunk_only=True)
    assert "A car needs fuel." in passage.text


def test_a_quoted_phrase_is_in_the_passage() -> None:
    text = f"The window slides; this rate of the limiter in the window of the proxy.\n\n{PROSE}A rate limiter.\n"
    terms = [WeightedTerm(term, 1.0) for term in parse_lex('proxy window slides "rate limiter"')]
    assert "A rate limiter." in best_passage(text, terms).text


def test_a_word_in_few_places_decides() -> None:
    text = "".join(f"The proposal for stage {n} was heard.\n\n{PROSE}" for n in range(5))
    text += f"A ponyfill for the proposal.\n\n{PROSE}"
    assert "ponyfill" in best_passage(text, query_terms("stage proposal ponyfill")).text


def test_words_of_a_web_address_do_not_choose_the_passage() -> None:
    text = f"![badge](https://example.com/pink-topaz/pink-topaz.svg?topaz=pink)\n\n{PROSE}Pink Topaz is a theme.\n"
    assert "is a theme" in best_passage(text, query_terms("pink topaz")).text


def test_a_heading_is_shown_with_the_text_after_it() -> None:
    text = f"# Notes\n\n{PROSE}## Refresh tokens\n\nThey expire after a month.\n\n## Next\n\n{PROSE}"
    passage = best_passage(text, query_terms("refresh tokens"))
    assert passage.text.startswith("## Refresh tokens\n\nThey expire after a month.")
    assert "## Next" not in passage.text


def test_front_matter_is_not_shown_for_words_that_the_body_has() -> None:
    text = f"---\naliases: [sliding limiter]\n---\n{PROSE}A limiter.\n"
    assert "A limiter." in best_passage(text, query_terms("sliding limiter")).text
    assert "aliases" in best_passage(text, query_terms("aliases sliding")).text


def test_a_text_without_a_match_is_shown_from_its_body() -> None:
    passage = best_passage("---\ntitle: A\n---\n\nFirst words.\n", query_terms("nothing"))
    assert passage.text == "First words."
    assert passage.line == 5


def test_fenced_code_is_shown_whole_or_without_its_marks() -> None:
    short = f"{PROSE}```sh\nvgextend group /dev/sdb\n```\n\n{PROSE}"
    assert "```sh\nvgextend group /dev/sdb\n```" in best_passage(short, query_terms("vgextend")).text
    lines = "\n".join(f"line {n} of the script" for n in range(60))
    long = f"{PROSE}```sh\n{lines}\nvgextend group\n{lines}\n```\n\n{PROSE}"
    passage = best_passage(long, query_terms("vgextend"))
    assert "vgextend group\n" in passage.text
    assert best_passage(f"## Scripts\n\n{long}", query_terms("scripts")).text.startswith("## Scripts\n\nThis")
    assert best_passage(long[len(PROSE) :], query_terms("sh")).text.startswith("line 0 of the script\n")
    assert "`" not in passage.text and "..." not in passage.text


def test_rows_of_a_table_are_whole_and_come_with_its_header_where_there_is_room() -> None:
    rows = "".join(f"| person {n} | {n * 7} |\n" for n in range(12))
    text = f"{PROSE}| Name | Age |\n| --- | --- |\n{rows}| Jack | 44 |\n\n{PROSE}"
    passage = best_passage(text, query_terms("jack age"))
    assert passage.text.startswith("| Name | Age |\n")
    assert "| Jack | 44 |" in passage.text
    assert all(line.startswith("|") and line.endswith("|") for line in passage.text.split("\n") if "|" in line)


def test_a_long_paragraph_is_cut_where_sentences_end() -> None:
    filler = "It goes on and on about other things. " * 30
    passage = best_passage(f"{filler}The tokens expire after a month. {filler}", query_terms("tokens expire"))
    assert "The tokens expire after a month." in passage.text
    assert passage.text.startswith("...It goes on") and passage.text.endswith("things....")
    assert len(passage.text) <= 500


def test_a_passage_knows_the_headings_above_it_without_the_title() -> None:
    text = f"# Guide\n\n## Install\n\n### Linux\n\n{PROSE}\n## Use\n\n### Search\n\nThe needle.\n\n## Next\n"
    assert best_passage(text, query_terms("needle"), title="Guide").heading_trail == ("Use", "Search")
    assert best_passage(text, query_terms("needle")).heading_trail == ("Guide", "Use", "Search")


@pytest.mark.parametrize(
    ("text", "query", "line"),
    [
        ("a\nb\nHe configured it.\n", "configuration", 3),
        ("concatenate\nthe cat\n", "cat", 2),
        ("前言\n\n连接数据库的方法\n", "数据库", 3),
        ("x\nUn café noir\n", "cafe", 2),
    ],
    ids=["an inflected word", "no part of another word", "pairs of Chinese", "a word with an accent"],
)
def test_the_line_that_matches(text: str, query: str, line: int) -> None:
    assert best_passage(text, query_terms(query)).line == line


@pytest.mark.parametrize(
    ("text", "chunk", "query"),
    [
        ("token here\n\nfiller\n\nsecond token\n", "second", "token"),
        ("# A\n\none\n\n## B\n\nautomobile engines\n", "## B", "car"),
    ],
    ids=["its word", "its start where it matched by meaning"],
)
def test_the_line_of_a_chunk_is(text: str, chunk: str, query: str) -> None:
    assert best_passage(text, query_terms(query), chunk=(text.index(chunk), len(text))).line == 5


def test_a_long_line_is_cut_around_the_match() -> None:
    text = "filler " * 200 + "needle " + "filler " * 200
    passage = best_passage(text, query_terms("needle"), max_chars=120)
    assert "needle" in passage.text
    assert len(passage.text) <= 120


def test_an_empty_document_has_an_empty_passage() -> None:
    passage = best_passage("", query_terms("x"))
    assert (passage.text, passage.start_line, passage.line) == ("", 1, 1)


@given(st.text(alphabet="ab \n\ré中ß", max_size=200), st.text(alphabet="ab é中", max_size=10), st.integers(10, 100))
def test_line_numbers_are_those_of_the_file(text: str, query: str, max_chars: int) -> None:
    passage = best_passage(text, query_terms(query), max_chars=max_chars)
    lines = text.split("\n")
    assert len(passage.text) <= max_chars
    assert 1 <= passage.start_line <= passage.line <= passage.end_line <= len(lines)
    assert passage.lines_before == passage.start_line - 1
    if "..." not in passage.text:
        shown = [line.removesuffix("\r") for line in lines[passage.start_line - 1 : passage.end_line]]
        assert passage.text.split("\n")[: len(shown)] == shown


SECTIONS = (
    "# Flat\n\nAbout the flat.\n\n## Rent\n\nThe rent is due on the first.\n\nIt is paid by standing order.\n\n"
    f"## Else\n\n{PROSE}\n## Deposit\n\nThe deposit was three months.\n\nIt comes back within a year.\n"
)


def test_the_passages_are_the_section_of_the_best_one_and_one_for_each_other_part() -> None:
    best, passages = choose_passages(SECTIONS, query_terms("rent and deposit"))
    assert best.text in "\n".join(one.text for one in passages)
    assert [one.text.split("\n")[0] for one in passages] == ["## Rent", "## Deposit"]
    assert "standing order" in passages[0].text and "within a year" in passages[1].text
    _, (alone,) = choose_passages(SECTIONS, query_terms("rent"))
    assert alone.text == "## Rent\n\nThe rent is due on the first.\n\nIt is paid by standing order."


def test_a_long_section_is_filled_as_far_as_there_is_room() -> None:
    text = f"## Long\n\n{PROSE}The limiter slides.\n\n{PROSE}"
    best, (filled,) = choose_passages(text, query_terms("limiter"), fill_chars=700)
    assert len(best.text) < len(filled.text) <= 700
    assert "The limiter slides." in filled.text


def test_a_short_note_is_shown_whole_over_its_headings_but_for_the_last_ones() -> None:
    text = "# Worktree\n\nSeveral branches.\n\n## Add\n\nworktree add\n\n## Remove\n\nworktree prune\n\n## Empty\n"
    _, (whole,) = choose_passages(text, query_terms("several branches"))
    assert whole.text == text.removesuffix("\n\n## Empty\n")


def test_the_chunk_has_a_passage_of_its_own_where_words_say_little() -> None:
    text = f"My car.\n\n{PROSE}Automobiles burn petrol.\n\n{PROSE}"
    chunk = (text.index("Automobiles"), text.index("petrol"))
    _, (best, meant) = choose_passages(text, query_terms("car motor fuel"), chunk=chunk)
    assert "My car." in best.text and "Automobiles burn petrol." in meant.text
    assert len(choose_passages(text, query_terms("my car"), chunk=chunk)[1]) == 1


def test_a_note_that_its_names_find_is_shown_from_its_body_where_that_begins_with_code() -> None:
    text = "---\ncreated: 2023-05-30\n---\n```scala\nval x = 1\n```\n"
    terms = query_terms("created")
    passage, passages = choose_passages(text, terms, matched=match_text(text, terms, before="created\n"))
    assert passage.text.startswith("```scala") and (passage.start_line, passage.end_line) == (4, 6)
    assert passages[0].text.startswith("```scala")


def test_a_note_that_its_names_find_is_shown_from_its_beginning() -> None:
    text = f"badge 1.0\n\n# Books read\n\nThe first of them.\n\n{PROSE}Of all books read in 2020 this is the last.\n"
    terms = query_terms("books read 2020")
    matched = match_text(text, terms, before="reading.md\nBooks read\n2020\n")
    assert best_passage(text, terms, matched=matched).text.startswith("# Books read\n\nThe first of them.")
    assert "the last" in best_passage(text, terms).text


def test_words_next_to_the_name_still_choose_the_passage() -> None:
    text = f"# Books read\n\nThe first of them.\n\n{PROSE}An oven.\n"
    terms = query_terms("books read 2020 oven")
    matched = match_text(text, terms, before="Books read\n2020\n")
    assert "oven" in best_passage(text, terms, matched=matched).text


@pytest.mark.parametrize(
    ("heading", "is_shown"),
    [
        *((name, True) for name in ("Conclusion/Resolution", "Summary", "Zusammenfassung", "結論")),
        ("Decision trees", False),
    ],
)
def test_the_summary_of_a_section_is_shown_with_a_place_in_it(heading: str, is_shown: bool) -> None:
    other = "## Tea\n\nTea is hot.\n\n### Conclusion\n\nWe buy tea.\n\n"
    text = f"# Minutes\n\n{other}## Rent\n\nThe rent is due.\n\n{PROSE}### {heading}\n\nWe pay it.\n\n{other}"
    shown = [one.text for one in choose_passages(text, query_terms("rent"))[1]]
    assert ("We pay it." in "".join(shown)) == is_shown and "We buy tea." not in "".join(shown)


def test_passages_of_a_hundred_thousand_headings_take_no_longer_than_their_lines() -> None:
    text = "# Conclusion\n" + "## a\n### Summary x\n" * 50_000 + "rent\n"
    begun = process_time()
    choose_passages(text, query_terms("rent"), chunk=(0, 20))
    assert process_time() - begun < 4


@given(
    st.lists(
        st.sampled_from(["# h", "## k", "rent due", "a deposit", "", "```", "- item rent", "| a | b |", "x" * 90])
    ),
    st.integers(20, 300),
)
def test_passages_are_disjoint_parts_of_the_text(lines: list[str], fill_chars: int) -> None:
    best, passages = choose_passages("\n".join(lines), query_terms("rent deposit"), max_chars=20, fill_chars=fill_chars)
    assert 1 <= len(passages) <= MAX_PARTS
    assert sum(one.start_line <= best.line <= one.end_line for one in passages) == 1
    for before, after in pairwise(sorted(passages, key=lambda one: one.start_line)):
        assert before.end_line < after.start_line
    for one in passages:
        assert len(one.text) <= max(fill_chars, 20)
        assert one.text.strip(".").strip() in "\n".join(lines)


@given(st.text(max_size=80), st.text(max_size=20), st.integers(0, 90), st.integers(0, 90))
def test_any_chunk_span_is_survived(text: str, query: str, start: int, length: int) -> None:
    best_passage(text, query_terms(query), chunk=(start, start + length))


def test_a_declaration_is_shown_rather_than_an_equally_good_use() -> None:
    text = "from door import unlock\n\nunlock(1)\n\n\ndef unlock(number):\n    return number\n"
    terms = query_terms("unlock")
    assert best_passage(text, terms, path="door.py").line == 6
    assert best_passage(text, terms).line == 1


FENCED = "```\ncode\nneedle code\n```"


@given(
    st.lists(
        st.sampled_from(
            ["# H", "## Needle", "a needle", "- item", "1. item", "| a | b |", FENCED, "", "> said", "x" * 90]
        ),
        max_size=40,
    ),
    st.integers(10, 200),
)
def test_a_passage_of_markdown_leaves_no_fence_open(blocks: list[str], max_chars: int) -> None:
    text = "\n".join(blocks)
    passage = best_passage(text, query_terms("needle"), max_chars=max_chars)
    assert len(passage.text) <= max_chars
    shown = passage.text.split("\n")
    assert shown.count("```") % 2 == 0
    if "..." not in passage.text:
        assert shown == text.split("\n")[passage.start_line - 1 : passage.end_line]
