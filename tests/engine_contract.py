"""What every engine must do, as three checks that another package can run on its own.

An embedder, reranker or expander that passes them does what indexing and searching rely on. Whether it is any good is
another matter: `qmd bench` tells.
"""

import math
import re
import time
from typing import get_args

import numpy as np

from qmd.inference.base import Embedder, Expander, Reranker
from qmd.inference.records import Tier
from qmd.records import SubQueryKind

TEXTS = (
    "Reset a forgotten password in the settings of the account, then restore the backup.",
    "Bread.",
    "Straße, naïve, 東京 and \U0001f600 in one line.",
    "",
)
QUERY = "how to reset a password"


def check_embedder(embedder: Embedder, tolerance: float = 1e-4) -> None:
    """Vectors, tokens and identity of an embedder.

    Args:
        tolerance: How far the values of a text's vector may move with the texts beside it.
    """
    assert embedder.description.role == "embed" and embedder.description.tier in get_args(Tier)
    assert re.fullmatch("[0-9a-f]{16}", embedder.fingerprint)
    assert embedder.scale is None or embedder.scale.best > embedder.scale.third
    assert embedder.dim > 0 and embedder.max_tokens > 0
    done: list[int] = []
    vectors = embedder.embed_documents(TEXTS, done.append)
    assert vectors.shape == (len(TEXTS), embedder.dim) and vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors[:2], axis=1), 1, atol=1e-3)
    assert done == sorted(done) and done[-1] == len(TEXTS)
    assert np.allclose(embedder.embed_documents(TEXTS[::-1]), vectors[::-1], atol=tolerance)
    assert embedder.embed_documents([]).shape == embedder.embed_queries([]).shape == (0, embedder.dim)
    queries = embedder.embed_queries([QUERY, "Bread."])
    assert queries.shape == (2, embedder.dim) and np.allclose(np.linalg.norm(queries, axis=1), 1, atol=1e-3)
    for text in TEXTS:
        starts = list(embedder.token_starts(text))
        assert starts == sorted(starts) and all(0 <= start < len(text) for start in starts)
        assert isinstance(embedder.embeds(text), bool) and 0 <= embedder.query_trust(text) <= 1
    assert embedder.embeds(TEXTS[0]) and len(embedder.token_starts(TEXTS[0])) > 5


def check_reranker(reranker: Reranker, tolerance: float = 1e-4) -> None:
    """Scores, their order, and how a reranker ends early."""
    assert reranker.description.role == "rerank" and reranker.description.tier in get_args(Tier)
    passages = [*TEXTS[:3], TEXTS[0]]
    scores = _numbers(reranker, passages)
    assert abs(scores[0] - scores[3]) <= tolerance
    assert np.allclose(_numbers(reranker, passages[::-1]), scores[::-1], atol=tolerance)
    assert len(_numbers(reranker, passages, intent="an account that was locked")) == len(passages)
    assert list(reranker.score(QUERY, [])) == []
    assert _numbers(reranker, passages, deadline_s=time.monotonic() + 600) == scores
    assert list(reranker.score(QUERY, passages, deadline_s=time.monotonic() - 1)) == [None] * len(passages)
    # It is asked between runs, so what runs first may have a score.
    cancelled = reranker.score(QUERY, passages, is_cancelled=lambda: True)
    assert len(cancelled) == len(passages) and None in cancelled


def _numbers(reranker: Reranker, passages: list[str], **options: object) -> list[float]:
    scores = reranker.score(QUERY, passages, **options)  # type: ignore[arg-type]
    numbers = [score for score in scores if score is not None]
    assert len(numbers) == len(passages) and all(map(math.isfinite, numbers))
    return numbers


def check_expander(expander: Expander) -> None:
    """Sub-queries of an expander, and how it ends early."""
    assert expander.description.role == "expand" and expander.description.tier in get_args(Tier)
    for found in (
        expander.expand(QUERY),
        expander.expand(QUERY, intent="an account that was locked"),
        expander.expand(QUERY, deadline_s=time.monotonic() + 0.001),
        expander.expand(QUERY, is_cancelled=lambda: True),
    ):
        assert all(one.kind in get_args(SubQueryKind) and one.text.strip() for one in found.subqueries)
        assert all(reason for _, reason in found.dropped)
