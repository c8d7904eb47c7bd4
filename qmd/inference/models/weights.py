"""Where model files lie on this machine."""

from __future__ import annotations

from pathlib import Path

from qmd.errors import ModelError
from qmd.inference.models.catalogue import MINILM
from qmd.inference.models.sentence_transformers import describe_embedder
from qmd.inference.records import EmbedOverrides, ModelFile, ModelFormat, ModelRecord

_FORMAT_BY_FILE = {
    "model_quantized.onnx": "int8",
    "model_int8.onnx": "int8",
    "model_q4f16.onnx": "q4f16",
    "model_fp16.onnx": "fp16",
    "model.onnx": "fp32",
}
"""Usual file names and what they hold. `*_uint8` is left out: unsigned weights run no faster than fp32."""


def locate_builtin() -> Path:
    """The folder of the built-in model: inside an installed package, else in the source tree beside it.

    Raises:
        ModelError: Neither exists, so the installation is not whole.
    """
    package = Path(__file__).resolve().parents[2]
    for folder in (package / "builtin" / MINILM.folder, package.parent / "models" / MINILM.folder):
        if (folder / MINILM.formats[0].weights.path).is_file():
            return folder
    raise ModelError(f"the built-in model is missing from '{package}'", "reinstall qmd")


def locate_model(record: ModelRecord, models_dir: Path) -> Path | None:
    """The folder that holds `record` with at least one whole format, or None when it has not been fetched."""
    if record.tier == "built-in":
        return locate_builtin()
    folder = models_dir / record.folder
    has_weights = any(size_of(folder / item.weights.path) for item in record.formats)
    has_tokenizer = size_of(folder / "tokenizer.json")
    return folder if has_weights and has_tokenizer else None


def describe_folder(folder: Path, overrides: EmbedOverrides = EmbedOverrides()) -> ModelRecord:
    """A record for a folder with an embedding model that the catalogue does not know.

    Weights are looked for under the usual names, here and in `onnx/`.

    Raises:
        ModelError: There are none, or the folder's other files say what is not known.
    """
    formats = tuple(
        ModelFormat(name, ModelFile(prefix + file), "cuda" if name in ("fp16", "fp32", "q4f16") else "cpu")
        for file, name in _FORMAT_BY_FILE.items()
        for prefix in ("", "onnx/")
        if size_of(folder / (prefix + file))
    )
    if not formats:
        raise ModelError(f"no ONNX model in '{folder}'", f"expected one of: {', '.join(_FORMAT_BY_FILE)}")
    return describe_embedder(folder, formats, overrides)


def size_of(path: Path) -> int:
    """Size of a file, 0 where there is none to be read."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0
