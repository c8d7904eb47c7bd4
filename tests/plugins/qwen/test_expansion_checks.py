import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmd.plugins.qwen.expansion_checks import check_expansions, same_language, same_script
from qmd.records import SubQuery


def _reason(query: str, text: str, kind: str = "vec", **options: object) -> str | None:
    result = check_expansions(query, [SubQuery(kind, text)], **options)  # type: ignore[arg-type]
    return result.dropped[0][1] if result.dropped else None


@pytest.mark.parametrize(
    ("query", "kind", "text"),
    [
        ("deploy the service", "lex", "service deployment rollout"),
        ("how to fix login errors", "vec", "What should I do when login errors occur"),
        ("how to fix login errors", "hyde", "This document lists login errors and how each is solved."),
        ("数据库 性能 优化", "lex", "数据库 调优 SQL"),
        ("как настроить сервер", "vec", "Инструкция: настройка сервера nginx"),
        ("データベースの使い方", "lex", "データベース 入門"),
        ("データベースの使い方", "lex", "使い方 説明"),
        ("std::vector vs std::list", "lex", "std::vector<int> performance"),
        ("Fehler beim Start", "vec", "Was kann man tun, wenn der Start mit einem Fehler endet"),
    ],
)
def test_useful_expansions_are_kept(query: str, kind: str, text: str) -> None:
    assert _reason(query, text, kind) is None


@pytest.mark.parametrize(
    ("query", "text", "reason"),
    [
        ("login errors", "Login, errors!", "repeats the query"),
        ("login errors", "  -- ", "is empty"),
        ("login errors", "Here is a query about login errors", "is template prose"),
        ("login errors", "The user wants to fix login errors", "is template prose"),
        ("login errors", "login errors lex: password", "is template prose"),
        ("login errors", "login login login login login login errors", "repeats itself"),
        ("login errors", "best pasta recipes", "shares no term with the query"),
        ("login errors", "ошибки login при входе в систему пользователя", "is in another script than the query"),
        ("как настроить сервер", "how to configure a server", "is in another script than the query"),
        ("数据库性能优化", "database performance tuning", "is in another script than the query"),
        ("数据库性能优化", "データベースの性能を最適化する", "is in another script than the query"),
        ("データベースの使い方", "数据库使用方法", "is in another script than the query"),
        (
            "wie startet man den Server",
            "how to start the Server on my machine",
            "is in another language than the query",
        ),
        ("x" * 10, "x" * 300, "is longer than 240 characters"),
    ],
)
def test_useless_expansions_are_refused_with_the_reason(query: str, text: str, reason: str) -> None:
    assert _reason(query, text) == reason


def test_a_second_expansion_with_the_same_words_is_refused() -> None:
    proposed = [SubQuery("lex", "login failure"), SubQuery("lex", "Failure login")]
    result = check_expansions("login errors", proposed)
    assert [item.text for item in result.subqueries] == ["login failure"]
    assert result.dropped == (("Failure login", "repeats another expansion"),)


def test_the_intent_counts_as_part_of_the_query() -> None:
    assert _reason("performance", "fast web pages") == "shares no term with the query"
    assert _reason("performance", "fast web pages", intent="speed of a web site") is None


def test_a_programming_language_of_one_letter_is_no_french() -> None:
    assert same_language("c compiler flags", "Which flags does the compiler of the language take")


def test_quotes_and_bullets_around_a_line_are_stripped() -> None:
    result = check_expansions("login errors", [SubQuery("lex", '- "login failure"')])
    assert result.subqueries[0].text == "login failure"


def test_keywords_without_function_words_show_no_language() -> None:
    assert same_language("kubernetes ingress", "Wie konfiguriert man das ingress")
    assert same_script("kubernetes ingress", "ingress controller")


@settings(max_examples=200)
@given(st.text(max_size=30), st.lists(st.tuples(st.sampled_from(["lex", "vec", "hyde"]), st.text(max_size=60))))
def test_every_proposal_is_either_kept_or_dropped(query: str, texts: list[tuple[str, str]]) -> None:
    proposed = [SubQuery(kind, text) for kind, text in texts]  # type: ignore[arg-type]
    result = check_expansions(query, proposed)
    assert len(result.subqueries) + len(result.dropped) == len(proposed)
    assert all("\n" not in item.text and item.text.strip() for item in result.subqueries)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("keeping snakes as pets", "repeats the intent"),
        ("Snakes, pets", "repeats the intent"),
        ("python snakes", None),
        ("care of a ball python", None),
        ("snakes in a terrarium", None),
    ],
)
def test_a_line_that_merely_repeats_the_intent_is_dropped_with_that_reason(text: str, reason: str | None) -> None:
    assert _reason("python", text, "lex", intent="keeping snakes as pets") == reason


def test_an_intent_that_is_the_query_drops_what_repeats_the_query() -> None:
    assert _reason("ball python", "python ball", "lex", intent="ball python") == "repeats the intent"
