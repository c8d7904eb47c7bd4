"""Query text to terms: stop words, identifiers, scripts, the lex syntax, and that no input breaks FTS5."""

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmd.analysis.query import analyze_query, has_user_operators, is_identifier_like, parse_lex, prefix_form
from qmd.analysis.scripts import has_unspaced, unspaced_share
from qmd.records import LexicalTerm
from qmd.store.sqlite.schema import TOKENIZER


def fts(text: str) -> list[str]:
    return [term.fts for term in analyze_query(text)]


def lex(text: str) -> list[tuple[str, str]]:
    """Return (sign, expression) of every term."""
    return [("-" if t.excluded else "+" if t.required else "", t.fts) for t in parse_lex(text)]


def test_every_word_of_a_question_is_an_optional_term_but_its_stop_words() -> None:
    terms = analyze_query("How do I configure the connection pool?")
    assert [t.fts for t in terms] == ['"configure"', '"connection"', '"pool"']
    assert not any(t.required or t.excluded for t in terms)


WORDS: dict[str, tuple[str, list[str]]] = {
    "stop words are kept when nothing else is left": ("to be or not to be", ['"to"', '"be"', '"or"', '"not"']),
    "repeated words are one term": ("cache Cache CACHE", ['"cache"']),
    "operators are plain words": ('grep -r "foo" AND bar*', ['"grep"', '"r"', '"foo"', '"bar"']),
    "CJK runs are pairs and single characters prefixes": (
        "数据库 auth设计 库", ['"数据"', '"据库"', '"auth"', '"设计"', '"库"*']
    ),
    "full-width and decomposed forms are normalised": ("ＡＰＩ cafe\u0301 Straße", ['"api"', '"café"', '"strasse"']),
    "inflected Cyrillic words are prefixes": ("зависимостями", ['"зависимост"*']),
}  # fmt: skip


@pytest.mark.parametrize("case", WORDS)
def test_the_terms_of_plain_language(case: str) -> None:
    query, expected = WORDS[case]
    assert fts(query) == expected


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("wie installiere ich die Datenbank", ['"installiere"', '"datenbank"']),
        ("comment configurer le serveur dans la production", ['"configurer"', '"serveur"', '"production"']),
        ("cómo instalar la base de datos", ['"instalar"', '"base"', '"datos"']),
        ("die hard", ['"die"', '"hard"']),
    ],
)
def test_stop_words_are_those_of_the_query_s_language(query: str, kept: list[str]) -> None:
    assert fts(query) == kept


@pytest.mark.parametrize("query", ["", "  ", "?!", "🎉", "--", "\x00", "\ud800", '"'])
def test_a_query_without_letters_has_no_terms(query: str) -> None:
    assert analyze_query(query) == parse_lex(query) == ()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("getUserName", ['"getusername"', '"get"', '"user"', '"name"']),
        ("HTTPServer", ['"httpserver"', '"http"', '"server"']),
        ("URLs", ['"urls"']),
        ("snake_case", ['"snake case"', '"snake"', '"case"']),
        ("multi-agent", ['"multi agent"', '"multi"', '"agent"']),
        ("std::vector<int>", ['"std vector"', '"std"', '"vector"', '"int"']),
        ("asyncio.run", ['"asyncio run"', '"asyncio"', '"run"']),
        ("src/app.py", ['"src app py"', '"src"', '"app"', '"py"']),
        ("2.8.3", ['("2 8 3" OR "v2 8 3")']),
        ("v2.8.3", ['("2 8 3" OR "v2 8 3")']),
        ("C++", ['"cplusplus"']),
        ("c#", ['"csharp"']),
        (".NET", ['"dotnet"']),
        ("#tag", ['"tag"']),
        ("--dry-run", ['"dry run"', '"dry"', '"run"']),
        ("point-in-time", ['"point in time"', '"point"', '"time"']),
        ("l'homme", ['"homme"']),
        ("user’s", ['"user"']),
    ],
)
def test_identifiers_give_a_phrase_and_their_parts(query: str, expected: list[str]) -> None:
    assert fts(query) == expected


def test_in_a_long_question_a_hyphenated_word_is_its_parts() -> None:
    assert '"high speed"' in fts("heating of high-speed aircraft")
    assert '"high speed"' not in fts("measured heating of slender high-speed aircraft wings")
    assert '"dry run"' in fts("measured heating of slender --dry-run aircraft wings")


def test_terms_show_what_the_user_wrote() -> None:
    terms = [term.text for term in analyze_query("C++ getUserName 2.8.3")]
    assert terms == ["C++", "getusername", "get", "user", "name", "2.8.3"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('"connection pool" timeout -redis', [("", '"timeout"'), ("+", '"connection pool"'), ("-", '"redis"')]),
        ('-"dead lock" +mutex', [("-", '"dead lock"'), ("+", '"mutex"')]),
        ("+multi-agent", [("+", '"multi agent"')]),
        ("-getUserName", [("-", '"getusername"')]),
        ("+C++ -c#", [("+", '"cplusplus"'), ("-", '"csharp"')]),
        ("auth*", [("", '"auth"*')]),
        ("+auth* -tok*", [("+", '"auth"*'), ("-", '"tok"*')]),
        ('"open end', [("+", '"open end"')]),
        ('"C++" x', [("", '"x"'), ("+", '"c"')]),
        ("数据库 -缓存区", [("", '"数据"'), ("", '"据库"'), ("-", '"缓存 存区"')]),
        ('"数据库"', [("+", '"数据 据库"')]),
        ('"库"', [("+", '"库"*')]),
        ("+v1.2", [("+", '("1 2" OR "v1 2")')]),
        ("the -of +who", [("", '"the"'), ("-", '"of"'), ("+", '"who"')]),
        ("--verbose", [("", '"verbose"')]),
        ('- + -"" ""', []),
        (
            "AND OR NEAR(a) title:x ^y {z}",
            [("", '"near"'), ("", '"title x"'), ("", '"title"'), ("", '"y"'), ("", '"z"')],
        ),
    ],
)
def test_lex_syntax(query: str, expected: list[tuple[str, str]]) -> None:
    assert lex(query) == expected


@pytest.fixture(scope="module")
def table() -> apsw.Connection:
    db = apsw.Connection(":memory:")
    db.execute(f"CREATE VIRTUAL TABLE t USING fts5(body, tokenize = '{TOKENIZER}')")
    db.execute("INSERT INTO t VALUES ('word')")
    return db


def runs(db: apsw.Connection, term: LexicalTerm) -> None:
    for match in (term.fts, f'{term.fts} OR "x"', f'"x" NOT {term.fts}', f'({term.fts}) AND "x"'):
        list(db.execute("SELECT rowid, bm25(t) FROM t WHERE t MATCH ?", (match,)))


tricky = st.text(alphabet="ab\"'*-+:.^(){}\\/_#@$ \n\x00ANDORT字カー가éßйक\u0301\u00ad\ud800🎉v12", max_size=24)


@given(st.one_of(tricky, st.text(max_size=40)))
@settings(max_examples=400)
def test_any_text_gives_valid_expressions(table: apsw.Connection, text: str) -> None:
    for term in (*analyze_query(text), *parse_lex(text)):
        runs(table, term)
        prefix = prefix_form(term)
        if prefix is not None:
            runs(table, prefix)


@given(tricky)
def test_terms_have_words_to_look_for(text: str) -> None:
    for term in (*analyze_query(text), *parse_lex(text)):
        assert any(char.isalnum() for char in term.fts)
        assert term.text.strip()


def test_prefix_form_of_words_only() -> None:
    def prefix(text: str) -> str | None:
        term = prefix_form(LexicalTerm("x", text))
        return None if term is None else term.fts

    assert prefix('"auth"') == '"auth"*'
    assert [prefix(t) for t in ('"ab"', '"a b"', '"auth"*', '"数据库"', '("a" OR "b")')] == [None] * 5


@pytest.mark.parametrize("text", ['"a phrase" here', "x -redis", "+must have", "auth*", '-"a b"', "a +bc"])
def test_user_operators_are_seen(text: str) -> None:
    assert has_user_operators(text)


@pytest.mark.parametrize(
    "text", ["plain words", "multi-agent", "a - b", "2 + 2", 'an " inch', "C++", '""', "it's", "a*b", "x --flag"]
)
def test_ordinary_text_has_no_operators(text: str) -> None:
    assert not has_user_operators(text)


@pytest.mark.parametrize(
    "text", ["getUserName", "snake_case", "std::vector", "C2065", "a.b.c", "src/main.rs", "--verbose", "E0382", "foo()"]
)
def test_code_looks_like_identifiers(text: str) -> None:
    assert is_identifier_like(text)


@pytest.mark.parametrize(
    "text", ["", "word", "two words", "how to use getUserName in a test", "数据库", "well-known", "end."]
)
def test_prose_does_not_look_like_identifiers(text: str) -> None:
    assert not is_identifier_like(text)


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("", 0.0),
        ("abc", 0.0),
        ("数据库", 1.0),
        ("ab数据", 0.5),
        ("1234 数", 1.0),
        ("カー", 1.0),
        ("é", 0.0),
        ("한국어", 1.0),
    ],
)
def test_unspaced_share_counts_letters(text: str, share: float) -> None:
    assert unspaced_share(text) == pytest.approx(share)
    assert has_unspaced(text) == (share > 0)
