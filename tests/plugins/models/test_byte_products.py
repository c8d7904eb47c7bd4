"""Products of bytes, two for an input: they stay exact for tokens with outliers, where a single byte does not."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from qmd.inference.models.prepared import has_byte_products
from qmd.inference.onnx_files import FLOAT
from qmd.inference.runtime.sessions import open_session
from qmd.plugins.models.formats.graph_writer import GraphForm, GraphWriter, LinearForm
from qmd.plugins.models.formats.quantize import quantize_rows
from qmd.plugins.onnx.model import value_info
from tests.inference.tiny_models import SHAPE

Floats = npt.NDArray[np.float32]
pytestmark = pytest.mark.skipif(not has_byte_products(), reason="this processor's sums of bytes saturate")


class _OneProduct(GraphWriter):
    """x, (batch, sequence, k), times one weight."""

    def network(self) -> None:
        self.inputs.append(value_info("x", FLOAT, ["batch", "sequence", self.weights["w"].shape[1]]))
        self.op("Identity", [self.linear("x", "w")], outputs=["y"])
        self.outputs.append(value_info("y", FLOAT, ["batch", "sequence", len(self.weights["w"])]))


def _product(folder: Path, form: LinearForm, x: Floats, weight: Floats) -> Floats:
    path = folder / f"{form}.onnx"
    _OneProduct(path, SHAPE, GraphForm(linear=form), {"w": weight}).write()
    session = open_session(path, format="i16w8", threads=1, allow_gpu=False)
    return np.asarray(session.run(["y"], {"x": x})[0], np.float32)


def _error(got: Floats, expected: Floats) -> float:
    """Return the relative error of the worst token."""
    return float((np.linalg.norm(got - expected, axis=-1) / np.linalg.norm(expected, axis=-1)).max())


@pytest.fixture
def weight() -> Floats:
    """Return weights nearly independent of coordinate 7, as if a few tokens had huge values there."""
    values = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    values[:, 7] *= 1e-3
    return values


def test_two_terms_carry_a_token_with_one_huge_coordinate_and_one_term_does_not(tmp_path: Path, weight: Floats) -> None:
    x = np.random.default_rng(1).standard_normal((2, 5, 256)).astype(np.float32)
    x[0, 2, 7] = 1000.0
    peak = np.abs(x).max(-1, keepdims=True) / 127
    assert _error(np.rint(x / peak) * peak @ weight.T, x @ weight.T) > 0.5
    # One byte rounds that coordinate's small weights away; with two, half a step of the input's second term is left.
    assert _error(_product(tmp_path, "i16w8", x, weight), x @ weight.T) < 0.1
    assert _error(_product(tmp_path, "i16w16", x, weight), x @ weight.T) < 0.02


def test_two_terms_of_inputs_and_weights_are_close_to_floats(tmp_path: Path, weight: Floats) -> None:
    x = np.random.default_rng(2).standard_normal((1, 9, 256)).astype(np.float32)
    (values,), scales = quantize_rows(weight)
    assert _error(_product(tmp_path, "i16w8", x, weight), x @ (values * scales[:, None]).T) < 2e-4
    assert 1e-3 < _error(_product(tmp_path, "i16w8", x, weight), x @ weight.T) < 0.02
    assert _error(_product(tmp_path, "i16w16", x, weight), x @ weight.T) < 3e-4


def test_tokens_of_zeros_and_of_any_size_keep_their_scale(tmp_path: Path, weight: Floats) -> None:
    x = np.random.default_rng(3).standard_normal((1, 4, 256)).astype(np.float32)
    x *= np.array([1e-6, 0.0, 1.0, 1e6], np.float32)[:, None]
    got = _product(tmp_path, "i16w16", x, weight)
    assert not got[0, 1].any()
    assert _error(got[:, [0, 2, 3]], (x @ weight.T)[:, [0, 2, 3]]) < 3e-4
