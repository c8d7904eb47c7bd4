"""Where model files lie on this machine."""

from __future__ import annotations

from pathlib import Path

from qmd.errors import ModelError
from qmd.inference.catalogue import MINILM, ModelRecord

_BUILTIN_FOLDER = MINILM.folder


def locate_builtin() -> Path:
    """The folder of the built-in model: inside an installed package, else in the source tree beside it.

    Raises:
        ModelError: Neither exists, so the installation is not whole.
    """
    package = Path(__file__).resolve().parent.parent
    candidates = (package / "builtin" / _BUILTIN_FOLDER, package.parent / "models" / _BUILTIN_FOLDER)
    for folder in candidates:
        if (folder / MINILM.formats[0].weights.path).is_file():
            return folder
    raise ModelError(f"the built-in model is missing from '{package}'", "reinstall qmd")


def locate_model(record: ModelRecord, models_dir: Path) -> Path | None:
    """The folder that holds `record` with at least one whole format, or None when it has not been fetched."""
    if record.tier == "built-in":
        return locate_builtin()
    folder = models_dir / record.folder
    has_weights = any(_is_whole(folder, item.weights.path) for item in record.formats)
    has_tokenizer = _is_whole(folder, "tokenizer.json")
    return folder if has_weights and has_tokenizer else None


def _is_whole(folder: Path, path: str) -> bool:
    file = folder / path
    try:
        return file.is_file() and file.stat().st_size > 0
    except OSError:
        return False
