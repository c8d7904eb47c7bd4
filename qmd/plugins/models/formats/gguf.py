"""Reader of GGUF, the file format of llama.cpp: a header, settings by name, tensors in the number formats of ggml.

Not by the package `gguf`, which makes arrays of every single string, takes 7.5 s and 480 MB for a vocabulary of 150,000
where this takes .2 s, and does not end with a list that claims 2^60 entries.

Layout (little-endian): `GGUF`, version, number of tensors, number of settings; the settings, each a name, a type and a
value; of each tensor its name, sizes (fastest first), type and place; then, aligned, the tensors themselves.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from qmd.errors import ModelError
from qmd.files import read_regular_file
from qmd.foreign import map_file, reading, short
from qmd.plugins.models.formats.number_formats import FORMATS
from qmd.plugins.models.formats.stored_weights import StoredTensor, check_shape

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT = 32
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_DIMENSIONS = 4
_MOST_VALUES, _MOST_HEAD_VALUES = 3_000_000, 100_000
"""Most settings, entries of lists and tensors of a file, and of its head: the largest vocabularies make 0.8 million."""
_LONGEST_TEXT = 1 << 20
_MOST_BYTES = 256 << 20
"""Most bytes from the file's start to its first tensor."""

_TYPES = {item.number: name for name, item in FORMATS.items()}
_OTHER_NAMES = "Q2_K Q3_K IQ2_XXS IQ2_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S IQ2_S IQ4_XS IQ1_M MXFP4"
_OTHER_TYPES = dict(zip((10, 11, *range(16, 24), 29, 39), _OTHER_NAMES.split(), strict=True))
"""Names of unsupported formats, for the message."""


class GgufFile:
    """An open GGUF file; tensors are read on demand.

    Raises:
        ModelError: It is not a GGUF file, is cut short, or contains a tensor in an unsupported format.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        cursor = _Cursor(path)
        n_tensors = cursor.begin()
        self.settings: dict[str, Any] = dict(cursor.settings())
        if int(self.settings.get("split.count", 1)) > 1:
            parts = f"'{path.name}' is one of {self.settings['split.count']} parts"
            raise ModelError(parts, "join them: llama-gguf-split --merge")
        listed = [cursor.tensor() for _ in range(n_tensors)]
        alignment = int(self.settings.get("general.alignment", _ALIGNMENT)) or _ALIGNMENT
        begin = -(-cursor.at // alignment) * alignment
        whole = np.frombuffer(cursor.bytes, np.uint8)
        self.tensors = {
            name: self._tensor(name, shape, type_id, whole, begin + offset) for name, shape, type_id, offset in listed
        }

    @property
    def architecture(self) -> str:
        """Name of the network's architecture, as `qwen3`."""
        return str(self.settings.get("general.architecture", ""))

    def setting(self, name: str, default: Any = None) -> Any:
        """Return a setting of the architecture: `block_count` is `qwen3.block_count`."""
        return self.settings.get(f"{self.architecture}.{name}", default)

    def _tensor(
        self, name: str, shape: tuple[int, ...], type_id: int, whole: npt.NDArray[np.uint8], start: int
    ) -> StoredTensor:
        if type_id not in _TYPES:
            kind = _OTHER_TYPES.get(type_id, f"number {type_id}")
            raise ModelError(
                f"tensor '{short(name)}' in '{self.path.name}' has type '{kind}', which is not supported",
                f"get the model in one of: {', '.join(sorted(FORMATS))}",
            )
        kind = _TYPES[type_id]
        block, block_bytes = FORMATS[kind].block, FORMATS[kind].block_bytes
        check_shape(name, self.path.name, shape)
        if shape[-1] % block:
            raise ModelError(f"tensor '{short(name)}' of type '{kind}' has rows of {shape[-1]} weights")
        n_rows, row_bytes = math.prod(shape[:-1]), shape[-1] // block * block_bytes
        end = start + n_rows * row_bytes
        if end > len(whole):
            place = f"tensor '{short(name)}' of type '{kind}' ends at byte {end} of {len(whole)}"
            raise ModelError(f"'{self.path.name}' is cut short: {place}", "fetch or copy the file again")
        return StoredTensor(name, shape, kind, whole[start:end].reshape(n_rows, row_bytes))


def read_head(path: Path) -> dict[str, Any]:
    """Read the settings of a GGUF file up to its vocabulary: architecture, name, sizes, pooling. Takes a millisecond.

    Raises:
        ModelError: It is not a GGUF file, or is cut short.
    """
    with reading(path.name):
        cursor = _Cursor(path, _MOST_HEAD_VALUES)
        cursor.begin()
        # Files have the network's settings first; half a million strings follow.
        return dict(cursor.settings(until="tokenizer."))


def is_gguf(path: Path) -> bool:
    """Return True for a file that begins as GGUF does."""
    try:
        return read_regular_file(path, 4) == _MAGIC
    except OSError:
        return False


class _Cursor:
    """Reader of consecutive values from a mapped file."""

    def __init__(self, path: Path, most_values: int = _MOST_VALUES) -> None:
        self._name = path.name
        self.at = 0
        self._n_settings = 0
        self._left = most_values
        try:
            self.bytes = map_file(path)
        except (OSError, ValueError) as exc:
            raise ModelError(f"'{path}' cannot be read: {exc}") from exc

    def begin(self) -> int:
        """Check the header; return the number of tensors."""
        if self.bytes[:4] != _MAGIC:
            raise ModelError(f"'{self._name}' is not a GGUF file", "fetch or copy the file again")
        self.at = 4
        version = self.number("I")
        if version not in _VERSIONS:
            raise ModelError(f"'{self._name}' has version {version} of GGUF; 2 and 3 are read")
        n_tensors, self._n_settings = self.number("Q"), self.number("Q")
        return int(n_tensors)

    def settings(self, until: str | None = None) -> Iterator[tuple[str, Any]]:
        """Yield the name and value of every setting, up to the first whose name begins with `until`."""
        for _ in range(self._n_settings):
            name = self.string()
            if until is not None and name.startswith(until):
                return
            yield name, self.value(self.number("I"))

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """Read name, shape (slowest first), type and offset."""
        name, n_dimensions = self.string(), self.number("I")
        if not 1 <= n_dimensions <= _MAX_DIMENSIONS:
            raise ModelError(f"tensor '{short(name)}' in '{self._name}' has {n_dimensions} dimensions")
        sizes = [int(self.number("Q")) for _ in range(n_dimensions)]
        return name, tuple(reversed(sizes)), int(self.number("I")), int(self.number("Q"))

    def number(self, code: str) -> Any:
        try:
            (value,) = struct.unpack_from(f"<{code}", self.bytes, self.at)
        except struct.error as exc:
            raise self._damage() from exc
        self.at += struct.calcsize(f"<{code}")
        return value

    def string(self) -> str:
        """Read a text with its length before it. Vocabularies may contain pieces of characters."""
        length = self.number("Q")
        end = self.at + length
        self._left -= 1
        if end > min(len(self.bytes), _MOST_BYTES) or length > _LONGEST_TEXT or self._left < 0:
            raise self._damage()
        text = self.bytes[self.at : end].decode("utf-8", "replace")
        self.at = end
        return text

    def value(self, kind: int) -> Any:
        """Read a value of a type; arrays of numbers as numpy arrays, of strings as lists."""
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            raise ModelError(f"'{self._name}' is damaged: a setting has type {kind}")
        inner, length = self.number("I"), self.number("Q")
        self._left -= length if inner in _SCALARS else 0
        if inner == _STRING:
            return [self.string() for _ in range(length)]
        if inner not in _SCALARS:
            raise ModelError(f"'{self._name}' is damaged: a setting is an array of type {inner}")
        size = struct.calcsize(f"<{_SCALARS[inner]}") * length
        if self.at + size > len(self.bytes) or self._left < 0:
            raise self._damage()
        values = np.frombuffer(self.bytes, f"<{np.dtype(_SCALARS[inner]).str[1:]}", length, self.at)
        self.at += size
        return values

    def _damage(self) -> ModelError:
        return ModelError(f"'{self._name}' is cut short or damaged at byte {self.at}", "fetch or copy the file again")
