"""A decoder's graph without its last product, which is computed only for the possible tokens.

A vocabulary of 151,936 rows is a fifth of a line's cost, and exporters multiply it with all tokens of a prompt. The
graph is opened without it and returns hidden states; a session of one node has the rows that a query needs.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from qmd.inference.models.weights import file_size
from qmd.inference.onnx_files import FLOAT, decode, encode, read_model
from qmd.inference.runtime.sessions import import_runtime, mapped_errors
from qmd.plugins.onnx.model import Graph, OnnxFile, ValueInfo, attribute, external_tensor, value_info

_GROUP = 16  # Rows that kernels compute together: a remainder at the end would be summed in another order.


class _Graph(Struct, frozen=True):
    node: Annotated[tuple[memoryview, ...], 1] = ()
    name: Annotated[str, 2] = ""
    initializer: Annotated[tuple[memoryview, ...], 5] = ()
    input: Annotated[tuple[memoryview, ...], 11] = ()
    output: Annotated[tuple[memoryview, ...], 12] = ()


class _Model(Struct, frozen=True):
    ir_version: Annotated[int, 1] = 0
    graph: Annotated[_Graph, 7] = _Graph()
    opset_import: Annotated[tuple[memoryview, ...], 8] = ()


class OutputHead:
    """The last product of the model in a file; `graph` is the model without it, which is opened with `options`.

    Raises:
        LookupError, ModelError, ValueError: The file is damaged, or ends in another product.
    """

    def __init__(self, path: Path, threads: int) -> None:
        if file_size(path) > 64 << 20:
            raise ValueError("its weights are in the file itself, which would be copied")
        file, self._model, self._path, self._threads = OnnxFile(path), read_model(path, _Model), path, threads
        places, graph = _find_last_product(file.graph), self._model.graph
        self._node = file.graph.node[places[-1]]
        constants = {tensor.name: tensor for tensor in file.graph.initializer}
        if self._node.op_type != "MatMulNBits" or constants[self._node.input[2]].data_type != FLOAT:
            raise ValueError("it ends in another product")
        self._size, self._width = (self._node.attributes()[name] for name in "NK")
        weights = (file.array(constants[name]) for name in self._node.input[1:])  # scales, zero points may be flat
        self._weights = [array.reshape(self._size, *(array.shape[1:] or (-1,))) for array in weights]
        kept = tuple(block for index, block in enumerate(graph.node) if index not in places)
        hidden = _block(value_info(self._node.input[0], FLOAT, ("batch", "positions", self._width)))
        others = (block for block in graph.output if decode(ValueInfo, block).name != "logits")
        self.graph = encode(replace(self._model, graph=replace(graph, node=kept, output=(hidden, *others))))
        self.options = {"session.model_external_initializers_file_folder_path": str(path.parent)}
        self._opened = lru_cache(2)(self._open)
        self._chosen: tuple[Any, npt.NDArray[np.int64]] | None = None

    def choose(self, allowed: npt.NDArray[np.bool_]) -> None:
        """Select the rows of the tokens that are true in `allowed`, shape (up to vocabulary,), from now on."""
        self._chosen = self._opened(allowed[: self._size].tobytes())

    def finish(self, hidden: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return logits (batch, vocabulary) of hidden states (batch, width); minus infinity in other rows.

        Before rows are chosen, return the hidden states themselves: enough to compare two ways of reading.
        """
        if self._chosen is None:
            return hidden
        session, columns = self._chosen
        with mapped_errors(self._path.name):
            logits: npt.NDArray[np.float32] = session.run(None, {self._node.input[0]: hidden})[0]
        logits[:, -1] = -np.inf
        return logits.take(columns, axis=1)

    def _open(self, allowed: bytes) -> tuple[Any, npt.NDArray[np.int64]]:
        """Return a session of some rows, and each token's output column: the last one for tokens without a row."""
        runtime, rows = import_runtime(), np.flatnonzero(np.frombuffer(allowed, np.bool_))
        padded = np.pad(rows, (0, _GROUP - len(rows) % _GROUP), mode="edge")
        columns = np.full(self._size, len(padded) - 1)
        columns[rows] = np.arange(len(rows))
        source, *names = self._node.input
        arrays = [array[padded] for array in self._weights]
        changed = (attribute("N", len(padded)) if one.name == "N" else one for one in self._node.attribute)
        graph = _Graph(
            node=(_block(replace(self._node, attribute=tuple(changed))),),
            # The runtime accepts given values only for constants in other files.
            initializer=tuple(_block(external_tensor(*one, "given", 0)) for one in zip(names, arrays, strict=True)),
            input=(_block(value_info(source, FLOAT, ("batch", self._width))),),
            output=(_block(value_info(self._node.output[0], FLOAT, ("batch", len(padded)))),),
        )
        options = runtime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, self._threads
        options.add_external_initializers(names, [runtime.OrtValue.ortvalue_from_numpy(array) for array in arrays])
        model = encode(replace(self._model, graph=graph))
        with mapped_errors(self._path.name):
            return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"]), columns


def _find_last_product(graph: Graph) -> list[int]:
    """Return the index of the node with the logits, and of a change of types before it."""
    makers = {name: place for place, node in enumerate(graph.node) for name in node.output}
    last = makers["logits"]
    return [last, makers[graph.node[last].input[0]]] if graph.node[last].op_type == "Cast" else [last]


def _block(message: Struct) -> memoryview:
    return memoryview(encode(message))
