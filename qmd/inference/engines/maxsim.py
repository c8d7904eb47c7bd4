"""Late interaction: passages scored by the built-in encoder's token vectors, without further weights."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from qmd.analysis.stopwords import stop_words_of
from qmd.inference.base import EngineDescription
from qmd.inference.engines.embedder import TokenEncoder
from qmd.inference.records import Vectors
from qmd.inference.runtime.parallel import map_in_time
from qmd.inference.runtime.tokenization import Tokens

Idf = Callable[[Sequence[str]], Sequence[float]]
"""Lower-case words → weight of each, >= 0; rarer words weigh more."""

STOP_WORD_WEIGHT = 0.1
"""Weight of a stop word relative to another word when no document frequencies are given."""

INTENT_WEIGHT = 0.5
"""Weight of the words of an intent relative to the query's own."""

_QUERY_TOKENS = 64


class MaxSimReranker:
    """A `Reranker`: weighted mean over query tokens of the best cosine to any token of the passage.

    A query token has its word's weight, divided among the word's pieces. Scores are in [-1, 1], in practice 0.2-0.9.

    Source: Khattab and Zaharia, SIGIR 2020 (ColBERT); the weighted mean instead of the sum makes queries comparable.
    """

    def __init__(self, encoder: TokenEncoder, model: str, idf: Idf | None = None) -> None:
        self._encoder = encoder
        self.session = encoder.session
        self._idf = idf
        self.description = EngineDescription("rerank", model, self.session.format, "built-in", self.session.got)

    def with_idf(self, idf: Idf) -> MaxSimReranker:
        """Return the same reranker, with query words weighted by a collection's document frequencies."""
        return MaxSimReranker(self._encoder, self.description.model, idf)

    def score(
        self,
        query: str,
        passages: Sequence[str],
        *,
        intent: str | None = None,
        deadline_s: float | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> Sequence[float | None]:
        """Return one score per passage in the order given; None after `deadline_s` (a `time.monotonic` value).

        Passages are cut at the model's context. Repeated passages are computed once. A passage that would outlast the
        deadline, judged by the pace so far, is not scored.
        """
        vectors, weights, s_per_token = self._query_vectors(query, intent)
        scores: list[float | None] = [None] * len(passages)
        if not len(weights):
            return scores
        rows: dict[str, list[int]] = {}
        for row, passage in enumerate(passages):
            rows.setdefault(passage, []).append(row)
        batch = [self._encoder.tokenizer.encode(passage, self._encoder.context) for passage in rows]
        encoded = map_in_time(
            self._encoder.encode,
            batch,
            [len(tokens.ids) for tokens in batch],
            self._encoder.threads,
            deadline_s=deadline_s,
            is_cancelled=is_cancelled,
            s_per_unit=s_per_token,
        )
        for tokens, same, found in zip(batch, rows.values(), encoded, strict=False):
            # The special tokens match everything a little.
            own = np.logical_not(tokens.is_special)
            value = max_similarity(vectors, weights, found[own])
            for row in same:
                scores[row] = value
        return scores

    def _query_vectors(self, query: str, intent: str | None) -> tuple[Vectors, Vectors, float]:
        """Return query token vectors, shape (n, dim), weights above 0, shape (n,), and seconds a token."""
        s_per_token = 0.0
        vectors: list[Vectors] = []
        weights: list[Vectors] = []
        for text, factor in ((query, 1.0), (intent or "", INTENT_WEIGHT)):
            tokens = self._encoder.tokenizer.encode(text, _QUERY_TOKENS)
            weight = np.array(self._weights(text, tokens), dtype=np.float32) * np.float32(factor)
            if weight.any():
                started = time.monotonic()
                vectors.append(self._encoder.encode(tokens)[weight > 0])
                # Passages will share the processor with each other, as this query does not.
                s_per_token = (time.monotonic() - started) * self._encoder.threads / len(tokens.ids)
                weights.append(weight[weight > 0])
        if not weights:
            return np.zeros((0, 1), np.float32), np.zeros(0, np.float32), 0.0
        return np.concatenate(vectors), np.concatenate(weights), s_per_token

    def _weights(self, text: str, tokens: Tokens) -> list[float]:
        """Return each token's weight: its word's weight over the number of its pieces; 0 for marks and specials."""
        owners, words = _words(text, tokens)
        if not words:
            return [0.0] * len(owners)
        if self._idf is not None:
            by_word = list(self._idf(words))
        else:
            stops = stop_words_of(words)
            by_word = [STOP_WORD_WEIGHT if word in stops else 1.0 for word in words]
        pieces = [owners.count(index) for index in range(len(words))]
        return [0.0 if owner is None else by_word[owner] / pieces[owner] for owner in owners]


def max_similarity(query: Vectors, weights: Vectors, passage: Vectors) -> float:
    """Return the weighted mean over query tokens of the best cosine to a passage token.

    Args:
        query: Shape (n, dim).
        weights: Shape (n,), >= 0, not all 0.
        passage: Shape (m, dim); an empty passage scores -1.

    Example: query [[1, 0], [0, 1]], weights [3, 1], passage [[2, 0]] → (3 * 1 + 1 * 0) / 4 = 0.75.
    """
    if not len(passage):
        return -1.0
    best = (_normalised(query) @ _normalised(passage).T).max(axis=1)
    return float(best @ weights / weights.sum())


def _normalised(vectors: Vectors) -> Vectors:
    result: Vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return result


def _words(text: str, tokens: Tokens) -> tuple[list[int | None], list[str]]:
    """Return each token's index of its word, or None, and the words, lower-case.

    Pieces that touch belong to one word; a token without letter or digit belongs to none and ends a word.
    """
    owners: list[int | None] = []
    words: list[str] = []
    last_end = -1
    for (start, end), special in zip(tokens.spans, tokens.is_special, strict=True):
        piece = text[start:end].strip().lower()
        if special or not any(map(str.isalnum, piece)):
            owners.append(None)
            last_end = -1
            continue
        if words and start == last_end and text[start : start + 1].strip():
            words[-1] += piece
        else:
            words.append(piece)
        owners.append(len(words) - 1)
        last_end = end
    return owners, words
