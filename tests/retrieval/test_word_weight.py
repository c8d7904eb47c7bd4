"""The weight of words follows what they find in one passage."""

from collections.abc import Sequence

import pytest

from qmd.records import SearchResponse
from qmd.retrieval.fusion import INFLUENCES
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import parse_query
from qmd.retrieval.request import Mode, SearchRequest
from tests import fakes
from tests.note_index import NoteIndex, paths

EMBEDDER = fakes.HashingEmbedder(synonyms={"eatable": "ripe", "fruits": "tomatoes", "scarlet": "red"})
SHARE = INFLUENCES["dense"].value
APART = "Nobody objected and the next point was taken. " * 12


def notes(reader: NoteIndex) -> NoteIndex:
    reader.add("tomatoes.md", "# Summer\n\nTomatoes turn ripe and red late in the year, after weeks of sun.\n")
    reader.add("minutes.md", f"# Scarlet\n\nMinutes.\n{APART}\nFruits for lunch, fruits.\n{APART}\nAn eatable cake.\n")
    reader.add("salad.md", "# Salad\n\nRed peppers, ripe and hot.\n")
    for name in ("cooking", "travel", "music", "chess", "sewing"):
        reader.add(f"{name}.md", f"# About {name}\n\nA few lines about {name} for later.\n")
    return reader


def ask(
    reader: NoteIndex, text: str, embedder: fakes.HashingEmbedder = EMBEDDER, mode: Mode = "hybrid"
) -> SearchResponse:
    request = SearchRequest(mode=mode, explain=True, rerank=False)
    return search(reader, fakes.fake_engines(embedder=embedder), parse_query(text), request)


def vector_weight(answer: SearchResponse) -> float:
    found = [hit.explanation.contributions for hit in answer.hits if hit.explanation]
    return max(part.weight for parts in found for part in parts if part.source == "dense")


def test_words_that_meet_in_one_passage_weigh_as_much_as_their_share() -> None:
    assert vector_weight(ask(notes(NoteIndex(EMBEDDER)), "ripe red tomatoes")) == SHARE


def test_words_that_never_meet_leave_weight_to_the_vectors() -> None:
    assert SHARE < vector_weight(ask(notes(NoteIndex(EMBEDDER)), "scarlet fruits eatable")) < 1


def test_words_that_no_note_contains_count_as_not_found() -> None:
    reader = notes(NoteIndex(EMBEDDER))
    known, unknown = (vector_weight(ask(reader, text)) for text in ("ripe red", "ripe red zzyzx qwrtp vbnmk"))
    assert known == SHARE < unknown


def test_vectors_weigh_no_more_than_the_model_is_trusted() -> None:
    certain = vector_weight(ask(notes(NoteIndex(EMBEDDER)), "scarlet fruits eatable"))
    doubted = fakes.HashingEmbedder(trust=0.5, synonyms=EMBEDDER.synonyms)
    assert vector_weight(ask(notes(NoteIndex(doubted)), "scarlet fruits eatable", doubted)) == pytest.approx(
        0.5 * certain
    )


def test_a_reworded_question_whose_words_are_scattered_finds_the_note_by_its_meaning() -> None:
    reader, question = notes(NoteIndex(EMBEDDER)), "when are scarlet fruits eatable"
    assert paths(ask(reader, question, mode="lexical"))[0] == "minutes.md"
    assert paths(ask(reader, question))[0] == "tomatoes.md"


class RecordingIndex(NoteIndex):
    """An index that records the hashes of all texts that are read."""

    read: tuple[str, ...] = ()

    def texts(self, hashes: Sequence[str]) -> dict[str, str]:
        self.read += (*hashes,)
        return super().texts(hashes)


@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
def test_a_text_is_read_once_for_the_weight_and_the_passage(mode: Mode) -> None:
    reader = RecordingIndex(EMBEDDER)
    notes(reader)
    reader.read = ()
    assert ask(reader, "how do scarlet fruits become eatable in summer", mode=mode).hits
    assert len(reader.read) == len(set(reader.read)) > 0
