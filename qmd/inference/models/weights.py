"""Paths and fingerprints of model files on this machine."""

from __future__ import annotations

import hashlib
from pathlib import Path

from qmd.inference.models.builtin import MULTILINGUAL, find_builtin
from qmd.inference.records import ModelRecord

_VERSION = 1
_SAMPLE_BYTES = 65_536
_SAMPLES = 16


def locate_model(record: ModelRecord, models_dir: Path) -> Path | None:
    """Return the folder with at least one whole format of `record`, or None if it is not on this machine."""
    if record.tier == "built-in":
        return find_builtin(record)
    folder = models_dir / record.folder
    has_weights = any(file_size(folder / item.weights.path) for item in record.formats)
    has_tokenizer = file_size(folder / "tokenizer.json")
    return folder if has_weights and has_tokenizer else None


def file_size(path: Path) -> int:
    """Return the size of a file, 0 if it cannot be read."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0


def encoder_fingerprint(folder: Path, record: ModelRecord, weights: Path) -> str:
    """Return 16 hex digits over weights, tokenizer, pooling, prompts, window and other rules of an encoder's folder."""
    prompts = (record.document_prompt, record.query_prompt)
    further = () if record.rules is None else record.rules.computed
    computed = (_VERSION, record.pooling, prompts, record.max_tokens, record.context, *further)
    if record.tier == MULTILINGUAL.tier and record.name == MULTILINGUAL.name:
        # Its table is in another file than its graph; hashing its tokenizer whole would double the time of this.
        return sampled_digest(weights, repr(computed), *(sampled_digest(folder / file.path) for file in record.files))
    return sampled_digest(weights, repr(computed), (folder / "tokenizer.json").read_bytes())


def sampled_digest(weights: Path, *parts: str | bytes) -> str:
    """Return 16 hex digits over `parts` and 1 MB of a model file: a whole hash would cost 50 ms at every start.

    Training or quantising a model again changes every block, so samples distinguish two files of one size.
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
