"""Lexical search of SQLite's engine alone: pruning, and spelling by stems."""

import pytest

from qmd.store.sqlite.lexical import PRUNE_FROM_DOCUMENTS
from qmd.store.sqlite.writer import SqliteWriter
from tests.store.conftest import MakeDocument, word


def test_common_terms_are_skipped_only_next_to_rarer_ones(writer: SqliteWriter, make: MakeDocument) -> None:
    many = [make(f"d{n}", f"common {'rare' if n == 7 else 'word'} {n}") for n in range(PRUNE_FROM_DOCUMENTS)]
    writer.put_documents("n", many)
    common, rare, unknown = word("common"), word("rare"), word("unknown")
    assert writer.prune_common_terms([common, rare]) == [rare]
    assert writer.prune_common_terms([common, unknown]) == [common, unknown]
    assert writer.prune_common_terms([common]) == [common]
    assert writer.prune_common_terms([word("common", required=True), rare]) == [word("common", required=True), rare]
    assert writer.document_frequencies([common, rare, unknown]) == [PRUNE_FROM_DOCUMENTS, 1, 0]


SPELLINGS = {
    # The stem of "decision" is "decis", which by itself would be cut to "deci" and find nothing.
    "the word that was meant is found": (
        ["kubernetes configuration changed quickly; a decision", "kiwi"],
        'kubrenetes kubernetes, chnged changed, configuraton configuration, desicion decision, zzz, "',
    ),
    "words are compared and not their stems": (
        ["a selection of sets", "our representatives, a representative sample", "we resent resentment", "it is useful"],
        "selction selection, reprsentative representative, usefull useful",
    ),
    "the nearest word comes before frequent ones": (
        [*["configure configured"] * 20, "a configurator"],
        "configuratr configurator, confgure configure",
    ),
    "a stem is used for a word written only with other endings": (
        ["it was pushed aggressively"],
        "agressive aggressively",
    ),
    "words keep their accents and other scripts are corrected": (
        ["Die Bevölkerung und Übersetzung", "перевод книги"],
        "bevölkrung bevölkerung, uebersetzung übersetzung, перевдо перевод",
    ),
    "two edits correct a long word only where one is meant": (
        ["kubernetes", "converted, then converged"],
        "kubrntes kubernetes, convexzed, kbrnet",
    ),
}


@pytest.mark.parametrize(("texts", "pairs"), SPELLINGS.values(), ids=SPELLINGS)
def test_similar_terms_correct_spelling(writer: SqliteWriter, make: MakeDocument, texts: list[str], pairs: str) -> None:
    writer.put_documents("n", [make(str(n), text) for n, text in enumerate(texts)])
    for typed, *meant in map(str.split, pairs.split(", ")):
        assert writer.similar_terms(typed) == meant
