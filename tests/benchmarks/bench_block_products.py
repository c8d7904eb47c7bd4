"""Cost of the layouts of quantised weights in ONNX Runtime: one product of a token with a matrix.

    python -m tests.benchmarks.bench_block_products

Process-CPU time of one thread, best of several runs that take turns.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

K, N = 2048, 6144
ROUNDS, RUNS = 6, 10
LAYOUTS: Mapping[str, tuple[int, int, str]] = {
    "4-bit blocks of 32": (4, 32, ""),
    "4-bit blocks of 32 with offsets": (4, 32, "offsets"),
    "8-bit blocks of 128": (8, 128, ""),
    "8-bit blocks of 32": (8, 32, ""),
    "8-bit blocks of 16": (8, 16, ""),
    "4-bit blocks of 32, floating zero points": (4, 32, "zeros"),
}


def session(bits: int, block: int, more: str) -> Any:
    """Open a graph of one product with random weights."""
    rng = np.random.default_rng(0)
    constants = {
        "levels": rng.integers(0, 256, (N, K // block, block * bits // 8), dtype=np.uint8),
        "scales": np.full((N, K // block), 0.001, np.float32),
    }
    inputs = ["x", "levels", "scales"]
    if more == "zeros":
        constants["zeros"] = rng.uniform(4, 10, N * (K // block)).astype(np.float32)
        inputs.append("zeros")
    output = "product" if more == "offsets" else "y"
    options: dict[str, Any] = {"K": K, "N": N, "bits": bits, "block_size": block, "accuracy_level": 4}
    nodes = [helper.make_node("MatMulNBits", inputs, [output], domain="com.microsoft", **options)]
    if more == "offsets":
        constants["offsets"] = rng.standard_normal((K // block, N)).astype(np.float32)
        constants["cut"] = np.array([0, 0, K // block, block])
        constants["axis"] = np.array([-1])
        nodes += [
            helper.make_node("Reshape", ["x", "cut"], ["blocks"]),
            helper.make_node("ReduceSum", ["blocks", "axis"], ["sums"], keepdims=0),
            helper.make_node("MatMul", ["sums", "offsets"], ["added"]),
            helper.make_node("Add", ["product", "added"], ["y"]),
        ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", "s", n]) for name, n in (("x", K), ("y", N))]
    held = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "product", ends[:1], ends[1:], held)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])


def main() -> None:
    """Measure and print a table."""
    sessions = {name: session(*layout) for name, layout in LAYOUTS.items()}
    x = np.random.default_rng(1).standard_normal((1, 1, K)).astype(np.float32)
    best = dict.fromkeys(sessions, float("inf"))
    for _ in range(ROUNDS):
        for name, opened in sessions.items():
            begin = time.process_time()
            for _ in range(RUNS):
                opened.run(None, {"x": x})
            best[name] = min(best[name], (time.process_time() - begin) / RUNS)
    first = next(iter(best.values()))
    print("| layout | time | |\n|---|---|---|")
    for name, seconds in best.items():
        print(f"| {name} | {seconds * 1e3:.2f} ms | {seconds / first:.1f} |")


if __name__ == "__main__":
    main()
