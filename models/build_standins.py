"""Build stand-ins of the larger models: the published graphs' operators, types and sizes, with random weights.

    python -m models.build_standins FOLDER [--layers 28] [--only NAME]...

What they compute is nonsense; what they cost is what the real files cost. `tests/benchmarks/bench_inference.py` runs
them. Needs onnx, onnxruntime, numpy and tokenizers, and for all of them about 7 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from qmd.plugins.models.formats.graph_writer import Qwen3Shape
from tests.inference.exported_graphs import ExportForm, PublishedWriter, weight_names

QWEN_LAYERS = 28
ENCODER_VOCAB = 61_056
_PUBLISHED = ExportForm(activations="fp16", linear="fp", block=32, accuracy_level=0, table="fp", last_only=False)
"""As exporters write a decoder: separate projections, logits of every token, a full-precision table."""

_EIGHT_BIT = frozenset(
    f"layers.{index}.{part}"
    for index in range(QWEN_LAYERS)
    for part in ("o", "up", "down", "v")[: 4 if index < 20 else 3]
)
"""104 of the 196 products in layers, as many as in the published CPU file, of the same bytes in all. Which ones its
makers chose by their influence (Kullback-Leibler divergence) is not told.
"""


def qwen_shape(layers: int = QWEN_LAYERS) -> Qwen3Shape:
    """Qwen3-0.6B; fewer layers for a quick look."""
    return Qwen3Shape(
        layers=layers, hidden=1024, heads=16, kv_heads=8, head_size=128, ffn=3072, vocab=151_936, max_positions=4096
    )


def qwen_forms() -> Mapping[str, ExportForm]:
    """Stand-ins of decoders and rerankers by name."""
    prepared = ExportForm()
    score = replace(prepared, head="score")
    return {
        # What `models pull` fetches for a CPU.
        "decoder-cpu-int4": replace(
            _PUBLISHED,
            activations="fp32",
            linear="q4",
            eight_bit=_EIGHT_BIT,
            block=128,
            accuracy_level=4,
            table="q8",
            has_zeros=True,
        ),
        "decoder-q4f16": replace(_PUBLISHED, linear="q4", positions=True),
        "decoder-q4": replace(prepared, linear="q4"),
        "decoder-q8": prepared,
        "reranker-fp16": replace(_PUBLISHED, head="score", past=False),
        # Key-value inputs, which the published file lacks, so that the exact form can share a prefix, too.
        "reranker-fp32": replace(_PUBLISHED, activations="fp32", head="score"),
        "reranker-q8": score,
        "reranker-i16w8": replace(score, linear="i16w8", table="fp16"),
        "reranker-i16w16": replace(score, linear="i16w16", table="fp16"),
    }


class RandomWeights(Mapping[str, npt.NDArray[np.float32]]):
    """Normal noise of the sizes that a shape asks for, made when read; the same for the same name."""

    def __init__(self, shape: Qwen3Shape, form: ExportForm) -> None:
        query, key = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
        self._names = weight_names(shape, form.head)
        self._sizes: dict[str, tuple[int, ...]] = {
            "q": (query, shape.hidden),
            "k": (key, shape.hidden),
            "v": (key, shape.hidden),
            "o": (shape.hidden, query),
            "gate": (shape.ffn, shape.hidden),
            "up": (shape.ffn, shape.hidden),
            "down": (shape.hidden, shape.ffn),
            "embed": (shape.vocab, shape.hidden),
            "score": (1, shape.hidden),
            "q_norm": (shape.head_size,),
            "k_norm": (shape.head_size,),
        }
        self._hidden = shape.hidden

    def __getitem__(self, name: str) -> npt.NDArray[np.float32]:
        if name not in self._names:
            raise KeyError(name)
        size = self._sizes.get(name.rsplit(".", 1)[-1], (self._hidden,))
        if len(size) == 1:
            return np.ones(size, np.float32)
        rng = np.random.default_rng(self._names.index(name))
        return rng.standard_normal(size, dtype=np.float32) * np.float32(0.02)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def build_qwen(folder: Path, form: ExportForm, layers: int) -> None:
    """Write one decoder or reranker to `folder/model.onnx` and its data file."""
    shape = qwen_shape(layers)
    PublishedWriter(folder / "model.onnx", shape, form, RandomWeights(shape, form), external=True).write()


def build_encoder(folder: Path, layers: int = 12, hidden: int = 768, heads: int = 12, ffn: int = 3072) -> None:
    """Write an encoder of jina-embeddings-v2-base's size and structure (ALiBi, gated feed-forward) with a tokenizer.

    `model.onnx` is fp32; `model_quantized.onnx` is what the usual dynamic quantisation makes of it (signed weights).
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = _encoder_graph(layers, hidden, heads, ffn)
    onnx.save(model, str(folder / "model.onnx"))
    quantize_dynamic(
        folder / "model.onnx", folder / "model_quantized.onnx", weight_type=QuantType.QInt8, per_channel=True
    )
    write_word_tokenizer(folder)


def write_word_tokenizer(folder: Path) -> None:
    """A tokenizer in which `w17` is token 17: a text of n such words has n tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {("<pad>" if index == 1 else f"w{index}"): index for index in range(ENCODER_VOCAB)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w3"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    notes = {
        "tokenizer_config.json": {"model_max_length": 8192, "pad_token": "<pad>"},
        "config.json": {"pad_token_id": 1},
        "special_tokens_map.json": {"pad_token": "<pad>"},
    }
    for name, content in notes.items():
        (folder / name).write_text(json.dumps(content), "utf-8")


def _encoder_graph(layers: int, hidden: int, heads: int, ffn: int) -> object:
    """The fp32 graph, of plain operators only."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    nodes: list[object] = []
    constants: list[object] = []

    def constant(name: str, value: npt.NDArray[np.generic]) -> str:
        constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def op(kind: str, inputs: list[str], output: str, **attributes: object) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], name=f"node_{output}", **attributes))
        return output

    def linear(x: str, name: str, rows: int, columns: int) -> str:
        weight = rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(0.02)
        return op("MatMul", [x, constant(f"{name}.weight", weight)], name)

    def norm(x: str, name: str) -> str:
        scale = constant(f"{name}.scale", np.ones(hidden, np.float32))
        bias = constant(f"{name}.bias", np.zeros(hidden, np.float32))
        return op("LayerNormalization", [x, scale, bias], name, axis=-1)

    split = constant("split", np.array([0, 0, heads, hidden // heads], np.int64))
    joined = constant("joined", np.array([0, 0, hidden], np.int64))
    table = constant("words", rng.standard_normal((ENCODER_VOCAB, hidden), dtype=np.float32) * np.float32(0.02))
    x = norm(op("Gather", [table, "input_ids"], "word"), "word.norm")
    bias = _alibi_and_mask(op, constant, heads)
    for index in range(layers):
        p = f"layer{index}"
        q, k, v = (
            op(
                "Transpose",
                [op("Reshape", [linear(x, f"{p}.{part}", hidden, hidden), split], f"{p}.{part}.split")],
                f"{p}.{part}.heads",
                perm=[0, 2, 3, 1] if part == "k" else [0, 2, 1, 3],
            )
            for part in ("q", "k", "v")
        )
        scale = constant(f"{p}.scale", np.array((hidden // heads) ** -0.5, np.float32))
        scores = op("Mul", [op("MatMul", [q, k], f"{p}.scores"), scale], f"{p}.scaled")
        shares = op("Softmax", [op("Add", [scores, bias], f"{p}.biased")], f"{p}.shares", axis=-1)
        mixed = op("Transpose", [op("MatMul", [shares, v], f"{p}.mixed")], f"{p}.rows", perm=[0, 2, 1, 3])
        mixed = linear(op("Reshape", [mixed, joined], f"{p}.joined"), f"{p}.o", hidden, hidden)
        x = norm(op("Add", [x, mixed], f"{p}.sum"), f"{p}.norm")
        gate, up = linear(x, f"{p}.gate", hidden, ffn), linear(x, f"{p}.up", hidden, ffn)
        product = op("Mul", [op("Gelu", [gate], f"{p}.gelu"), up], f"{p}.gated")
        x = norm(op("Add", [x, linear(product, f"{p}.down", ffn, hidden)], f"{p}.sum2"), f"{p}.norm2")
    op("Identity", [x], "last_hidden_state")
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"]) for name in names]
    output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "tokens", hidden])
    graph = helper.make_graph(nodes, "encoder", inputs, [output], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9, producer_name="qmd")


def _alibi_and_mask(op: Callable[..., str], constant: Callable[[str, npt.NDArray[np.generic]], str], heads: int) -> str:
    """-slope * distance, and -10,000 where the mask is 0: (batch, heads, tokens, tokens)."""
    from onnx import TensorProto

    one, zero = constant("one", np.array(1, np.int64)), constant("zero", np.array(0, np.int64))
    length = op("Gather", [op("Shape", ["input_ids"], "shape"), one], "length", axis=0)
    places = op("Cast", [op("Range", [zero, length, one], "places")], "places.float", to=TensorProto.FLOAT)
    column = op("Unsqueeze", [places, constant("axis1", np.array([1], np.int64))], "column")
    distance = op("Abs", [op("Sub", [places, column], "difference")], "distance")
    slopes = (-(2.0 ** (-8.0 * np.arange(1, heads + 1) / heads))).astype(np.float32)
    alibi = op("Mul", [distance, constant("slopes", slopes[:, None, None])], "alibi")
    mask = op("Cast", ["attention_mask"], "mask.float", to=TensorProto.FLOAT)
    hidden = op(
        "Mul",
        [
            op("Sub", [mask, constant("one.float", np.array(1, np.float32))], "absent"),
            constant("far", np.array(1e4, np.float32)),
        ],
        "far.absent",
    )
    axes = constant("axes12", np.array([1, 2], np.int64))
    return op("Add", [alibi, op("Unsqueeze", [hidden, axes], "mask.bias")], "bias")


def build(folder: Path, names: list[str], layers: int) -> None:
    """Build those of `names` that are not there yet."""
    forms = qwen_forms()
    for name in names:
        place = folder / name
        if (place / "done").exists() and (place / "done").read_text() == str(layers):
            continue
        place.mkdir(parents=True, exist_ok=True)
        started = time.perf_counter()
        if name == "encoder":
            build_encoder(place)
        else:
            build_qwen(place, forms[name], layers)
        (place / "done").write_text(str(layers))
        size = sum(path.stat().st_size for path in place.iterdir()) / 1e6
        print(f"{name}: {size:.0f} MB in {time.perf_counter() - started:.0f} s", flush=True)


def main() -> None:
    """Build the stand-ins named on the command line, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=QWEN_LAYERS, help="of the decoders; 28 is the real number")
    known = [*qwen_forms(), "encoder"]
    parser.add_argument("--only", action="append", choices=known, help="may be repeated")
    arguments = parser.parse_args()
    build(arguments.folder, arguments.only or known, arguments.layers)


if __name__ == "__main__":
    main()
