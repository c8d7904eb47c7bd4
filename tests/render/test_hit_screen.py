"""Search results on a terminal."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from qmd.analysis.query import analyze_query
from qmd.records import (
    Contribution,
    Explanation,
    Hit,
    Mention,
    Passage,
    Query,
    SearchResponse,
    StoredDocument,
    Verdict,
)
from qmd.render.drawing import Screen
from qmd.render.formats import HitOptions
from qmd.render.hit_screen import draw_hits

PLAIN = Screen(width=80, colours=None)
COLOURED = Screen(width=80, colours="256")
DOCUMENT = StoredDocument(
    1, "notes", "Work/Pricing.md", "Pricing", "e64a82" + "0" * 58, "2026-01-01T00:00:00.000Z", 99, {}, "2025-03-14"
)
TEXT = """We chose **per-seat pricing** after the [interviews](https://example.org), because `usage` bills
were hard to explain, and nobody likes a bill that cannot be explained.

## Plans

| Plan | Price | What you get |
|------|------:|--------------|
| Free | 0 | one person |
| Team | 8 | shared vaults |
"""
HIT = Hit(DOCUMENT, 0.9, Passage(TEXT, 5, 13, 5, 4, 20, ("Decision",)), "A small firm.")
SEQUENCE = re.compile(r"\x1b\[[0-9;]*m|\x1b\]8;;[^\x07]*\x07")


def response(*hits: Hit, query: str = "how are bills explained", verdict: Verdict = "good") -> SearchResponse:
    return SearchResponse(Query(query), hits, verdict, terms=analyze_query(query))


def shown(*hits: Hit, screen: Screen = PLAIN, query: str = "how are bills explained", **options: object) -> str:
    return draw_hits(response(*hits, query=query), HitOptions(**options), screen)  # type: ignore[arg-type]


def test_a_hit_is_its_name_its_place_and_its_passage() -> None:
    assert shown(HIT) == (
        "1  Pricing › Decision                                               ▰▰▰▰▱ strong\n"
        "   notes/Work/Pricing.md:5  #e64a82  2025-03-14\n"
        "   A small firm.\n"
        "   We chose per-seat pricing after the interviews, because usage bills were hard\n"
        "   to explain, and nobody likes a bill that cannot be explained.\n"
    )


def test_words_are_marked_in_the_form_that_the_passage_has_and_never_inside_another() -> None:
    drawn = shown(replace(HIT, passage=replace(HIT.passage, text="It shows how bills explain.")), screen=COLOURED)
    assert "It shows how \x1b[1;35mbills\x1b[0m \x1b[1;35mexplain\x1b[0m.\n" in drawn


def test_without_colours_there_is_no_sequence_and_the_same_text() -> None:
    links = {DOCUMENT.uri: "file:///notes/Pricing.md"}
    assert "\x1b" not in shown(HIT, links=links)
    assert SEQUENCE.sub("", shown(HIT, screen=COLOURED, links=links)) == shown(HIT)


def test_the_place_opens_the_note() -> None:
    drawn = shown(HIT, screen=COLOURED, links={DOCUMENT.uri: "obsidian://open?path=%2Fa%20b\x07.md"})
    assert "\x1b]8;;obsidian://open?path=%2Fa%20b%07.md\x07\x1b[2mnotes/Work/Pricing.md:5\x1b[0m\x1b]8;;\x07" in drawn


def test_a_table_is_shown_in_columns_below_its_header() -> None:
    hit = replace(HIT, passage=replace(HIT.passage, line=13), context=None)
    assert shown(hit).splitlines()[2:] == [
        "   Plans",
        "   Plan  Price  What you get",
        "   Free      0  one person",
        "   Team      8  shared vaults",
    ]


def test_a_table_wider_than_the_screen_is_cut_inside_its_widest_column() -> None:
    table = f"| a | b |\n|---|---|\n| one | {'word ' * 40}|\n"
    passage = replace(HIT.passage, text=table, start_line=1, line=3)
    *_, last = shown(replace(HIT, passage=passage, context=None)).splitlines()
    assert (last[:8], last[-1], cell_len(last) <= 80) == ("   one  ", "…", True)


def test_code_stands_as_it_is_and_is_never_wrapped() -> None:
    fence = "```python\nif a:\n    return " + "x" * 200 + "\n```\n"
    lines = shown(replace(HIT, passage=replace(HIT.passage, text=fence, line=6), context=None)).splitlines()
    assert lines[2] == "   if a:"
    assert lines[3].startswith("       return xxx")
    assert lines[3].endswith("x…")
    assert len(lines) == 4


def test_code_without_its_fence_keeps_what_looks_like_markdown() -> None:
    passage = replace(HIT.passage, text="    # a comment\n      x = y * z * 2", is_code=True, start_line=5, line=5)
    assert shown(replace(HIT, passage=passage, context=None)).splitlines()[2:] == [
        "   # a comment",
        "     x = y * z * 2",
    ]


def test_the_heading_above_a_passage_is_told_once() -> None:
    passage = replace(HIT.passage, text="## Decision\n\nWe chose seats.", line=5)
    assert shown(replace(HIT, passage=passage, context=None)).splitlines()[2:] == ["   We chose seats."]


def test_a_title_of_hidden_characters_is_shown_once() -> None:
    hit = replace(HIT, document=replace(DOCUMENT, title="Evil \x1b[31m \u202eone"), context=None)
    drawn = shown(replace(hit, passage=Passage("# Evil \x1b[31m \u202eone\n\ntext", 1, 3, 3, 0, 0)))
    assert drawn.count("Evil \\x1b[31m \\u202eone") == 1 and "   text\n" in drawn


def test_items_of_a_list_have_a_bullet_and_hang() -> None:
    text = "- [x] tell " + "everybody " * 10 + "\n- [ ] change it\n  - below\n"
    rows = shown(replace(HIT, passage=replace(HIT.passage, text=text), context=None)).splitlines()[2:]
    assert rows[0].startswith("   ☑ tell everybody")
    assert rows[1].startswith("     everybody")
    assert rows[2:] == ["   ☐ change it", "     • below"]


def test_five_hits_of_a_long_passage_fit_forty_rows_at_eighty_columns() -> None:
    long = Passage("word " * 100, 1, 1, 1, 0, 0, ("One", "Two"))
    drawn = shown(*[replace(HIT, passage=long)] * 5)
    assert drawn.count("\n") <= 38
    assert drawn.count("A small firm.") == 1
    assert drawn.count("word …\n") == 5


def test_a_cut_passage_shows_the_part_with_the_words() -> None:
    text = "nothing " * 80 + "bills are here " + "nothing " * 80
    drawn = shown(replace(HIT, passage=replace(HIT.passage, text=text)))
    assert "bills are" in drawn
    assert "   … nothing" in drawn
    assert drawn.endswith("nothing …\n")
    assert all(cell_len(line) <= 80 for line in drawn.splitlines())


def test_a_note_without_a_title_is_called_by_its_file() -> None:
    assert shown(replace(HIT, document=replace(DOCUMENT, title=" "))).startswith("1  Pricing › Decision")


def test_a_long_path_keeps_its_ends() -> None:
    far = replace(DOCUMENT, path="deep/" * 30 + "Pricing.md")
    line = shown(replace(HIT, document=far)).splitlines()[1]
    assert line.startswith("   notes/deep/")
    assert line.endswith("deep/Pricing.md:5  #e64a82  2025-03-14")
    assert cell_len(line) == 80


@pytest.mark.parametrize(
    ("relevance", "word"), [(1.0, "▰▰▰▰▰ strong"), (0.75, "strong"), (0.74, "likely"), (0.5, "likely"), (0.49, "weak")]
)
def test_relevance_is_a_bar_and_a_word(relevance: float, word: str) -> None:
    assert shown(replace(HIT, relevance=relevance)).splitlines()[0].endswith(word)


def test_a_list_by_date_has_no_relevance() -> None:
    listed = SearchResponse(Query(""), (replace(HIT, relevance=1.0),), "good")
    assert draw_hits(listed, HitOptions(), PLAIN).splitlines()[0] == "1  Pricing › Decision"


def test_a_table_of_a_thousand_columns_and_one_of_endless_cells_are_drawn_at_once() -> None:
    for table in ("|" + " x |" * 1_000, f"| {'x' * 3_900} | {'y ' * 40} |"):
        body = replace(HIT, body=f"{table}\n{table}\n", context=None)
        assert all(cell_len(line) <= 80 for line in shown(body, full=True).splitlines())


def test_copies_and_what_another_note_says_take_a_line_each() -> None:
    mention = Mention(replace(DOCUMENT, path="Other.md"), 7, "see [[Pricing]] for the bills")
    rows = shown(replace(HIT, context=None, mention=mention, also_in=("qmd://old/a.md", "qmd://b/c.md"))).splitlines()
    assert rows[2:] == ["   also in old/a.md, b/c.md", "   notes/Other.md:7 mentions it: see Pricing for the bills"]


def test_line_numbers_are_those_of_the_file() -> None:
    rows = shown(replace(HIT, context=None), line_numbers=True).splitlines()
    assert rows[2].startswith("    5  We chose **per-seat pricing** after")
    assert rows[3].startswith("       ")
    assert "    8  ## Plans" in rows


def test_full_shows_the_whole_note() -> None:
    hit = replace(HIT, body="# Pricing\n\n" + "\n\n".join(f"Paragraph {n}." for n in range(30)))
    drawn = shown(hit, full=True)
    assert "   Paragraph 0.\n" in drawn
    assert drawn.endswith("   Paragraph 29.\n")


def test_paths_on_disk_have_no_docid_beside_them() -> None:
    assert shown(HIT, disk_paths={DOCUMENT.uri: "./Work/Pricing.md"}).splitlines()[1] == (
        "   ./Work/Pricing.md:5  2025-03-14"
    )


def test_a_list_of_weak_hits_says_so_first() -> None:
    answer = replace(response(replace(HIT, relevance=0.3), verdict="weak"), models=("some model",))
    drawn = draw_hits(answer, HitOptions(), PLAIN)
    first, blank, second = drawn.splitlines()[:3]
    assert first.endswith(".")
    assert (blank, second[:10]) == ("", "1  Pricing")


def test_the_address_of_a_hit_keeps_every_blank_of_a_name() -> None:
    document = replace(DOCUMENT, path="two  blanks\n.md")
    assert r"notes/two  blanks .md:5" in shown(replace(HIT, document=document))


def test_where_nothing_matches_well_the_closest_two_are_shown_and_a_command() -> None:
    answer = response(*[replace(HIT, relevance=0.1)] * 3, query="bills of zygotes", verdict="none")
    drawn = draw_hits(answer, HitOptions(next_step=("qmd query x --all", "show every hit")), PLAIN).splitlines()
    assert drawn[:4] == [
        "No good match found. The closest:",
        "",
        "1  Pricing › Decision                                               ▰▱▱▱▱ weak",
        "   notes/Work/Pricing.md:5  #e64a82  2025-03-14",
    ]
    assert [line[0] for line in drawn if line[:1].isdigit()] == ["1", "2"]
    assert drawn[-2:] == ["", "Next: qmd query x --all  show every hit"]
    assert "3  Pricing" in draw_hits(answer, HitOptions(shows_all=True), PLAIN)
    assert draw_hits(response(verdict="none"), HitOptions(), PLAIN) == "No results found.\n"


def test_what_nothing_speaks_for_is_one_line_below_the_answers() -> None:
    weak = [replace(HIT, relevance=relevance) for relevance in (0.02, 0.01)]
    drawn = shown(HIT, replace(HIT, relevance=0.3), *weak)
    assert drawn.endswith("\n\n2 weaker matches, best 2 % (--all)\n")
    assert [line[0] for line in drawn.splitlines() if re.match(r"\d  ", line)] == ["1", "2"]
    assert shown(HIT, weak[0]).endswith("\n1 weaker match, best 2 % (--all)\n")
    assert "4  Pricing" in shown(HIT, HIT, *weak, shows_all=True)


@pytest.mark.parametrize(
    "changed",
    [{"verdict": "weak"}, {"terms": ()}, {"query": Query("bills", sort="date")}],
    ids=["nothing is strong", "no words", "by date"],
)
def test_nothing_is_folded_where_no_hit_is_better_or_the_order_is_another(changed: dict[str, Any]) -> None:
    answer = replace(response(HIT, replace(HIT, relevance=0.02)), **changed)
    assert "2  Pricing" in draw_hits(answer, HitOptions(), PLAIN)


def test_explain_draws_one_sentence_and_with_all_figures_the_way_of_a_hit() -> None:
    parts = (
        Contribution("bm25", "original", "q", 3, 6.44, 0.5, 1.85),
        Contribution("dense", "original", "q", None, 0.0, 0.5, -0.22),
        Contribution("name", "title", "q", None, 1.0, 35.0, 35.0),
    )
    why = Explanation(parts, 1, 36.63, 0.5, 37.1, 0.9, 1, 0.9, {"q": "title"}, True)
    answer = response(replace(HIT, context=None, explanation=why))
    sentence = [
        "   │ first because the query is its title and the word is in its title, although",
        "   │ it is not among the nearest by meaning; 90 % because of its name",
    ]
    assert draw_hits(answer, HitOptions(explain=True), PLAIN).splitlines()[4:] == sentence
    drawn = draw_hits(answer, HitOptions(explain=True, explain_full=True), PLAIN)
    assert drawn.splitlines()[4:] == [
        *sentence,
        "   │ words           rank 3    score   6.44   +1.85  q",
        "   │ meaning         not in this list         -0.22  q",
        "   │ name            title                   +35.00  q",
        "   │ fused 36.63, rank 1 · reranker 0.50 → 37.10 · relevance 90%",
    ]


def test_chinese_lines_are_filled_and_do_not_begin_with_a_full_stop() -> None:
    text = "发布之前，请按照下面的清单逐项检查，确认没有遗漏。" * 8
    hit = replace(HIT, passage=replace(HIT.passage, text=text), context=None)
    rows = shown(hit, query="发布检查", screen=COLOURED).splitlines()[2:]
    widths = [cell_len(SEQUENCE.sub("", row)) for row in rows]
    assert all(76 <= width <= 80 for width in widths[:-1])
    assert not [row for row in rows if SEQUENCE.sub("", row).strip()[0] in "，。"]
    assert "\x1b[1;35m发布\x1b[0m之前" in rows[0]


ANY_TEXT = st.text(
    alphabet=st.one_of(
        st.sampled_from("a b|#-`*[]()>\n\t发布。🎉👨‍👩‍👧é\u0301\u202e\x1b\x9b\u05e2\u200b{}!x_~"), st.characters()
    ),
    max_size=300,
)


@settings(max_examples=150, deadline=None)
@given(text=ANY_TEXT, title=ANY_TEXT, path=ANY_TEXT, width=st.sampled_from((40, 80, 200)), numbered=st.booleans())
def test_whatever_a_note_holds_no_line_is_wider_than_the_screen(
    text: str, title: str, path: str, width: int, numbered: bool
) -> None:
    document = replace(DOCUMENT, title=title, path=f"{path}.md")
    hit = Hit(document, 0.6, Passage(text, 1, text.count("\n") + 1, 1, 0, 0, (title,)), title or None, text)
    for full in (False, True):
        drawn = shown(hit, screen=Screen(width=width, colours=None), query="a 发布", full=full, line_numbers=numbered)
        assert drawn.endswith("\n")
        assert all(cell_len(line) <= width for line in drawn.split("\n"))
        assert not set("\x1b\x9b\u202e") & set(drawn)
