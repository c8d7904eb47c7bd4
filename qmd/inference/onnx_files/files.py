"""ONNX files on disk: read through a memory map, written whole."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from qmd.errors import ModelError
from qmd.foreign import map_file, short
from qmd.inference.onnx_files.messages import Model
from qmd.inference.onnx_files.wire import decode, encode

_Message = TypeVar("_Message", bound=Struct)


def read_model(path: Path, kind: type[_Message]) -> _Message:
    """What `kind` names of an ONNX file: `Model`, or a record with fewer of its fields, which takes less time.

    Raises:
        ModelError: The file cannot be read or is damaged.
    """
    try:
        return decode(kind, memoryview(map_file(path)))
    except (ValueError, OSError) as exc:
        raise refused(path, getattr(exc, "strerror", None) or str(exc)) from exc


def save_model(path: Path, model: Model) -> None:
    """Write an ONNX file; what its constants have in another file must be there already."""
    path.write_bytes(encode(model))


def refused(path: Path, reason: str) -> ModelError:
    """The error for a file that is not what it should be."""
    return ModelError(f"model file '{path.name}' cannot be read: {short(reason)}", "qmd models verify")
