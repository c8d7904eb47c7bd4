"""ONNX files read and written without the package `onnx`, against that package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace
from onnx import TensorProto, helper, numpy_helper

from qmd.errors import ModelError
from qmd.inference.models.builtin import locate_builtin
from qmd.inference.onnx_files import FLOAT, Entry, WireError, decode, encode, read_model
from qmd.plugins.onnx.model import (
    Attribute,
    Graph,
    Model,
    Node,
    OnnxFile,
    Opset,
    Tensor,
    attribute,
    tensor_of,
    value_info,
)
from tests.inference.exported_graphs import ExportForm, PlainWriter, PublishedWriter
from tests.inference.tiny_models import PUBLISHED, SHAPE, random_weights

_NAMES = "float32 float64 float16 int8 int16 int32 int64 uint8 uint16 uint32 uint64"
NUMPY_TYPES = _NAMES.split()
VALUES = {
    # type: values that come back, negative and large ones where it has them
    "FLOAT": [0.5, -2.0, 3e38],
    "DOUBLE": [0.5, -2.0, 1e300],
    "FLOAT16": [0.5, -2.0, 65504.0],
    "BFLOAT16": [0.5, -2.0, 256.0],
    "INT8": [0, -128, 127],
    "INT64": [0, -(2**63), 2**63 - 1],
    "UINT64": [0, 2**64 - 1, 7],
    "BOOL": [True, False, True],
}


def _graph_of(*tensors: onnx.TensorProto) -> onnx.ModelProto:
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, "n"])
    node = helper.make_node("Identity", ["x"], ["y"], name="only")
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, "n"])
    return helper.make_model(helper.make_graph([node], "g", [info], [out], list(tensors)))


def _opened(path: Path, *tensors: onnx.TensorProto) -> OnnxFile:
    path.write_bytes(_graph_of(*tensors).SerializeToString())
    return OnnxFile(path)


@pytest.mark.parametrize(
    ("form", "writer"),
    [
        (ExportForm(), PublishedWriter),
        (ExportForm(linear="i16w16", table="fp16", head="score"), PublishedWriter),
        (PUBLISHED, PlainWriter),
    ],
)
def test_onnx_writes_our_graphs_in_equal_bytes(tmp_path: Path, form: ExportForm, writer: type[PublishedWriter]) -> None:
    path = tmp_path / "model.onnx"
    writer(path, SHAPE, replace(form, block=32), random_weights(), external=True).write()
    model = onnx.load(str(path), load_external_data=False)
    assert model.SerializeToString(deterministic=True) == path.read_bytes()
    whole = onnx.load(str(path))
    held = OnnxFile(path)
    for theirs, ours in zip(whole.graph.initializer, held.graph.initializer, strict=True):
        assert np.array_equal(numpy_helper.to_array(theirs), held.array(ours)), ours.name


def test_a_graph_of_standard_operators_passes_the_checker_of_onnx(tmp_path: Path) -> None:
    inputs = (value_info("x", FLOAT, ["batch", 2]),)
    outputs = (value_info("y", FLOAT, ["batch", 2]),)
    nodes = (
        Node(input=("x", "w"), output=("s",), name="sum", op_type="Add"),
        Node(input=("s",), output=("y",), name="turn", op_type="Transpose", attribute=(attribute("perm", [0, 1]),)),
    )
    weight = tensor_of("w", np.array([1, -2], np.float32))
    graph = Graph(node=nodes, name="g", initializer=(weight,), input=inputs, output=outputs)
    opsets = (Opset("", 21),)
    (tmp_path / "m.onnx").write_bytes(encode(Model(ir_version=10, graph=graph, opset_import=opsets)))
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
@pytest.mark.parametrize("dims", [(), (0, 3), (2, 3)])
def test_an_array_is_to_onnx_what_it_was(tmp_path: Path, dtype: str, dims: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 100, dims).astype(dtype)
    theirs = TensorProto.FromString(encode(tensor_of("a", array)))
    assert np.array_equal(numpy_helper.to_array(theirs), array)
    opened = _opened(tmp_path / "m.onnx", numpy_helper.from_array(array, "a"))
    assert np.array_equal(opened.array(tensor_of("a", array)), array)


@pytest.mark.parametrize("kind", VALUES)
def test_values_of_every_type_are_read_and_floats_as_numbers_too(tmp_path: Path, kind: str) -> None:
    as_numbers = helper.make_tensor("a", getattr(TensorProto, kind), [3, 1], VALUES[kind])
    expected = numpy_helper.to_array(as_numbers)
    for tensor in (numpy_helper.from_array(expected, "a"), *([as_numbers] if kind == "FLOAT" else [])):
        held = _opened(tmp_path / "m.onnx", tensor)
        found = held.array(held.graph.initializer[0])
        assert found.shape == (3, 1)
        assert found.astype(object).ravel().tolist() == expected.astype(found.dtype).astype(object).ravel().tolist()


def test_numbers_that_are_packed_are_read_as_those_that_are_not() -> None:
    # ints = 8: packed, and one by one.
    packed, alone = bytes([66, 3, 1, 2, 3]), bytes([64, 1, 64, 2, 64, 3])
    assert decode(Attribute, memoryview(packed)).ints == decode(Attribute, memoryview(alone)).ints == (1, 2, 3)
    # dims = 1, and name = 8 next to them.
    assert decode(Tensor, memoryview(bytes([10, 1, 3]) + b"\x42\x01a")) == Tensor(dims=(3,), name="a")


def test_data_beside_the_file_is_mapped_from_where_it_says(tmp_path: Path) -> None:
    arrays = {name: np.random.default_rng(seed).random((40, 50)) for seed, name in enumerate("abc")}
    model = _graph_of(*(numpy_helper.from_array(array, name) for name, array in arrays.items()))
    onnx.save(model, str(tmp_path / "m.onnx"), save_as_external_data=True, location="m.data", size_threshold=0)
    held = OnnxFile(tmp_path / "m.onnx")
    for tensor in held.graph.initializer:
        found = held.array(tensor)
        assert np.array_equal(found, arrays[tensor.name])
        assert not found.flags.owndata


def test_nodes_attributes_and_signature_are_those_that_onnx_reads() -> None:
    path = locate_builtin() / "model.onnx"
    theirs, ours = onnx.load(str(path)).graph, OnnxFile(path).graph
    assert [(list(n.input), list(n.output), n.op_type, n.domain, n.name) for n in theirs.node] == [
        (list(n.input), list(n.output), n.op_type, n.domain, n.name) for n in ours.node
    ]
    for a, b in zip(theirs.node, ours.node, strict=True):
        expected = {item.name: helper.get_attribute_value(item) for item in a.attribute if item.type in (1, 2, 6, 7)}
        assert {name: list(v) if isinstance(v, tuple) else v for name, v in b.attributes().items()} == expected
    assert [one.name for one in ours.input] == [one.name for one in theirs.input]


def test_what_a_record_does_not_name_is_skipped() -> None:
    class NameOnly(Struct, frozen=True):
        producer_name: Annotated[str, 2] = ""

    path = locate_builtin() / "model.onnx"
    assert read_model(path, NameOnly) == NameOnly(onnx.load(str(path)).producer_name)


def _damaged(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        held = OnnxFile(path)
        for tensor in held.graph.initializer:
            held.array(tensor)
    assert "\n" not in caught.value.message and path.name in caught.value.message
    return caught.value.message


def test_a_file_that_is_cut_off_anywhere_is_refused_in_one_line(tmp_path: Path) -> None:
    content = _graph_of(numpy_helper.from_array(np.arange(9.0), "a")).SerializeToString()
    # The last entries come after the graph: without them the file is another, but a complete one.
    end = content.index(b"Identity") + 20
    for length in range(1, end):
        _damaged(tmp_path / "m.onnx", content[:length])


def test_an_empty_a_missing_and_a_foreign_file_are_refused_in_one_line(tmp_path: Path) -> None:
    assert "empty" in _damaged(tmp_path / "m.onnx", b"")
    assert "no graph" in _damaged(tmp_path / "m.onnx", encode(Model(ir_version=10)))
    _damaged(tmp_path / "m.onnx", b"<!DOCTYPE html><title>404</title>")
    with pytest.raises(ModelError, match="No such file"):
        OnnxFile(tmp_path / "gone.onnx")


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        (Tensor(name="a", dims=(4,), data_type=1, raw_data=memoryview(b"12345678")), "2 values instead of 4"),
        (Tensor(name="a", dims=(-1, -2), data_type=1, raw_data=memoryview(b"12345678")), "2 values"),
        (Tensor(name="a", dims=(1,), data_type=1, raw_data=memoryview(b"123")), "multiple"),
        (Tensor(name="a", dims=(1,), data_type=8), "type 8"),
        (Tensor(name="a", dims=(1,), data_type=1, data_location=1), "folder"),
        (
            Tensor(name="a", dims=(1,), data_type=1, data_location=1, external_data=(Entry("location", "../x"),)),
            "not a file in its folder",
        ),
        (
            Tensor(
                name="a",
                dims=(1,),
                data_type=1,
                data_location=1,
                external_data=(Entry("location", "data"), Entry("offset", "9"), Entry("length", "4")),
            ),
            "'data' is cut off",
        ),
        (
            Tensor(name="a", dims=(1,), data_type=1, data_location=1, external_data=(Entry("location", "gone"),)),
            "No such file",
        ),
    ],
)
def test_a_constant_whose_data_is_not_there_is_named(tmp_path: Path, tensor: Tensor, said: str) -> None:
    (tmp_path / "data").write_bytes(b"x" * 12)
    message = _damaged(tmp_path / "m.onnx", encode(Model(graph=Graph(initializer=(tensor,)))))
    assert said in message and "'a'" in message


class Nested(Struct, frozen=True):
    """A message that contains itself."""

    inner: Annotated[Nested | None, 1] = None


def test_messages_within_messages_end_at_a_depth() -> None:
    inner = b""
    for _ in range(500):
        size = len(inner)
        inner = b"\x0a" + (bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])) + inner
    with pytest.raises(WireError, match="deep"):
        decode(Nested, memoryview(inner))


@settings(max_examples=200)
@given(content=st.binary(max_size=100))
def test_any_bytes_are_a_message_or_a_wire_error(content: bytes) -> None:
    try:
        decode(Model, memoryview(content))
    except ValueError as error:
        assert "\n" not in str(error)
