"""Rows of a search, as text and as objects, from records."""

import json

import pytest
from msgspec.structs import replace

from qmd.analysis.tokens import count_tokens
from qmd.plugins.mcp.rows import EMPTY_TOKENS, STRUCTURED_TOKENS, TEXT_TOKENS, answer_object, results_text
from qmd.records import Hit, Mention, Passage, Query, SearchResponse, StoredDocument, Verdict

LINES = ["# Ovens", "", "## Repair", "The seal was replaced.", "", "A thermostat costs 180 euro."]


def make_hit(number: int, lines: list[str] = LINES, title: str = "Ovens", trail: tuple[str, ...] = ("Repair",)) -> Hit:
    document = StoredDocument(number, "notes", f"work/oven-{number}.md", title, f"{number:064x}", "2026-01-01", 100)
    best = Passage(lines[3], 4, 4, 4, 3, len(lines) - 4, trail)
    whole = Passage("\n".join(lines), 1, len(lines), 4, 0, 0, trail)
    return Hit(document, 0.9 / number, best, "About work", passages=(whole, Passage("Last line.", 90, 90, 90, 89, 0)))


def answer(hits: list[Hit], verdict: Verdict = "good") -> SearchResponse:
    return SearchResponse(Query("oven"), tuple(hits), verdict)


def test_a_row_names_its_note_once_and_repeats_neither_headings_nor_context() -> None:
    assert results_text(answer([make_hit(1), make_hit(2)]), "oven") == (
        'Found 2 results for "oven":\n'
        "#000000 90% notes/work/oven-1.md:1-6 › Ovens › Repair\n"
        "Context: About work\n"
        "4: The seal was replaced.\n"
        "6: A thermostat costs 180 euro.\n"
        "…\n"
        "90: Last line.\n"
        "#000000 45% notes/work/oven-2.md:1-6 › Ovens › Repair\n"
        "4: The seal was replaced.\n"
        "6: A thermostat costs 180 euro.\n"
        "…\n"
        "90: Last line."
    )


def test_a_title_that_is_the_name_of_the_file_is_not_said_again() -> None:
    text = results_text(answer([make_hit(1, title="OVEN-1", trail=("Oven-1!", "Repair"))]), "oven")
    assert "notes/work/oven-1.md:1-6 › Repair\n" in text


@pytest.mark.parametrize(
    "line", ["word " * 200, "漢字" * 500, "| a | 1.25 | ~~x~~ |" * 50], ids=["prose", "cjk", "rows"]
)
@pytest.mark.parametrize("verdict", ["good", "none"])
def test_ten_long_hits_stay_within_their_room(line: str, verdict: Verdict) -> None:
    response = answer([make_hit(number, [line] * 6) for number in range(1, 11)], verdict)
    text, content = results_text(response, "oven"), answer_object(response)
    written = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    is_none = verdict == "none"
    assert count_tokens(text) <= (EMPTY_TOKENS if is_none else TEXT_TOKENS) <= 1_015  # 965 of o200k
    assert count_tokens(written) <= (EMPTY_TOKENS if is_none else STRUCTURED_TOKENS) <= 1_200  # 1,140 of o200k
    assert len(content["results"]) == text.count("% notes/") == (2 if is_none else 10)


def test_the_next_sessions_of_three_hits_take_tokens_from_passages_only() -> None:
    hits = [make_hit(number, ["word " * 200] * 6) for number in range(1, 11)]
    place = Mention(hits[9].document, 12, "漢字 1.25 " * 500)
    response = answer([*(replace(one, continues=place) for one in hits[:3]), *hits[3:]])
    text, content = results_text(response, "oven"), answer_object(response)
    assert count_tokens(text) <= TEXT_TOKENS
    assert count_tokens(json.dumps(content, ensure_ascii=False, separators=(",", ":"))) <= STRUCTURED_TOKENS
    assert text.count("% notes/") == len(content["results"]) == 10
    assert text.count("\ncontinues: ") == sum("continues" in row for row in content["results"]) == 3


def test_the_first_hit_is_shown_before_others_and_a_row_without_room_says_where_it_is() -> None:
    response = answer([make_hit(number, ["word " * 60] * 6) for number in range(1, 11)])
    text, rows = results_text(response, "oven"), answer_object(response)["results"]
    assert text.index("90: Last line.") < text.index("#000000 45%")
    assert text.split("\n")[-1] == "#000000 9% notes/work/oven-10.md:4 › Ovens › Repair"
    assert rows[0]["snippet"].endswith("90: Last line.")
    assert (rows[-1]["snippet"], rows[-1]["start_line"]) == ("Repair", 4)


def test_a_long_query_is_not_repeated_whole() -> None:
    assert len(results_text(answer([make_hit(1)]), "x" * 16_000)) < 500
