"""Round trip: documents and queries through one FTS5 table."""

import unicodedata
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmd.analysis.index import analyze_document
from qmd.analysis.query import analyze_query, parse_lex
from qmd.analysis.scripts import analyze_text, normal_form, normalize
from qmd.records import LexicalTerm
from tests.parsing import parse_document

Search = Callable[[dict[str, str], Sequence[LexicalTerm]], list[str]]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("calls getUserName() twice", "user name"),
        ("calls getUserName() twice", "getusername"),
        ("calls getUserName() twice", "get_user_name"),
        ("set MAX_POOL_SIZE to 4", "pool size"),
        ("HTTPServer is started", "http server"),
        ("written in C++.", "C++"),
        ("Written in C++ and C#", "c#"),
        ("runs on .NET 8", ".net"),
        ("compile with g++ -O2", "g++"),
        ("release v2.8.3 is out", "2.8.3"),
        ("release 2.8.3 is out", "v2.8.3"),
        ("see foo/bar.md", "foo/bar.md"),
        ("import a.b.c", "a.b.c"),
        ("tagged #project today", "#project"),
        ("多核数据库设计", "数据库"),
        ("多核数据库设计", "计"),
        ("auth数据库 flow", "auth"),
        ("サーバーを再起動する", "サーバー"),
        ("データベースの設計", "ﾃﾞｰﾀﾍﾞｰｽ"),
        ("데이터베이스를 설계", "데이터베이스"),
        ("Das Straßenfest", "STRASSENFEST"),
        ("un cafe\u0301 noir", "café"),
        ("un café noir", "cafe"),
        ("установка зависимостей", "зависимости"),
        ("soft\u00adware update", "software"),
        ("running tests", "run test"),
        ("---\nkeywords: [marmalade]\n---\nbody", "marmalade"),
    ],
)
def test_a_document_is_found_by(search: Search, text: str, query: str) -> None:
    files = {"hit.md": text, "other": "nothing of interest in here at all"}
    assert search(files, analyze_query(query)) == ["hit.md"]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("plain c and d", "C++"),
        ("c++; i++; abc++", "C++"),
        ("music in F", "F#"),
        ("a net of things", ".NET"),
        ("Python 3.7.8 and 2", "2.8.3"),
        ("数学 据点", '"数据"'),
    ],
)
def test_a_document_is_not_found_by(search: Search, text: str, query: str) -> None:
    assert search({"x.md": text}, parse_lex(query)) == []


def test_titles_headings_and_paths_are_searched(search: Search) -> None:
    files = {"guide/zebraFish.md": "# Quokka\n\n## Wombat\n\ntext"}
    for query in ("quokka", "wombat", "zebra", "guide"):
        assert search(files, analyze_query(query)) == ["guide/zebraFish.md"]


def test_marked_words_decide_what_is_found(search: Search) -> None:
    files = {"a.md": "connection pool timeout", "b.md": "pool connection", "c.md": "connection pool redis"}
    assert search(files, parse_lex('"connection pool" -redis')) == ["a.md"]
    assert search(files, parse_lex("+redis connection")) == ["c.md"]
    assert search(files, parse_lex("tim*")) == ["a.md"]


def test_ascii_text_is_indexed_unchanged() -> None:
    text = "Some `code_here` — no.".replace("—", "-")
    assert analyze_text(text) is text


MARKS = "\u0301" * 64


@pytest.mark.parametrize("n_before", range(17))
def test_a_run_of_64_marks_is_seen_wherever_it_begins(n_before: int) -> None:
    before = "a" * n_before
    assert normal_form("NFKC", f"{before}{MARKS * 2}b") == normal_form("NFKC", f"{before}{MARKS} {MARKS}b")
    assert len(normal_form("NFKC", f"{before}{MARKS[1:]}b").split()) == 1


@given(st.text(st.sampled_from("aZ é\u00a0…（），：；？！\u0301ﬁß漢"), max_size=30))
def test_what_is_replaced_beforehand_is_what_the_normal_form_makes_of_it(text: str) -> None:
    assert text.isascii() or normalize(text) == unicodedata.normalize("NFKC", text).casefold()


def test_cjk_is_indexed_as_pairs_with_the_last_character() -> None:
    assert analyze_text("a数据库b 字").split() == ["a", "数据", "据库", "库", "b", "字"]


def test_extra_holds_each_derived_term_once() -> None:
    document = parse_document("x.md", b"getUserName setUserName C++ C++ URLs IDs snake_case")
    assert sorted(analyze_document(document).extra.split()) == ["cplusplus", "get", "name", "set", "user"]


@given(st.text(max_size=60))
def test_any_text_can_be_stored(text: str) -> None:
    analyze_text(text).encode("utf-8")


@given(st.text(alphabet="数据库設計カー한국어 aB1", min_size=1, max_size=12))
@settings(max_examples=60)
def test_any_part_of_a_cjk_text_finds_it(search: Search, text: str) -> None:
    word = max(text.split(), key=len, default="")
    if word:
        assert search({"x.md": f"前{text}後"}, analyze_query(word)) == ["x.md"]
