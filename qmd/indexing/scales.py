"""The scale of a model's cosines: measured once, on 100 passages and 32 questions in four languages."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import msgspec

from qmd.inference.base import Embedder
from qmd.inference.records import CosineScale
from qmd.store.base import IndexWriter

_RANK = 3  # of the 25 passages of a language, like the hundredth of 800 notes


def store_scale(writer: IndexWriter, embedder: Embedder) -> None:
    """Measure the scale of an index's model, unless its record or the index has it."""
    fact = f"scale:{embedder.fingerprint}"
    if embedder.scale is None and fact not in writer.facts():
        scale = measure_scale(embedder)
        writer.set_facts({fact: f"{scale.best:.4f} {scale.third:.4f}"})


def measure_scale(embedder: Embedder) -> CosineScale:
    """Return the median over the languages that the model reads; over all if it reads none of them."""
    content = Path(__file__).with_name("scale_texts.json").read_bytes()
    texts = msgspec.json.decode(content, type=dict[str, tuple[list[str], list[str]]]).values()
    scales = []
    for passages, questions in [
        one for one in texts if all(embedder.query_trust(text) == 1 for text in one[1])
    ] or texts:
        cosines = embedder.embed_queries(questions) @ embedder.embed_documents(passages).T
        cosines.sort(axis=1)
        scales.append((float(cosines[:, -1].mean()), float(cosines[:, -_RANK].mean())))
    return CosineScale(*map(median, zip(*scales, strict=True)))
