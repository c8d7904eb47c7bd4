"""Weight of terms inside some collections alone."""

from collections.abc import Sequence

import pytest

from qmd.records import Candidate, LexicalTerm, Scope
from qmd.store.sqlite import scoped_ranking
from qmd.store.sqlite.opening import open_reader
from qmd.store.sqlite.writer import SqliteWriter
from tests.store.conftest import MakeDocument

OWN = Scope(collections=("own",))
APPLE, PLUM = LexicalTerm("apple", '"apple"'), LexicalTerm("plum", '"plum"*')

TEXTS = {
    "a": "apple pie with a little sugar",
    "b": "apple apple tart",
    "c": "plums and one apple in a long list of other things that grow on trees in the garden",
    "d": "plum jam",
    "e": "bread",
    "f": "butter and cheese",
    "g": "salt, pepper and oil",
}


def fill(writer: SqliteWriter, make: MakeDocument, collection: str, times: int = 1) -> None:
    texts = {f"{path}{n}": text for n in range(times) for path, text in TEXTS.items()}
    writer.put_documents(collection, [make(path, text, title="apple") for path, text in texts.items()])


def scores(candidates: Sequence[Candidate]) -> list[float]:
    return [candidate.score for candidate in candidates]


def test_another_collection_does_not_change_the_scores(writer: SqliteWriter, make: MakeDocument) -> None:
    fill(writer, make, "own")
    alone = writer.search_lexical([APPLE, PLUM], 10, Scope())
    assert min(scores(alone)) > scoped_ranking.LEAST_IDF
    writer.put_documents("other", [make(f"o{n}", "plum apple " * n) for n in range(1, 30)])
    scoped = writer.search_lexical([APPLE, PLUM], 10, OWN)
    assert [candidate.document_id for candidate in scoped] == [candidate.document_id for candidate in alone]
    assert scores(scoped) == pytest.approx(scores(alone))


def test_what_was_counted_is_forgotten_when_the_index_changes(writer: SqliteWriter, make: MakeDocument) -> None:
    fill(writer, make, "own")
    fill(writer, make, "other")
    with open_reader(writer.status(None).path) as reader:
        assert reader.document_frequencies([PLUM], OWN) == writer.document_frequencies([PLUM], OWN) == [2]
        writer.put_documents("own", [make("new", "plum")])
        assert reader.document_frequencies([PLUM], OWN) == writer.document_frequencies([PLUM], OWN) == [3]


def test_lengths_of_more_than_one_byte_are_read(writer: SqliteWriter, make: MakeDocument) -> None:
    writer.put_documents("own", [make("long", "plum " * 20_000), make("short", "plum")])
    writer.put_documents("other", [make("x", "bread")])
    counted = scoped_ranking.statistics(writer.database, OWN)
    assert counted is not None
    assert counted.mean_tokens == (20_000 + 1 + 2) / 2
