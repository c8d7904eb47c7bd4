"""Tensors of a GGUF or safetensors file under the names that our graphs read, in the blocks the file holds them in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from qmd.errors import ModelError
from qmd.plugins.forms.quantize import BlockQuantized
from qmd.plugins.forms.stored_blocks import HeldBlocks, Layout, hold, hold_table, layout_of
from qmd.plugins.forms.weights_files.stored import StoredTensor


class HeldWeights(Mapping[str, "npt.NDArray[np.float32]"]):
    """What `GraphWeights` is to an ONNX file: float32 by name when asked for; and the blocks, unrounded.

    Args:
        tensors: By our names.
        made: Weights that are computed from others, as a reranker's score.
        source: The file's name, for messages.
        on_bytes: Told of the bytes of each tensor once it is read.
    """

    def __init__(
        self,
        tensors: Mapping[str, StoredTensor],
        made: Mapping[str, npt.NDArray[np.float32]],
        source: str,
        on_bytes: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._tensors = tensors
        self._made = made
        self._source = source
        self._on_bytes = on_bytes

    def __getitem__(self, name: str) -> npt.NDArray[np.float32]:
        if name in self._made:
            return self._made[name]
        tensor = self._read(name)
        return tensor.floats()

    def __contains__(self, name: object) -> bool:
        return name in self._made or name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter({**self._made, **self._tensors})

    def __len__(self) -> int:
        return len({**self._made, **self._tensors})

    def layout(self, name: str) -> Layout:
        """The blocks a matrix is held in, without reading it."""
        return layout_of(self._stored(name).type)

    def blocks(self, name: str) -> HeldBlocks:
        """A matrix in its blocks."""
        return hold(self._read(name))

    def table(self, name: str) -> BlockQuantized:
        """A matrix whose rows are looked up."""
        return hold_table(self._read(name))

    def _read(self, name: str) -> StoredTensor:
        tensor = self._stored(name)
        self._on_bytes(tensor.rows.nbytes)
        return tensor

    def _stored(self, name: str) -> StoredTensor:
        if name not in self._tensors:
            raise ModelError(f"weight '{name}' is not found in '{self._source}'", "is the file whole?")
        return self._tensors[name]
