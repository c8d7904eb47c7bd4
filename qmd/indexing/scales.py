"""The scale of a model's cosines: measured once, on 100 passages and 32 questions in four languages."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import msgspec
from msgspec import Struct

from qmd.inference.base import Embedder
from qmd.inference.records import CosineScale
from qmd.store.base import IndexWriter

_RANK = 3
"""Rank of the second number among the 25 passages of a language, like the hundredth of a vault of 800 notes."""


class _Texts(Struct, frozen=True):
    """Passages of one language, each about another subject, and questions about some of them."""

    passages: list[str]
    questions: list[str]


def store_scale(writer: IndexWriter, embedder: Embedder) -> None:
    """Measure the scale of an index's model, unless its record or the index has it."""
    fingerprint = embedder.fingerprint
    if embedder.scale is None and CosineScale.of(writer.facts(), fingerprint) is None:
        writer.set_facts(measure_scale(embedder).as_fact(fingerprint))


def measure_scale(embedder: Embedder) -> CosineScale:
    """Return the median over the languages that the model reads; over all if it reads none of them."""
    texts = msgspec.json.decode(Path(__file__).with_name("scale_texts.json").read_bytes(), type=dict[str, _Texts])
    understood = [one for one in texts.values() if all(embedder.query_trust(text) == 1 for text in one.questions)]
    scales = [_measure(embedder, one) for one in understood or texts.values()]
    best, third = map(median, zip(*scales, strict=True))
    return CosineScale(round(best, 4), round(third, 4))


def _measure(embedder: Embedder, texts: _Texts) -> tuple[float, float]:
    cosines = embedder.embed_queries(texts.questions) @ embedder.embed_documents(texts.passages).T
    cosines.sort(axis=1)
    return float(cosines[:, -1].mean()), float(cosines[:, -_RANK].mean())
