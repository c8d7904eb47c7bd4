"""Writes safetensors files, and folders of models in that format."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def write_safetensors(folder: Path, weights: Mapping[str, Floats], kind: str, *, parts: int = 0) -> None:
    """Write `model.safetensors`, or that many files with their index."""
    folder.mkdir(parents=True, exist_ok=True)
    if not parts:
        _write(folder / "model.safetensors", weights, kind)
        return
    placed: dict[str, str] = {}
    for part in range(parts):
        file = f"model-{part + 1:05d}-of-{parts:05d}.safetensors"
        chosen = {name: value for at, (name, value) in enumerate(weights.items()) if at % parts == part}
        _write(folder / file, chosen, kind)
        placed |= dict.fromkeys(chosen, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": placed}))


def _write(path: Path, weights: Mapping[str, Floats], kind: str) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    content = b""
    for name, value in weights.items():
        raw = _bytes(value, kind)
        span = [len(content), len(content) + len(raw)]
        header[name] = {"dtype": kind, "shape": list(value.shape), "data_offsets": span}
        content += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content)


def _bytes(value: Floats, kind: str) -> bytes:
    if kind == "BF16":
        return (np.ascontiguousarray(value, np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return value.astype(np.float16 if kind == "F16" else np.float32).tobytes()


QWEN3_PARTS = {
    "in_norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "post_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
"""Tensors of a layer: qmd's name → Qwen3's name."""
