"""Lexical search of SQLite's engine alone: pruning, and spelling by stems."""

from qmd.records import LexicalTerm
from qmd.store.sqlite.lexical import PRUNE_FROM_DOCUMENTS
from qmd.store.sqlite.writer import SqliteWriter
from tests.store.conftest import MakeDocument


def word(text: str, *, required: bool = False, excluded: bool = False) -> LexicalTerm:
    return LexicalTerm(text, f'"{text}"', required=required, excluded=excluded)


def test_common_terms_are_skipped_only_next_to_rarer_ones(writer: SqliteWriter, make_document: MakeDocument) -> None:
    many = [make_document(f"d{n}", f"common {'rare' if n == 7 else 'word'} {n}") for n in range(PRUNE_FROM_DOCUMENTS)]
    writer.put_documents("n", many)
    common, rare, unknown = word("common"), word("rare"), word("unknown")
    assert writer.prune_common_terms([common, rare]) == [rare]
    assert writer.prune_common_terms([common, unknown]) == [common, unknown]
    assert writer.prune_common_terms([common]) == [common]
    assert writer.prune_common_terms([word("common", required=True), rare]) == [word("common", required=True), rare]
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


def test_a_stem_is_used_for_a_word_written_only_with_other_endings(
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
