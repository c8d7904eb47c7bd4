"""What tells the vectors of one model from those of another: read from its files, without opening them as a model."""

from __future__ import annotations

import hashlib
from pathlib import Path

from qmd.inference.records import ModelRecord

_VERSION = 1
_SAMPLE_BYTES = 65_536
_SAMPLES = 16


def encoder_fingerprint(folder: Path, record: ModelRecord, weights: Path) -> str:
    """16 hex digits over weights, tokenizer, pooling, prompts, window and further rules of an encoder's folder."""
    prompts = (record.document_prompt, record.query_prompt)
    further = () if record.rules is None else record.rules.computed
    computed = (_VERSION, record.pooling, prompts, record.max_tokens, record.context, *further)
    return sampled_digest(weights, repr(computed), (folder / "tokenizer.json").read_bytes())


def sampled_digest(weights: Path, *parts: str | bytes) -> str:
    """16 hex digits over `parts` and a model file, of which 1 MB is read: a whole hash would cost 50 ms at every start.

    Training or quantising a model anew changes every block, so samples tell two files of one size apart.
    """
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.encode())
    size = weights.stat().st_size
    digest.update(str(size).encode())
    with weights.open("rb") as stream:
        for sample in range(_SAMPLES):
            stream.seek(max(0, size - _SAMPLE_BYTES) * sample // (_SAMPLES - 1))
            digest.update(stream.read(_SAMPLE_BYTES))
    return digest.hexdigest()[:16]
