"""BM25 search: operators, scope before the cut, pruning, spelling suggestions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qmd.records import LexicalTerm, MetadataFilter, Scope
from qmd.store.records import NewDocument
from qmd.store.sqlite.index import SqliteWriter
from qmd.store.sqlite.lexical import PRUNE_FROM_DOCUMENTS, prune_common_terms

MakeDocument = Callable[..., NewDocument]


def word(text: str, *, required: bool = False, excluded: bool = False) -> LexicalTerm:
    return LexicalTerm(text, f'"{text}"', required=required, excluded=excluded)


def paths(writer: SqliteWriter, terms: list[LexicalTerm], k: int = 10, scope: Scope = Scope()) -> list[str]:
    candidates = writer.search_lexical(terms, k, scope)
    stored = writer.documents([candidate.document_id for candidate in candidates])
    return [stored[candidate.document_id].path for candidate in candidates]


def test_optional_terms_are_or_ed_and_more_matches_rank_higher(
    writer: SqliteWriter, make_document: MakeDocument
) -> None:
    filler = [make_document(f"f{n}", f"filler {n}") for n in range(6)]
    writer.put_documents("n", [make_document("one", "apple"), make_document("both", "apple banana"), *filler])
    assert paths(writer, [word("apple"), word("banana")]) == ["both", "one"]
    scores = [candidate.score for candidate in writer.search_lexical([word("apple")], 10, Scope())]
    assert all(score > 0 for score in scores)


def test_a_month_without_a_day_lies_in_its_month_and_on_no_day(
    writer: SqliteWriter, make_document: MakeDocument
) -> None:
    writer.put_documents("n", [make_document("month", "apple", date="2024-02"), make_document("x", "apple")])
    spans = {
        ("after", "2024-02"): ["month", "x"],
        ("after", "2024-02-15"): ["month", "x"],
        ("after", "2024-03"): ["x"],
        ("before", "2024-02"): [],
        ("before", "2024-02-15"): ["month"],
        ("on", "2024-02"): ["month"],
        ("on", "2024-02-01/2024-02-29"): ["month"],
        ("on", "2024-02-01"): [],
    }
    for (field, value), expected in spans.items():
        scope = Scope(filters=(MetadataFilter(field, "=", value),))
        assert sorted(paths(writer, [word("apple")], scope=scope)) == expected, (field, value)


def test_a_tag_holds_the_tags_nested_in_it(writer: SqliteWriter, make_document: MakeDocument) -> None:
    documents = [
        make_document("a", "apple", tags=["work/strategy"]),
        make_document("b", "apple b", tags=["x", "#work/plans/2026"]),
        make_document("c", "apple c", tag="Work"),
        make_document("d", "apple d", tags=["workshop"]),
    ]
    writer.put_documents("n", documents)
    for value, expected in {"work": "abc", "#work/": "abc", "work/plans": "b", "strategy": "", "works": ""}.items():
        scope = Scope(filters=(MetadataFilter("tag", "=", value),))
        assert "".join(sorted(paths(writer, [word("apple")], scope=scope))) == expected, value


@pytest.mark.parametrize(
    ("field", "op", "value", "expected"),
    [
        ("tag", "=", "Work", ["a"]),
        ("tag", "=", "#work", ["a"]),
        ("tag", "!=", "work", ["b", "c"]),
        ("title", "=", "ÜBER", ["a"]),
        ("path", "=", "[bc]", ["b", "c"]),
        ("path", "=", "b", ["b"]),
        ("after", "=", "2025-03", ["b", "c"]),
        ("before", "=", "2025-03", ["a"]),
        ("on", "=", "2025-02", ["a"]),
        ("on", "=", "2025-02-01/2025-02-28", ["a"]),
        ("on", "=", "2025-06-01", ["b", "c"]),
        ("on", "!=", "2025", []),
        ("priority", ">", "9", ["a"]),
        ("priority", "<=", "9", ["b"]),
        ("draft", "=", "true", ["b"]),
        ("draft", "!=", "true", ["a", "c"]),
        ("status", "=", "DONE", ["c"]),
        ('odd"key', "=", "1", ["c"]),
        ("missing", "=", "x", []),
        ("missing", "!=", "x", ["a", "b", "c"]),
    ],
)
def test_filters_select_by_front_matter_title_path_and_date(
    writer: SqliteWriter,
    make_document: MakeDocument,
    set_zone: Callable[[str], None],
    field: str,
    op: str,
    value: str,
    expected: list[str],
) -> None:
    set_zone("UTC")
    documents = [
        make_document("a", "apple", title="über uns", tags=["work", "x"], priority=10, date="2025-02-01"),
        make_document("b", "apple pie", title="two", tag="home", priority=9, draft=True),
        make_document("c", "apple jam", title="three", status="done", **{'odd"key': 1}),
    ]
    writer.put_documents("n", documents)
    scope = Scope(filters=(MetadataFilter(field, op, value),))  # type: ignore[arg-type]
    assert sorted(paths(writer, [word("apple")], scope=scope)) == expected


def test_common_terms_are_left_out_only_beside_rarer_ones(writer: SqliteWriter, make_document: MakeDocument) -> None:
    many = [make_document(f"d{n}", f"common {'rare' if n == 7 else 'word'} {n}") for n in range(PRUNE_FROM_DOCUMENTS)]
    writer.put_documents("n", many)
    database = writer._database
    common, rare, unknown = word("common"), word("rare"), word("unknown")
    assert prune_common_terms(database, [common, rare]) == [rare]
    assert prune_common_terms(database, [common, unknown]) == [common, unknown]
    assert prune_common_terms(database, [common]) == [common]
    assert prune_common_terms(database, [word("common", required=True), rare]) == [word("common", required=True), rare]
    assert writer.document_frequencies([common, rare, unknown]) == [PRUNE_FROM_DOCUMENTS, 1, 0]


def test_similar_terms_find_the_word_that_was_meant(writer: SqliteWriter, make_document: MakeDocument) -> None:
    writer.put_documents(
        "n", [make_document("a", "kubernetes configuration changed quickly; a decision"), make_document("b", "kiwi")]
    )
    assert writer.similar_terms("kubrenetes")[:1] == ["kubernetes"]
    assert writer.similar_terms("chnged")[:1] == ["changed"]
    assert writer.similar_terms("configuraton")[:1] == ["configuration"]
    # The stem of "decision" is "decis", which by itself would be cut to "deci" and find nothing.
    assert writer.similar_terms("desicion")[:1] == ["decision"]
    assert writer.similar_terms("zzz") == []
    assert writer.similar_terms('"') == []


def test_words_are_compared_and_not_their_stems(writer: SqliteWriter, make_document: MakeDocument) -> None:
    texts = [
        "a selection of sets",
        "our representatives, a representative sample",
        "we resent resentment",
        "it is useful",
    ]
    writer.put_documents("n", [make_document(str(n), text) for n, text in enumerate(texts)])
    assert writer.similar_terms("selction") == ["selection"]
    assert writer.similar_terms("reprsentative") == ["representative"]
    assert writer.similar_terms("usefull") == ["useful"]


def test_the_nearest_word_comes_before_frequent_ones(writer: SqliteWriter, make_document: MakeDocument) -> None:
    many = [make_document(f"many{n}", "configure configured") for n in range(20)]
    writer.put_documents("n", [*many, make_document("one", "a configurator")])
    assert writer.similar_terms("configuratr") == ["configurator"]
    assert writer.similar_terms("confgure") == ["configure"]


def test_a_wrong_first_letter_is_corrected_where_nothing_else_is_near(
    writer: SqliteWriter, make_document: MakeDocument
) -> None:
    writer.put_documents("n", [make_document("a", "an integrated texture was joined")])
    for typed, meant in (("ojined", "joined"), ("exture", "texture"), ("untegrated", "integrated")):
        assert writer.similar_terms(typed) == [meant]


def test_a_stem_stands_for_a_word_that_only_other_endings_of_it_are_written(
    writer: SqliteWriter, make_document: MakeDocument
) -> None:
    writer.put_documents("n", [make_document("a", "it was pushed aggressively")])
    assert writer.similar_terms("agressive") == ["aggressively"]


def test_words_keep_their_accents_and_other_scripts_are_corrected(
    writer: SqliteWriter, make_document: MakeDocument
) -> None:
    writer.put_documents(
        "n", [make_document("a", "Die Bevölkerung und Übersetzung"), make_document("b", "перевод книги")]
    )
    assert writer.similar_terms("bevölkrung") == ["bevölkerung"]
    assert writer.similar_terms("uebersetzung") == ["übersetzung"]
    assert writer.similar_terms("перевдо") == ["перевод"]


def test_two_edits_correct_a_long_word_only_where_one_is_meant(
    writer: SqliteWriter, make_document: MakeDocument
) -> None:
    writer.put_documents("n", [make_document("a", "kubernetes"), make_document("b", "converted, then converged")])
    assert writer.similar_terms("kubrntes") == ["kubernetes"]
    assert writer.similar_terms("convexzed") == []
    assert writer.similar_terms("kbrnet") == []


def test_only_documents_in_scope_suggest_a_word(writer: SqliteWriter, make_document: MakeDocument) -> None:
    writer.put_documents("n", [make_document("a", "a comet")])
    writer.put_documents("m", [make_document("b", "two combats"), make_document("c", "combat")])
    assert writer.similar_terms("comat", scope=Scope(collections=("m",))) == ["combat"]
