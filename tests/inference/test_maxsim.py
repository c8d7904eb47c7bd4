"""Late interaction: the score by hand, the weights, the deadline."""

import time
from collections.abc import Sequence

import numpy as np
import pytest

from qmd.inference.engines.embedder import load_embedder
from qmd.inference.engines.maxsim import MaxSimReranker, max_similarity
from qmd.inference.models.builtin import MINILM, locate_builtin

PASSAGES = (
    "Bread dough rises overnight in a cold kitchen.",
    "To change a forgotten password, open the account settings and choose reset.",
    "The budget was approved.",
)


@pytest.fixture(scope="module")
def reranker() -> MaxSimReranker:
    return MaxSimReranker(load_embedder(locate_builtin(), MINILM, threads=2).encoder, "MaxSim")


def test_score_is_the_weighted_mean_of_best_cosines() -> None:
    query = np.array([[1, 0], [0, 1]], np.float32)
    assert max_similarity(query, np.array([3, 1], np.float32), np.array([[2, 0]], np.float32)) == 0.75


def test_each_query_token_takes_its_best_passage_token() -> None:
    query = np.array([[1, 0], [0, 1]], np.float32)
    passage = np.array([[0, 5], [7, 0]], np.float32)
    assert max_similarity(query, np.array([1, 1], np.float32), passage) == pytest.approx(1.0)


def test_a_passage_without_tokens_scores_lowest() -> None:
    assert max_similarity(np.ones((1, 2), np.float32), np.ones(1, np.float32), np.zeros((0, 2), np.float32)) == -1.0


def best(scores: Sequence[float | None]) -> int:
    return int(np.argmax(np.array(scores, np.float32)))


def test_the_answer_scores_highest(reranker: MaxSimReranker) -> None:
    assert best(reranker.score("how do I reset my password", PASSAGES)) == 1


def test_what_the_deadline_allows_is_a_prefix(reranker: MaxSimReranker) -> None:
    many = [f"{passage} number {index} " * 12 for index in range(60) for passage in PASSAGES]
    scores = reranker.score("password", many, deadline_s=time.monotonic() + 0.2)
    scored = [score is not None for score in scores]
    assert scored == sorted(scored, reverse=True)


def test_a_cancellation_leaves_the_rest_unscored(reranker: MaxSimReranker) -> None:
    asked: list[int] = []

    def is_cancelled() -> bool:
        asked.append(1)
        return len(asked) > 2

    scores = reranker.score("password", PASSAGES, is_cancelled=is_cancelled)
    assert [score is not None for score in scores] == [True, True, False]


def test_words_outside_the_weights_do_not_count(reranker: MaxSimReranker) -> None:
    def only_bread(words: Sequence[str]) -> Sequence[float]:
        return [float(word == "bread") for word in words]

    weighted = reranker.with_idf(only_bread)
    assert best(weighted.score("bread password", PASSAGES)) == 0


def test_weights_are_asked_for_whole_words(reranker: MaxSimReranker) -> None:
    asked: list[str] = []

    def record(words: Sequence[str]) -> Sequence[float]:
        asked.extend(words)
        return [1.0] * len(words)

    reranker.with_idf(record).score("Reset, unfathomable passwörd2?", PASSAGES)
    assert asked == ["reset", "unfathomable", "passwörd2"]


def test_a_stop_word_moves_the_score_less_than_another_word(reranker: MaxSimReranker) -> None:
    queries = ("password", "the password", "zebra password")
    plain, stop, word = (reranker.score(query, PASSAGES[1:2])[0] for query in queries)
    assert plain is not None and stop is not None and word is not None
    assert abs(stop - plain) < abs(word - plain)


def test_a_query_of_marks_only_scores_nothing(reranker: MaxSimReranker) -> None:
    assert list(reranker.score("?!", PASSAGES)) == [None] * 3


def test_an_intent_shifts_scores_towards_its_words(reranker: MaxSimReranker) -> None:
    plain = reranker.score("overnight", PASSAGES)
    meant = reranker.score("overnight", PASSAGES, intent="account password")
    assert meant[1] - meant[0] > plain[1] - plain[0]  # type: ignore[operator]
