"""Records survive the way through JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmd.records import (
    Contribution,
    Explanation,
    Hit,
    MetadataFilter,
    Passage,
    Query,
    Scope,
    SearchResponse,
    StageTiming,
    StoredDocument,
    SubQuery,
)
from qmd.retrieval.options import SearchOptions
from qmd.server.wire import WireError, from_wire, to_wire

VALUES = st.one_of(
    st.text(), st.integers(), st.booleans(), st.floats(allow_nan=False), st.lists(st.text(), max_size=3).map(tuple)
)
DOCUMENTS = st.builds(
    StoredDocument,
    id=st.integers(),
    collection=st.text(),
    path=st.text(),
    title=st.text(),
    hash=st.text(),
    modified_at=st.text(),
    size=st.integers(),
    metadata=st.dictionaries(st.text(), VALUES, max_size=3),
)


def round_trip(record: object) -> object:
    return from_wire(type(record), json.loads(json.dumps(to_wire(record))))


@settings(max_examples=50)
@given(DOCUMENTS)
def test_documents_survive(document: StoredDocument) -> None:
    restored = round_trip(document)
    assert restored == document
    assert isinstance(restored, StoredDocument)
    assert {k: type(v) for k, v in restored.metadata.items()} == {k: type(v) for k, v in document.metadata.items()}


def test_a_whole_response_survives() -> None:
    document = StoredDocument(1, "c", "p.md", "T", "ab" * 32, "2026-01-01T00:00:00Z", 3, {"tags": ("x", "y"), "n": 1})
    explanation = Explanation((Contribution("bm25", "lex", "q", None, 1.0, 2.0, 0.5),), 1, 0.5, None, 0.25, 0.125)
    hit = Hit(document, 0.5, Passage("text\nline", 3, 4, 3, 2, 0), None, "body", explanation)
    query = Query("q", (SubQuery("lex", "q", 2),), "why", Scope(("c",), "p", (MetadataFilter("tag", "!=", "x"),)))
    response = SearchResponse(
        query, (hit,), "weak", ("careful",), (SubQuery("vec", "v"),), (("t", "r"),), (StageTiming("s", 1.5),), ("m",)
    )
    assert round_trip(response) == response


def test_options_and_an_empty_scope_survive() -> None:
    assert round_trip(SearchOptions(mode="dense", expand=None, budget_ms=5)) == SearchOptions(
        mode="dense", expand=None, budget_ms=5
    )
    # No collection at all is not the same as every collection.
    assert round_trip(Scope(collections=())) == Scope(collections=())


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (SubQuery, {"kind": "zip", "text": "x", "line": 1}),
        (SubQuery, {"kind": "lex"}),
        (SubQuery, {"kind": "lex", "text": "x", "line": 1, "more": 2}),
        (SubQuery, []),
        (StageTiming, {"stage": "x", "elapsed_ms": "1"}),
        (StageTiming, {"stage": 1, "elapsed_ms": 1.0}),
    ],
)
def test_messages_of_another_shape_are_refused(kind: type, value: object) -> None:
    with pytest.raises(WireError):
        from_wire(kind, value)  # type: ignore[arg-type]


def test_only_data_travels() -> None:
    assert to_wire(Path("/x")) == "/x"
    with pytest.raises(WireError):
        to_wire(object())
