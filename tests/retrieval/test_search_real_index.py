"""The pipeline over a real index: scopes, round trips, any query, and languages."""

from collections.abc import Mapping

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from qmd.errors import UsageError
from qmd.inference.base import Engines
from qmd.records import Scope, SearchResponse
from qmd.retrieval.lookup import resolve_document
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import parse_query
from qmd.retrieval.request import SearchRequest
from tests.note_index import NoteIndex, paths

WORDS = ("limiter", "window", "token", "garden", "tomato", "engine", "oil", "water", "key", "cache")
TYPED = (*WORDS, "limitr", "gard", "-oil", '"water key"')
NO_ENGINES = Engines(None, None, None)
LEXICAL = SearchRequest(mode="lexical", explain=True)


def build(collections: Mapping[str, Mapping[str, str]]) -> NoteIndex:
    """Return an index of collection → path → text."""
    reader = NoteIndex()
    for name, files in collections.items():
        for path, text in files.items():
            reader.add(path, text, collection=name)
    return reader


def ask(reader: NoteIndex, text: str, *collections: str) -> SearchResponse:
    query = parse_query(text)
    if collections:
        query = replace(query, scope=replace(query.scope, collections=collections))
    return search(reader, NO_ENGINES, query, LEXICAL)


bodies = st.lists(st.sampled_from(WORDS), min_size=1, max_size=30).map(" ".join)
folders = st.dictionaries(st.sampled_from([f"n{number}.md" for number in range(9)]), bodies, min_size=1, max_size=9)
queries = st.lists(st.sampled_from(TYPED), min_size=1, max_size=4).map(" ".join)


@settings(max_examples=25)
@given(folders, folders, queries)
@example(
    {"n0.md": f"{'limiter ' * 9}window water key", "n1.md": "water key"}, {"n0.md": "limiter"}, 'window "water key"'
)
def test_an_unrelated_collection_changes_nothing_of_a_scoped_answer(
    own: dict[str, str], other: dict[str, str], text: str
) -> None:
    alone = ask(build({"own": own}), text, "own")
    # Next to a collection that repeats some words a hundred times, indexed first or last.
    loud = {name: f"{body} " * 100 for name, body in other.items()}
    for both in (build({"own": own, "other": loud}), build({"other": loud, "own": own})):
        answer = ask(both, text, "own")
        assert paths(answer) == paths(alone)
        assert [hit.relevance for hit in answer.hits] == pytest.approx([hit.relevance for hit in alone.hits])
        assert answer.warnings == alone.warnings


def test_scoped_scores_are_those_of_the_collection_alone() -> None:
    own = {"a.md": "limiter window", "b.md": "limiter limiter engine", "c.md": "garden water oil"}
    alone = ask(build({"own": own}), "limiter water", "own").hits
    both = ask(build({"own": own, "other": {f"{n}.md": "limiter " * n for n in range(1, 20)}}), "limiter water", "own")
    for left, right in zip(alone, both.hits, strict=True):
        assert left.explanation is not None
        assert right.explanation is not None
        before, after = left.explanation.contributions[0], right.explanation.contributions[0]
        assert after.score == pytest.approx(before.score)


def test_a_scope_of_everything_ranks_as_no_scope_does() -> None:
    files = {f"{n}.md": f"{'window ' * n} {'oil ' * (8 - n)}" for n in range(1, 8)}
    reader = build({"own": {**files, **{f"other{n}.md": "engine cache token " * 3 for n in range(12)}}})
    whole = paths(ask(reader, "window"))
    assert whole[0] == "7.md"
    assert paths(ask(reader, "window", "own")) == whole


@settings(max_examples=200)
@given(st.text(max_size=60) | st.text(alphabet='ab"+-*:()^~ \n中の', max_size=30), st.booleans())
def test_no_query_raises_anything_but_a_usage_error(any_index: NoteIndex, text: str, is_scoped: bool) -> None:
    try:
        query = parse_query(text)
    except UsageError:
        return
    if is_scoped:
        query = replace(query, scope=Scope(collections=("own",), filters=query.scope.filters))
    search(any_index, NO_ENGINES, query, LEXICAL)


@pytest.fixture(scope="module")
def any_index() -> NoteIndex:
    return build({"own": {"a.md": "# A b\n\nab 中の文字 a+b", "b.md": "tomatoes"}})


names = st.text(
    st.characters(codec="utf-8", exclude_characters="/\\\0\n\r", exclude_categories=("Cs", "Cc")),
    min_size=1,
    max_size=12,
).filter(lambda name: name.strip() == name and name not in (".", ".."))


@settings(max_examples=25)
@given(st.lists(names, min_size=1, max_size=4, unique_by=str.casefold))
def test_a_hit_is_fetched_by_docid_and_by_address(stems: list[str]) -> None:
    reader = build({"own": {f"{stem}.md": f"# Note\n\nmarker number {n}\n" for n, stem in enumerate(stems)}})
    hits = ask(reader, "marker").hits
    assert len(hits) == len(stems)
    for hit in hits:
        for reference in (hit.document.docid, hit.document.uri):
            assert resolve_document(reader, reference).document == hit.document


LANGUAGES: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]] = {
    "chinese": (
        {
            "机票.md": "# 机票预订\n\n提前两周预订机票可以节省不少费用。",
            "菜谱.md": "# 番茄炒蛋\n\n先把鸡蛋打散，再切番茄。",
            "电脑.md": "# 电脑维修\n\n电脑无法开机时先检查电源。",
            "天气.md": "# 天气预报\n\n明天北京有大雨，请带伞。",
            "历史.md": "# 长城的历史\n\n长城修建于秦朝，用来防御北方。",
            "繁體.md": "# 圖書館\n\n圖書館的開放時間是早上九點。",
        },
        {
            "怎么便宜地买机票": "机票.md",
            "番茄鸡蛋怎么做": "菜谱.md",
            "电脑打不开怎么办": "电脑.md",
            "北京明天下雨吗": "天气.md",
            "长城是什么时候建的": "历史.md",
            "圖書館幾點開門": "繁體.md",
            "伞": "天气.md",
        },
    ),
    "japanese": (
        {
            "旅行.md": "# 京都旅行\n\n新幹線で京都へ行き、お寺を見ました。",
            "料理.md": "# カレーの作り方\n\n玉ねぎを炒めてから水を入れます。",
            "仕事.md": "# 会議の議事録\n\nサーバーの移行は来月に延期されました。",
            "健康.md": "# 健康診断\n\n朝食を食べずに病院へ行きます。",
            "本.md": "# 読書メモ\n\n村上春樹の小説を読んだ。",
        },
        {
            "京都のお寺": "旅行.md",
            "カレーを作りたい": "料理.md",
            "サーバー移行の延期": "仕事.md",
            "ｻｰﾊﾞｰ": "仕事.md",
            "健康診断の朝食": "健康.md",
            "小説": "本.md",
        },
    ),
    "korean": (
        {
            "여행.md": "# 제주도 여행\n\n비행기로 제주도에 가서 한라산을 올랐다.",
            "요리.md": "# 김치찌개\n\n김치와 돼지고기를 볶은 다음 물을 붓는다.",
            "업무.md": "# 회의록\n\n서버 이전은 다음 달로 연기되었습니다.",
            "운동.md": "# 달리기 기록\n\n오늘은 공원에서 오 킬로미터를 달렸다.",
            "책.md": "# 독서 노트\n\n한국 현대사를 다룬 책을 읽었다.",
        },
        {
            "제주도에서 한라산 가는 법": "여행.md",
            "김치찌개를 어떻게 끓이나요": "요리.md",
            "서버는 언제 이전하나요": "업무.md",
            "공원에서 달리기": "운동.md",
            "현대사 책": "책.md",
        },
    ),
    "german": (
        {
            "steuer.md": "# Steuererklärung\n\nDie Frist für die Abgabe endet im Juli.",
            "garten.md": "# Gartenarbeit\n\nTomaten brauchen viel Wasser und Sonne.",
            "strasse.md": "# Straßenbau\n\nDie Hauptstraße wird bis Oktober gesperrt.",
            "reise.md": "# Reiseplanung\n\nDer Zug nach München fährt um acht Uhr.",
            "küche.md": "# Apfelkuchen\n\nÄpfel schälen, Teig kneten, eine Stunde backen.",
        },
        {
            "Wann muss ich die Steuererklärung abgeben?": "steuer.md",
            "wie viel Wasser brauchen Tomaten": "garten.md",
            "HAUPTSTRASSE gesperrt": "strasse.md",
            "wann fährt der Zug nach Munchen": "reise.md",
            "Apfelkuchen backen": "küche.md",
        },
    ),
    "russian": (
        {
            "налоги.md": "# Налоги\n\nДекларацию нужно подать до конца апреля.",
            "сад.md": "# Сад\n\nПомидоры нужно поливать каждый вечер.",
            "поезд.md": "# Поездка\n\nПоезд в Казань отправляется в восемь утра.",
            "сервер.md": "# Сервер\n\nМы перенесли базу данных на новый сервер.",
            "книга.md": "# Книги\n\nПрочитал роман Достоевского об игроке.",
        },
        {
            "когда подавать декларацию": "налоги.md",
            "как часто поливать помидоры": "сад.md",
            "поезда до Казани": "поезд.md",
            "перенос баз данных": "сервер.md",
            "романы Достоевского": "книга.md",
        },
    ),
    "mixed": (
        {
            "docker.md": "# Docker 部署\n\n用 docker compose 启动 nginx 容器。",
            "api.md": "# REST API 設計\n\nエンドポイント getUserName は JSON を返す。",
            "k8s.md": "# Kubernetes 배포\n\nHelm chart 로 서비스를 배포합니다.",
            "cpp.md": "# C++ Vorlagen\n\nstd::vector und Templates erklärt.",
            "git.md": "# Git на практике\n\nКоманда git rebase переписывает историю.",
        },
        {
            "如何用 docker 部署 nginx": "docker.md",
            "getUserName が返すもの": "api.md",
            "helm 배포": "k8s.md",
            "C++ vector Templates": "cpp.md",
            "git rebase история": "git.md",
        },
    ),
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_recall_at_5_is_whole_in_every_language(language: str) -> None:
    # The index has every other language, too, so five results are not arbitrary.
    reader = build({name: files for name, (files, _) in LANGUAGES.items()})
    asked = LANGUAGES[language][1]
    found = {text: paths(ask(reader, text))[:5] for text in asked}
    assert [text for text, wanted in asked.items() if wanted not in found[text]] == []
