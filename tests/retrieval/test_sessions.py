"""Places where the next days of a meeting go on with the item of a hit."""

import time

import pytest

from qmd.inference.base import Engines
from qmd.records import Hit, Mention
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import parse_query
from qmd.retrieval.request import SearchRequest
from tests.note_index import NoteIndex

FIRST = "# 9 March\n\n## Roof repair\n\nTwo offers for tiles came in.\n\n## Fire drill\n\nIn the yard.\n"
NEXT = "# 10 March\n\n## Choir\n\nSings.\n\n## 4.ii.b Roof repair (continued from Monday)\n\nAnn asks.\n"
NEXT += "\n### Conclusion\n\nSlate, by May.\n"


def offers(index: NoteIndex, query: str = "offers for tiles") -> list[Mention | None]:
    """Return the places that the hits of a search by words name."""
    request = SearchRequest(query, mode="lexical")
    hits: tuple[Hit, ...] = search(index, Engines(), parse_query(query), request).hits
    return [hit.continues for hit in hits]


def minutes(first: str = FIRST, following: str = NEXT, path: str = "meetings/2021-03/mar-10.md") -> NoteIndex:
    index = NoteIndex()
    index.add("meetings/2021-03/mar-9.md", first)
    index.add(path, following)
    return index


def test_a_hit_names_the_heading_where_the_next_session_goes_on_and_its_conclusion() -> None:
    (found, *_) = offers(minutes())
    assert found is not None
    assert (found.document.path, found.line) == ("meetings/2021-03/mar-10.md", 7)
    assert found.text == "4.ii.b Roof repair (continued from Monday): Slate, by May."


def test_a_shorter_heading_counts_also_among_few() -> None:
    (found, *_) = offers(
        minutes(FIRST.replace("Roof repair", "Roof repair of the boathouse"), "# X\n\n## Roof repair\n")
    )
    assert found is not None and found.line == 3


def test_a_hit_in_a_conclusion_goes_on_with_the_item_around_it() -> None:
    (found, *_) = offers(minutes(FIRST.replace("\n\nTwo", "\n\n### Conclusion\n\nTwo")))
    assert found is not None and found.line == 7


def test_the_conclusion_of_another_item_is_not_quoted() -> None:
    (found, *_) = offers(minutes(following=NEXT.replace("### Conclusion", "## Conclusion")))
    assert found is not None and found.text == "4.ii.b Roof repair (continued from Monday)"


def test_the_nearest_session_is_named_also_in_the_folder_of_the_next_month() -> None:
    index = NoteIndex()
    index.add("meetings/2021-03/march-30.md", FIRST)
    index.add("meetings/2021-04/april-1.md", NEXT)
    (found, *_) = offers(index)
    assert found is not None and found.document.path == "meetings/2021-04/april-1.md"
    index.add("meetings/2021-04/march-31.md", NEXT)
    (found, *_) = offers(index)
    assert found is not None and found.document.path == "meetings/2021-04/march-31.md"


@pytest.mark.parametrize(
    ("following", "path"),
    [
        (NEXT.replace("Roof", "Fence"), "meetings/2021-03/mar-10.md"),
        (NEXT, "meetings/2021-05/may-10.md"),
        (NEXT, "meetings/2021-03/mar-8.md"),
        (NEXT, "board/2021-03/mar-10.md"),
        ("# Roof repair\n\nA title.\n", "meetings/2021-03/mar-10.md"),
    ],
)
def test_another_item_meeting_day_folder_or_a_title_is_no_continuation(following: str, path: str) -> None:
    assert set(offers(minutes(following=following, path=path))) == {None}


def test_a_note_that_is_not_named_by_its_day_is_no_session() -> None:
    index = NoteIndex()
    for number, text in enumerate((FIRST, NEXT)):
        index.add(f"notes/{'ab'[number]}.md", f"---\ndate: 2021-03-{9 + number:02}\n---\n{text}")
    assert set(offers(index)) == {None}


def test_a_heading_that_recurs_in_a_diary_is_no_item() -> None:
    index = NoteIndex()
    for day in range(1, 29):
        index.add(f"diary/2021-02-{day:02}.md", f"# Day\n\n## Bakery\n\n{'Two offers for tiles.' * (day == 9)} Rye.\n")
    assert set(offers(index)) == {None}


def test_a_less_relevant_hit_names_nothing() -> None:
    index = minutes(FIRST.replace("Two offers for tiles came in", "Some tiles"))
    index.add("offers.md", "# Offers for tiles\n\nThe offers for tiles.\n")
    assert set(offers(index)) == {None}


@pytest.mark.parametrize(
    "heading",
    [
        'Say "roof" AND (OR *',
        "(" * 60_000,
        "[part " * 20_000,
        "x" * 1_000_000,
        "\x1b]0;a\x07 \u202e NEAR(",
        "1." * 9_000,
    ],
)
def test_any_heading_is_compared_quickly(heading: str) -> None:
    started = time.process_time()
    offers(minutes(f"# M\n\n## {heading}\n\nTwo offers for tiles.\n", f"# M\n\n## {heading} (continued)\n"))
    assert time.process_time() - started < 5


def test_only_the_first_headings_of_sessions_of_usual_length_are_read() -> None:
    fences = "".join(f"## Fence {number}\n\n" for number in range(20_000))
    assert set(offers(minutes(following=f"# M\n\n{fences}## Roof repair\n"))) == {None}
    assert set(offers(minutes(following=NEXT + "Slate. " * 200_000))) == {None}
