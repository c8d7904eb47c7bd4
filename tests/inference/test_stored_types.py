from pathlib import Path

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from qmd.errors import ModelError
from qmd.inference.loader import load_engines
from qmd.inference.models.builtin import locate_builtin
from qmd.inference.models.stored_types import external_files, stored_format
from qmd.inference.settings import EngineSettings
from tests.inference.tiny_models import PUBLISHED, random_weights, write_model
from tests.inference.tiny_tokenizer import write_tokenizer

CASES = {"fp32": (PUBLISHED, "fp32"), "fp16": (replace(PUBLISHED, activations="fp16"), "fp16")}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("external", [False, True])
def test_the_type_of_most_bytes_is_read(tmp_path: Path, case: str, external: bool) -> None:
    form, expected = CASES[case]
    write_model(tmp_path / "model.onnx", form, random_weights(), external=external)
    assert stored_format(tmp_path / "model.onnx") == expected


def test_an_int8_model_is_neither_and_a_missing_file_is_none(tmp_path: Path) -> None:
    assert stored_format(locate_builtin() / "model.onnx") is stored_format(tmp_path / "gone.onnx") is None


@settings(max_examples=50)
@given(content=st.binary(max_size=200))
def test_any_bytes_are_read_without_an_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "model.onnx"
    path.write_bytes(content)
    assert stored_format(path) in (None, "fp16", "fp32")


@pytest.mark.parametrize("activations", ["fp16", "fp32"])
def test_a_reranker_in_a_folder_goes_by_its_name_and_by_what_its_file_holds(tmp_path: Path, activations: str) -> None:
    folder = tmp_path / "my-reranker"
    write_tokenizer(folder)
    form = replace(PUBLISHED, head="score", past=False, positions=False, activations=activations)
    write_model(folder / "model.onnx", form, random_weights())
    engines = load_engines(EngineSettings(tmp_path, rerank=str(folder), allow_gpu=False), ["rerank"])
    assert engines.failures == () and engines.reranker is not None
    assert (engines.reranker.description.model, engines.reranker.description.format) == ("my-reranker", activations)


def _constant(name: str, location: str | None) -> onnx.TensorProto:
    made = onnx.helper.make_tensor(name, onnx.TensorProto.FLOAT, [1], bytes(4), raw=True)
    if location is not None:
        onnx.external_data_helper.set_external_data(made, location, 0, 4)
        made.ClearField("raw_data")
    return made


def _graph(path: Path, *locations: str | None) -> Path:
    constants = [_constant(f"c{number}", location) for number, location in enumerate(locations)]
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], constants)), path)
    return path


def test_the_files_that_hold_constants_are_read_from_the_graph(tmp_path: Path) -> None:
    path = _graph(tmp_path / "model.onnx", "model.onnx.data", None, "part/2.bin", "model.onnx.data")
    assert external_files(path) == ("model.onnx.data", "part/2.bin")
    assert external_files(_graph(path, None)) == ()
    path.write_bytes(b"no model")
    assert external_files(path) == () == external_files(tmp_path / "absent.onnx")


@pytest.mark.parametrize(
    "location",
    [
        *("../secret", "/etc/passwd", "a/../../b", "C:\\b", "..\\b"),
        *(".", "a\0b", "/", "x/../..", "CON", "a" * 300, "//x"),
    ],
)
def test_a_graph_whose_constants_lie_outside_its_folder_is_refused(tmp_path: Path, location: str) -> None:
    with pytest.raises(ModelError, match="not a file in its folder") as caught:
        external_files(_graph(tmp_path / "model.onnx", location))
    assert "\n" not in caught.value.message and len(caught.value.message) < 500
