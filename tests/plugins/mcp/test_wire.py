"""Records survive the way through JSON."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmd.app.searching import SearchRequest
from qmd.plugins.mcp.wire import Failure, from_json, to_json
from qmd.records import (
    Contribution,
    Explanation,
    Hit,
    LexicalTerm,
    MetadataFilter,
    Passage,
    Query,
    Scope,
    SearchResponse,
    StageTiming,
    StoredDocument,
    SubQuery,
)

VALUES = st.one_of(
    st.text(), st.integers(), st.booleans(), st.floats(allow_nan=False), st.lists(st.text(), max_size=3).map(tuple)
)
KEYS = st.one_of(st.text(), st.sampled_from(["Hit", "mapping", "SearchRequest"]))
DOCUMENTS = st.builds(
    StoredDocument,
    id=st.integers(),
    collection=st.text(),
    path=st.text(),
    title=st.text(),
    hash=st.text(),
    modified_at=st.text(),
    size=st.integers(),
    metadata=st.dictionaries(KEYS, VALUES, max_size=3),
)


@settings(max_examples=50)
@given(DOCUMENTS)
def test_documents_survive(document: StoredDocument) -> None:
    restored = from_json(to_json(document))
    assert restored == document
    assert isinstance(restored, StoredDocument)
    assert {k: type(v) for k, v in restored.metadata.items()} == {k: type(v) for k, v in document.metadata.items()}


def test_a_whole_response_survives() -> None:
    document = StoredDocument(1, "c", "p.md", "T", "ab" * 32, "2026-01-01T00:00:00Z", 3, {"tags": ("x", "y"), "n": 1})
    explanation = Explanation((Contribution("bm25", "lex", "q", None, 1.0, 2.0, 0.5),), 1, 0.5, None, 0.25, 0.125)
    hit = Hit(document, 0.5, Passage("text\nline", 3, 4, 3, 2, 0), None, "body", explanation, ("qmd://d/p.md",))
    query = Query("q", (SubQuery("lex", "q", 2),), "why", Scope(("c",), "p", (MetadataFilter("tag", "!=", "x"),)))
    response = SearchResponse(
        query,
        (hit,),
        "weak",
        ("careful",),
        (SubQuery("vec", "v"),),
        (("t", "r"),),
        (StageTiming("s", 1.5),),
        ("m",),
        (LexicalTerm("q", '"q"', required=True),),
    )
    assert from_json(to_json(response)) == response


def test_requests_failures_and_plain_text_survive_as_one_line() -> None:
    for said in (
        SearchRequest("two\nlines \ud800", (SubQuery("lex", "x"),), collections=("a",), expand=False, budget_ms=5),
        Failure("NotFoundError", "no index", None),
        "searching",
        # No collection at all is not the same as every collection.
        Scope(collections=()),
    ):
        line = to_json(said)
        assert from_json(line) == said
        assert line.count(b"\n") == 1


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"\xff",
        b"{}",
        b'{"Hit":[],"Scope":[]}',
        b'{"to_disk":["x"]}',
        b'{"Nothing":[]}',
        b'{"SubQuery":["lex"]}',
        b'{"SubQuery":["lex","x",1,2]}',
        b'{"SubQuery":5}',
        b'{"mapping":[[1]]}',
        b"[" * 100_000,
    ],
)
def test_lines_of_another_shape_are_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        from_json(line)


def test_only_data_travels() -> None:
    with pytest.raises(TypeError):
        to_json(Path("/x"))
