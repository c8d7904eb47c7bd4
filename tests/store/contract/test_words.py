"""Lexical search in every engine."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from qmd.analysis.identifiers import symbol_terms
from qmd.analysis.query import analyze_query, parse_lex
from qmd.analysis.scripts import analyze_text
from qmd.records import DateFilter, Filter, IndexTerms, LexicalTerm, Scope, TagFilter, TextFilter
from qmd.retrieval.query import read_query
from qmd.retrieval.request import SearchRequest
from qmd.store.base import IndexWriter
from tests.store.conftest import MakeDocument, word


def paths(writer: IndexWriter, terms: Sequence[LexicalTerm], k: int = 10, scope: Scope = Scope()) -> list[str]:
    candidates = writer.search_lexical(terms, k, scope)
    assert all(candidate.score > 0 for candidate in candidates)
    stored = writer.documents([candidate.document_id for candidate in candidates])
    return [stored[candidate.document_id].path for candidate in candidates]


def fill(writer: IndexWriter, make: MakeDocument, texts: dict[str, str]) -> None:
    filler = {f"filler{n}": f"filler number{n} sentence" for n in range(8)}
    writer.put_documents("n", [make(path, text) for path, text in (texts | filler).items()])


def test_more_matches_rank_higher(writer: IndexWriter, make: MakeDocument) -> None:
    fill(writer, make, {"one": "apple", "both": "apple banana"})
    assert paths(writer, [word("apple"), word("banana")]) == ["both", "one"]


def test_required_terms_select_and_optional_ones_rank(writer: IndexWriter, make: MakeDocument) -> None:
    fill(writer, make, {"a": "apple pie", "b": "apple banana", "c": "banana", "d": "cherry"})
    assert paths(writer, [word("apple", required=True), word("banana")]) == ["b", "a"]
    assert paths(writer, [word("apple", required=True), word("nothing")]) == ["a", "b"]
    assert paths(writer, [word("nothing", required=True), word("apple")]) == []


def test_excluded_terms_leave_documents_out(writer: IndexWriter, make: MakeDocument) -> None:
    fill(writer, make, {"a": "apple pie", "b": "apple banana"})
    assert paths(writer, [word("apple"), word("pie", excluded=True)]) == ["b"]
    assert paths(writer, [word("pie", excluded=True)]) == []


def test_words_are_stemmed_and_accents_folded(writer: IndexWriter, make: MakeDocument) -> None:
    fill(writer, make, {"a": "Running in the café"})
    assert paths(writer, [word("runs")]) == paths(writer, [word("cafe")]) == ["a"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('"state of the art"', ["a"]),
        ('"art of the state"', []),
        ("authen*", ["b"]),
        ("cafe*", ["e"]),
        ("zzz*", []),
        ("全文", ["c"]),
        ("索", ["c"]),
        ('"全文检索"', ["c"]),
        ('"检索全文"', []),
        ("C++", ["d"]),
        ("состояния", ["f"]),
        ("the 'quoted' \"open", []),
    ],
)
def test_phrases_prefixes_and_scripts_find_what_they_mean(
    writer: IndexWriter, make: MakeDocument, query: str, expected: list[str]
) -> None:
    texts = {"a": "state of the art, the state", "b": "authentication", "c": "全文检索", "d": "templates", "e": "cafés"}
    extra = {"d": " ".join(symbol_terms("C++"))}
    for path, text in (texts | {"f": "состояние"}).items():
        terms = IndexTerms("", "", "", analyze_text(text), extra.get(path, ""))
        writer.put_documents("n", [replace(make(path, text), terms=terms)])
    assert paths(writer, parse_lex(query)) == expected


def test_a_phrase_does_not_reach_from_one_field_into_the_next(writer: IndexWriter, make: MakeDocument) -> None:
    writer.put_documents("n", [make("red", "apple pie", title="green")])
    assert paths(writer, [LexicalTerm("x", '"red apple"')]) == []
    assert paths(writer, [LexicalTerm("x", '"apple pie"')]) == ["red"]


def test_a_title_counts_more_than_the_text(writer: IndexWriter, make: MakeDocument) -> None:
    fill(writer, make, {"body": "apple and other fruit"})
    writer.put_documents("n", [make("titled", "fruit and other things", title="apple")])
    assert paths(writer, [word("apple")]) == ["titled", "body"]


def test_scope_is_applied_before_the_cut(writer: IndexWriter, make: MakeDocument) -> None:
    writer.put_documents("big", [make(f"b{n}", "apple apple apple") for n in range(50)])
    writer.put_documents("small", [make("s", "apple and a good many other words besides")])
    assert paths(writer, [word("apple")], 1, Scope(collections=("small",))) == ["s"]
    assert paths(writer, [word("apple")], 1, Scope(collections=())) == []


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [("docs/", ["docs/a.md"]), ("Docs/", []), ("100%/", ["100%/b_c.md"]), ("100_/", []), ("o'", ["o'x.md"])],
)
def test_a_path_prefix_is_literal_and_case_sensitive(
    writer: IndexWriter, make: MakeDocument, prefix: str, expected: list[str]
) -> None:
    writer.put_documents("n", [make(path, "apple") for path in ("docs/a.md", "100%/b_c.md", "o'x.md")])
    assert paths(writer, [word("apple")], scope=Scope(path_prefix=prefix)) == expected


def make_filter(field: str, value: str, is_negated: bool) -> Filter:
    first, _, last = value.partition("/")
    match field:
        case "tag":
            return TagFilter(value, is_negated)
        case "title" | "path" | "collection" as column:
            return TextFilter(column, value, is_negated)
        case "after" | "before" | "on" as relation:
            return DateFilter(relation, first, last or first, is_negated)
    raise AssertionError(field)


@pytest.mark.parametrize(
    ("field", "op", "value", "expected"),
    [
        ("tag", "=", "work", ["a", "c"]),
        ("tag", "=", "#Work/Strategy", ["c"]),
        ("tag", "=", "workshop", ["d"]),
        ("tag", "=", "#work/", ["a", "c"]),
        ("tag", "=", "strategy", []),
        ("tag", "!=", "work", ["b", "d", "sub/e.txt"]),
        ("title", "=", "PLAN", ["a"]),
        ("title", "=", "strasse", ["b"]),
        ("title", "=", "ſTRAße", ["b"]),
        ("title", "!=", "strasse", ["a", "c", "d", "sub/e.txt"]),
        ("path", "=", "sub/", ["sub/e.txt"]),
        ("path", "=", "*.txt", ["sub/e.txt"]),
        ("path", "=", "[ab]", ["a", "b"]),
        ("path", "!=", "?", ["sub/e.txt"]),
        ("collection", "=", "n", ["a", "b", "c", "d", "sub/e.txt"]),
        ("after", "=", "2024-02-02", ["b", "c", "sub/e.txt"]),
        ("after", "=", "2024-02-15", ["b", "c", "sub/e.txt"]),
        ("after", "=", "2024-03", ["c", "sub/e.txt"]),
        ("before", "=", "2024-02", ["d"]),
        ("before", "=", "2024-02-15", ["a", "b", "d"]),
        ("before", "=", "2023-12-31", []),
        ("before", "=", "2024-02-01", ["d"]),
        ("before", "!=", "2024-02-02", ["c", "sub/e.txt"]),
        ("after", "!=", "2024-02-15", ["a", "d"]),
        ("on", "=", "2024-02", ["a", "b"]),
        ("on", "=", "2024-02-01/2024-02-29", ["a", "b"]),
        ("on", "=", "2024-02-01", ["a"]),
        ("on", "=", "2025", ["c", "sub/e.txt"]),
        ("on", "!=", "2025", ["a", "b", "d"]),
    ],
)
def test_filters_leave_what_they_name(
    writer: IndexWriter, make: MakeDocument, field: str, op: str, value: str, expected: list[str]
) -> None:
    made = [
        make("a", "apple", title="The plan", tags=["work"], status="draft", priority=10, date="2024-02-01"),
        make("b", "apple 2", title="Die lange Straße", status="it's", draft=True, priority=2, date="2024-02"),
        make("c", "apple 3", tags=["#work/strategy"], priority="high"),
        make("d", "apple 4", tag="workshop", date="2023-12-31", **{'odd"key': 1}),
        make("sub/e.txt", "apple 5", modified_at="2025-09-09T12:00:00.000Z"),
    ]
    writer.put_documents("n", made)
    scope = Scope(filters=(make_filter(field, value, op == "!="),))
    assert sorted(paths(writer, [word("apple")], scope=scope)) == expected
    assert [one.path for one in writer.iter_documents(scope)] == expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("status:draft", "a"), ("status:it's", ""), ("missing:x", ""), ("-missing:x", "abcd"), ("status<e", "a"),
        ("-status:draft", "bcd"), ("has:due", "abd"), ("-has:due", "c"),
        ("priority>=3", "a"), ("priority:2", "b"), ("priority:>1", "ab"), ("-priority<3", "acd"),
        ("scores>10", "a"), ("scores:3", "a"), ("due:2026-10", "b"), ("due<2026-11", "b"), ("due<=2026-12", "ab"),
        ("due>2026-10-01", "a"), ("due>=2026-10-01", "ab"), ("done:true", "b"), ("topics:SQLITE", "a"),
        ("year:2026", "c"), ("year>=2026", "c"), ("year<2026", ""), ("due:{{date}}", "d"),
        ('{"field":"status","operator":"eq","value":"draft"}', ""),
        ('{"field":"status","operator":"eq","value":"draft","caseInsensitive":true}', "a"),
        ('{"key":"status","operator":"ne","value":"Draft"}', "b"),
        ('{"field":"status","operator":"in","value":["Draft","published"]}', "ab"),
        ('{"field":"topics","operator":"nin","value":["sqlite"]}', ""),
        ('{"field":"topics","operator":"all","value":["sqlite","typescript"]}', "a"),
        ('{"field":"topics","operator":"prefix","value":"type"}', "a"),
        ('{"field":"status","operator":"contains","value":"ubl"}', "b"),
        ('{"field":"status","operator":"suffix","value":"hed"}', "b"),
        ('{"field":"done","operator":"eq","value":false}', "a"),
        ('{"field":"priority","operator":"lt","value":3}', "b"),
        ('{"field":"priority","operator":"type","value":"string"}', "c"),
        ('{"field":"due","operator":"exists","value":false}', "c"),
        ('{"operator":"not","operand":{"field":"due","operator":"exists","value":true}}', "c"),
        ('{"operator":"or","operands":[{"field":"year","operator":"gte","value":1},'
         '{"operator":"and","operands":[{"field":"done","operator":"eq","value":true},'
         '{"field":"due","operator":"gt","value":"2026"}]}]}', "bc"),
        ('{"field":"o\'d\\"\\n; DROP TABLE documents","operator":"eq","value":1}', "d"),
    ],
)  # fmt: skip
def test_front_matter_is_compared_by_type(writer: IndexWriter, make: MakeDocument, asked: str, expected: str) -> None:
    made = [
        make(
            "a", "apple", status="Draft", priority=10, due="2026-12-01", done=False, topics=["sqlite", "typescript"],
            scores=["3", "11"],
        ),
        make("b", "apple", status="published", priority=2, due="2026-10-01T10:00", done=True),
        make("c", "apple", priority="high", year=2026),
        make("d", "apple", due="{{date}}", **{"o'd\"\n; drop table documents": 1}),
    ]  # fmt: skip
    writer.put_documents("n", made)
    scope = read_query(SearchRequest("", filter=asked)).scope
    assert "".join(one.path for one in writer.iter_documents(scope)) == expected
    assert "".join(sorted(paths(writer, [word("apple")], scope=scope))) == expected
    assert {"due", "scores", "o'd\"\n; drop table documents"} <= writer.field_names()


def test_frequencies_are_those_of_the_collections(writer: IndexWriter, make: MakeDocument) -> None:
    writer.put_documents("n", [make("a", "apple pie"), make("b", "apple")])
    writer.put_documents("m", [make("c", "apples")])
    terms = [word("apple"), word("pie"), word("plum"), LexicalTerm("app", '"app"*'), LexicalTerm("x", '"apple pie"')]
    assert writer.document_frequencies(terms) == [3, 1, 0, 3, 1]
    assert writer.document_frequencies(terms, Scope(collections=("m",))) == [1, 0, 0, 1, 0]
    assert writer.count_documents(Scope(collections=("n",), path_prefix="a")) == 2
    assert writer.search_lexical(terms, 5, Scope(collections=("gone",))) == []
    assert writer.document_frequencies(terms[:1], Scope(collections=("gone",))) == [0]


def test_only_documents_within_are_ranked(writer: IndexWriter, make: MakeDocument) -> None:
    writer.put_documents("n", [make(name, f"apple {name}") for name in "abcd"])
    ids = {one.path: one.id for one in writer.iter_documents()}
    found = writer.search_lexical([word("apple")], 10, Scope(), within=[ids["b"], ids["d"]])
    assert {candidate.document_id for candidate in found} == {ids["b"], ids["d"]}


def test_misspelt_words_are_suggested_as_documents_write_them(writer: IndexWriter, make: MakeDocument) -> None:
    texts = ["the kubernetes cluster", "Die Bevölkerung", "an integrated texture was joined", "a comet"]
    writer.put_documents("n", [make(str(n), text) for n, text in enumerate(texts)])
    writer.put_documents("m", [make("b", "two combats"), make("c", "combat")])
    typed = {"kubrenetes": "kubernetes", "bevölkrung": "bevölkerung", "ojined": "joined", "exture": "texture"}
    for misspelt, meant in (typed | {"untegrated": "integrated"}).items():
        assert writer.similar_terms(misspelt) == [meant]
    assert writer.similar_terms("comat", scope=Scope(collections=("m",)))[:1] == ["combat"]
    assert writer.similar_terms("zzz") == writer.similar_terms('"') == []
    writer.remove_documents("n", ["0"])
    assert writer.similar_terms("kubrenetes") == []


def test_terms_with_a_common_prefix_are_returned(writer: IndexWriter, make: MakeDocument) -> None:
    writer.put_documents("n", [make("a", "Fähre Fahrten"), make("b", "fahren Fahrten")])
    assert {one.rstrip("e") for one in writer.terms_from("fahr", 9)} >= {"fahren", "fahrten"}
    assert not writer.terms_from("zzz", 9) and not writer.terms_from("\U0010fffe", 9)


def test_the_language_of_most_documents_in_scope_is_known(writer: IndexWriter, make: MakeDocument) -> None:
    assert writer.main_language() is None
    for collection, text in (("n", "in0de0"), ("m", "words"), ("m", "in0xx0 in0"), ("m", "more")):
        writer.put_documents(collection, [make(f"{text}.md", text)])
    assert writer.main_language(Scope(collections=("n",))) == "de"
    assert writer.main_language() is writer.main_language(Scope(collections=("m",))) is None


def test_a_question_finds_the_document_that_holds_most_of_it(writer: IndexWriter, make: MakeDocument) -> None:
    fill(writer, make, {"a": "how bread is baked in an oven", "b": "bread", "c": "an oven"})
    assert paths(writer, analyze_query("How do I bake bread in the oven?"))[0] == "a"
