"""Models as a stranger may send them: weights, folders and archives that are nearly right, or meant to do harm.

A case is a list of (path, kind, content), packed into bytes: what lies in a folder that is imported, one archive, or
one file of weights.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
import tarfile
import zipfile
from collections.abc import Mapping, Sequence

from tests.robustness.generators import Dice, mutate

ABSOLUTE = "/tmp/qmd-hostile-import"
"""A place that nothing may be written to."""
MARK = b"of nobody else's business"
"""In every file around, and in no file that an import makes."""
HIDDEN, HEAD, VOCAB = 32, 16, 40

Entry = tuple[str, str, bytes]
"""Path in the folder; `file`, `link`, `hard` or `pipe`; the content, or where it leads."""
Tensors = dict[str, tuple[tuple[int, ...], bytes]]
"""Shape and bytes by name."""

_CLIMBS = ("../.bashrc", "../../.bashrc", "../../../.bashrc", "../../../../index.sqlite", "../../../../../.bashrc")
_NAMES = (
    *_CLIMBS, ABSOLUTE, f"{ABSOLUTE}/x", "..", ".", "", "/", "~/.bashrc", "a\0b", "x" * 300, "CON", "c:\\x",
    "..\\..\\x", "a/../../b", "prepared/q8/model.onnx", "qmd-model.json", "\udcff", "a\nb", "a\u202eb",
    "MODEL.ONNX", "imported--x", "Qwen3-0.6B", "zhiqing/Qwen3-Reranker-0.6B-seq-cls-ONNX",
    "auto", "/".join("abcdefghijkl"), "-rf", "a" * 5_000,
)  # fmt: skip
VALUES: tuple[object, ...] = (
    0, -1, 1, 2**31, 2**63, 10**400, 1e308, float("inf"), float("nan"), None, True, "", "x", [], {}, [[]],
    [1, 2], {"a": 1},
)  # fmt: skip
_REPOSITORY = "zhiqing/Qwen3-Reranker-0.6B-seq-cls-ONNX"


def pack(entries: Sequence[Entry]) -> bytes:
    """Entries as bytes, which `unpack` turns back."""
    head = [[path, kind, len(content)] for path, kind, content in entries]
    return json.dumps(head).encode() + b"\n" + b"".join(content for _, _, content in entries)


def unpack(case: bytes) -> list[Entry]:
    """What `pack` was given."""
    head, _, rest = case.partition(b"\n")
    entries: list[Entry] = []
    for path, kind, size in json.loads(head):
        entries.append((path, kind, rest[:size]))
        rest = rest[size:]
    return entries


def hostile_json(dice: Dice) -> bytes:
    """JSON that is deep, strange, large, or none."""
    kind = dice.randrange(6)
    if kind == 0:
        return dice.choice((b"[", b'{"a":')) * dice.choice((10, 2_000, 100_000))
    if kind == 1:
        return bytes(
            dice.choice((b"\0", b"", b"\xff\xfe", b"5", b"null", b'"x"', b"[]", b"{}", b"1e999", b"9" * 5_000))
        )
    value = json.dumps({dice.choice(("layers", "model_type", "files", "a")): dice.choice(VALUES)})
    return mutate(value.encode(), dice, 3)


# --- weights --------------------------------------------------------------------------------------


def _tensors(dice: Dice, kinds: dict[str, str], most_changes: int) -> Tensors:
    """One layer of Qwen3 under the names of `kinds`, in single precision, some of it changed."""
    matrix, norm, head = (HIDDEN, HIDDEN), (HIDDEN,), (HEAD,)
    shapes: dict[str, tuple[int, ...]] = {
        "q": matrix,
        "k": (HEAD, HIDDEN),
        "v": (HEAD, HIDDEN),
        "o": matrix,
        "gate": matrix,
        "up": matrix,
    }
    shapes |= {"down": matrix, "embed": (VOCAB, HIDDEN)}
    made: Tensors = {}
    for part, name in kinds.items():
        shape: tuple[int, ...] = shapes.get(part, head if part in ("q_norm", "k_norm") else norm)
        values = [dice.uniform(-0.1, 0.1) for _ in range(shape[0] * (shape[1] if len(shape) > 1 else 1))]
        made[name] = shape, struct.pack(f"<{len(values)}f", *values)
    change_tensors(made, dice, most_changes)
    return made


def change_tensors(made: Tensors, dice: Dice, most_changes: int) -> None:
    """Give some tensors another shape, name, value or length, or leave them out."""
    for _ in range(dice.randint(0, most_changes)):
        name = dice.choice(list(made))
        shape, raw = made[name]
        change = dice.randrange(6)
        if change == 0:
            made[name] = (
                dice.choice(((), (0,), (1,), (HIDDEN,), (7, 5), (2**40, 0), (2**62, 4), (1, 1, 8), (16, 64))),
                raw,
            )
        elif change == 1:
            del made[name]
        elif change == 2:
            made[dice.choice((*_NAMES, "blk.0.x.weight", "model.layers.0.x.bias", name + "x"))] = made[name]
        elif change == 3:
            at = 4 * dice.randrange(len(raw) // 4)
            bad = struct.pack("<f", dice.choice((float("nan"), float("inf"), -float("inf"), 3e38, -1e20, 0.0)))
            made[name] = shape, raw[:at] + bad + raw[at + 4 :]
        elif change == 4:
            made[name] = shape, raw[: len(raw) // 2]
        else:
            made[name] = shape[::-1], raw
        if not made or not all(raw for _, raw in made.values()):
            break


_PARTS = ("q", "k", "v", "o", "gate", "up", "down", "in_norm", "post_norm", "q_norm", "k_norm")
_GGUF = dict(
    zip(
        (*_PARTS, "embed", "norm"),
        (
            *(f"blk.0.attn_{part}.weight" for part in ("q", "k", "v", "output")),
            *(f"blk.0.ffn_{part}.weight" for part in ("gate", "up", "down")),
            *(f"blk.0.{part}.weight" for part in ("attn_norm", "ffn_norm", "attn_q_norm", "attn_k_norm")),
            "token_embd.weight",
            "output_norm.weight",
        ),
        strict=True,
    )
)
_HUB = dict(
    zip(
        (*_PARTS, "embed", "norm"),
        (
            *(f"model.layers.0.self_attn.{part}_proj.weight" for part in "qkvo"),
            *(f"model.layers.0.mlp.{part}_proj.weight" for part in ("gate", "up", "down")),
            *(f"model.layers.0.{part}_layernorm.weight" for part in ("input", "post_attention")),
            *(f"model.layers.0.self_attn.{part}_norm.weight" for part in "qk"),
            "model.embed_tokens.weight",
            "model.norm.weight",
        ),
        strict=True,
    )
)


def _setting(value: object) -> bytes:
    """Type and value of a setting."""
    if isinstance(value, str):
        raw = value.encode("utf-8", "surrogatepass")
        return struct.pack("<IQ", 8, len(raw)) + raw
    if isinstance(value, bool):
        return struct.pack("<IB", 7, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value) if abs(value) < 1e38 or value != value else struct.pack("<Id", 12, value)
    if isinstance(value, int):
        return struct.pack("<IQ", 10, value % 2**64)
    if isinstance(value, bytes):
        return struct.pack("<IIQ", 9, 0, len(value)) + value
    items = list(value) if isinstance(value, (list, tuple, dict)) else []
    if items and all(isinstance(item, float) for item in items):
        return struct.pack(f"<IIQ{len(items)}f", 9, 6, len(items), *items)
    kind = 8 if items and isinstance(items[0], str) else 4
    if kind == 8:
        return struct.pack("<IIQ", 9, 8, len(items)) + b"".join(_setting(str(item))[4:] for item in items)
    numbers = [item if isinstance(item, int) and abs(item) < 2**31 else 0 for item in items]
    return struct.pack(f"<IIQ{len(numbers)}I", 9, 4, len(numbers), *(number % 2**32 for number in numbers))


def gguf_file(dice: Dice) -> bytes:
    """A GGUF file, right in half of all cases but for one value, one shape or a few bytes."""
    tokens = list(dict.fromkeys([*"aword Ġyesno.", "wo", "rd", "<|endoftext|>", "<|im_end|>"]))
    settings: dict[str, object] = {
        "general.architecture": "qwen3",
        "qwen3.block_count": 1,
        "qwen3.rope.freq_base": 1e6,
        "qwen3.attention.layer_norm_rms_epsilon": 1e-6,
        "qwen3.pooling_type": 3,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * (len(tokens) - 2) + [3, 3],
        "tokenizer.ggml.merges": ["w o", "r d"],
        "tokenizer.ggml.eos_token_id": tokens.index("<|endoftext|>"),
    }
    for _ in range(dice.randint(0, 2)):
        name = dice.choice((*settings, "split.count", "general.alignment", "qwen3.rope.scaling.type", "general.tags"))
        settings[name] = dice.choice((*VALUES, "gemma-embedding", "llama", *_NAMES[:3]))
    return write_gguf(settings, _tensors(dice, _GGUF, 2), dice)


def write_gguf(settings: Mapping[str, object], tensors: Tensors, dice: Dice, kinds: Mapping[str, int] = {}) -> bytes:
    """Write settings and tensors of some number formats, now and then with a wrong format, count or byte."""
    count = dice.choice((len(tensors),) * 19 + (2**62,))
    wrong = dice.choice([*tensors, *[""] * 10 * len(tensors)]) if tensors else ""
    raw = b"GGUF" + struct.pack("<IQQ", 3, count, len(settings) if dice.random() < 0.95 else 2**60)
    for name, value in settings.items():
        raw += _setting(name)[4:] + _setting(value)
    offset = 0
    for name, (shape, content) in tensors.items():
        raw += _setting(name)[4:] + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        kind = dice.choice((1, 2, 8, 12, 14, 30, 39, 99)) if name == wrong else kinds.get(name, 0)
        raw += struct.pack("<IQ", kind, offset)
        offset += len(content)
    raw += bytes(-len(raw) % 32) + b"".join(content for _, content in tensors.values())
    return mutate(raw, dice, 2) if dice.random() < 0.4 else raw


def write_safetensors(tensors: Tensors, dice: Dice) -> bytes:
    """Write tensors in single precision, now and then with a wrong header."""
    header: dict[str, object] = {}
    content = b""
    for name, (shape, raw) in tensors.items():
        offsets = [len(content), len(content) + len(raw)]
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": offsets}
        content += raw
    if dice.random() < 0.2:
        entry = header[dice.choice(list(header))] if header else {}
        assert isinstance(entry, dict)
        entry[dice.choice(("dtype", "shape", "data_offsets"))] = dice.choice(VALUES)
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    text = mutate(text, dice, 2) if dice.random() < 0.2 else text
    length = len(text) if dice.random() < 0.95 else dice.choice((0, 2**63, 10**9))
    return length.to_bytes(8, "little") + text + content


def onnx_file(dice: Dice) -> bytes:
    """An ONNX file whose constants lie in other files, named well or badly."""

    def block(number: int, raw: bytes) -> bytes:
        size, octets = len(raw), b""
        while size > 127:
            octets, size = octets + bytes([size & 127 | 128]), size >> 7
        return bytes([number << 3 | 2]) + octets + bytes([size]) + raw

    constants = b""
    for _ in range(dice.randint(0, 3)):
        name = dice.choice(("model.onnx_data", "part/2.bin", *_NAMES)).encode("utf-8", "surrogatepass")
        location = block(13, block(1, b"location") + block(2, name))
        constants += block(5, b"\x08\x01\x10\x01" + block(8, b"c") + location + b"\x70\x01")
    raw = b"\x08\x0a" + block(7, constants) * dice.choice((1, 1, 1, 2))
    return mutate(raw, dice, 3) if dice.random() < 0.5 else raw


def weights(dice: Dice) -> bytes:
    """A GGUF file, a folder of safetensors, or a folder that is a plain download."""
    kind = dice.randrange(5)
    if kind < 2:
        return pack([("m.gguf", "file", gguf_file(dice))])
    if kind == 4:
        return pack([("model.onnx", "file", onnx_file(dice)), ("tokenizer.json", "file", b"{}")])
    config: dict[str, object] = {
        "model_type": "qwen3",
        "num_hidden_layers": 1,
        "tie_word_embeddings": True,
        "eos_token_id": 0,
    }
    for _ in range(dice.randint(0, 2)):
        keys = (*config, "rope_theta", "rms_norm_eps", "rope_parameters", "id2label", "architectures", "layer_types")
        config[dice.choice(keys)] = dice.choice((*VALUES, "gemma3_text"))
    entries: list[Entry] = [("config.json", "file", json.dumps(config).encode())]
    entries += [
        ("model.safetensors", "file", write_safetensors(_tensors(dice, _HUB, 2), dice)),
        ("modules.json", "file", b"[]"),
    ]
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "BPE", "vocab": {"a": 0, "yes": 1, "no": 2}, "merges": []},
    }
    entries.append(("tokenizer.json", "file", json.dumps(tokenizer).encode()))
    if dice.random() < 0.2:
        at = dice.randrange(len(entries))
        entries[at] = (entries[at][0], "file", hostile_json(dice))
    return pack([spoilt(entry, dice) if dice.random() < 0.03 else entry for entry in entries])


# --- folders and archives -------------------------------------------------------------------------


def spoilt(entry: Entry, dice: Dice) -> Entry:
    """The entry as a link, a hard link or a pipe."""
    kind = dice.choice(("link", "link", "hard", "pipe"))
    return entry[0], kind, dice.choice((*_CLIMBS, "model.onnx", "loop", ".", "/etc/hostname", ABSOLUTE)).encode()


def model_entries(dice: Dice) -> list[Entry]:
    """What lies in an exported model, with a record or a manifest that means harm."""
    files = {"model.onnx": onnx_file(dice) if dice.random() < 0.3 else b"x", "tokenizer.json": b"{}"}
    if dice.random() < 0.3:
        files[dice.choice(_NAMES)] = b"PWNED"
    if dice.random() < 0.6:
        path = dice.choice(("model.onnx",) * 100 + _NAMES)
        record: dict[str, object] = {
            "name": "m", "role": "embed", "tier": "full", "repository": "imported/m", "revision": "local",
            "licence": "x", "languages": [], "scripts": [], "files": [], "context": 9, "max_tokens": 9,
            "formats": [{"name": "q8", "weights": {"path": path}, "device": "cpu"}],
        }  # fmt: skip
        for _ in range(dice.choice((0, 0, 1, 2))):
            words = dice.choice((*_NAMES, "built-in", "rerank", f"../{ABSOLUTE}", "imported/x"))
            key = dice.choice(("name", "repository", "tier", "role", "name", "repository", "context", "files"))
            record[key] = words if dice.random() < 0.8 else dice.choice(VALUES)
        source = {"address": dice.choice(_NAMES), "path": "p", "size_bytes": 1, "sha256": "0"}
        files["qmd-import.json"] = _json({"record": record, "source": source, "qmd": "0"})
    listed = [
        {"path": name, "size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in files.items()
    ]
    for item in listed:
        if dice.random() < 0.03:
            item[dice.choice(list(item))] = dice.choice((*VALUES, *_NAMES))
    repository = dice.choice((_REPOSITORY, _REPOSITORY, "x/y", "onnx-community/Qwen3-0.6B-ONNX", *_NAMES))
    if dice.random() < 0.85:
        manifest = {
            "repository": repository,
            "commit": dice.choice(_NAMES) if dice.random() < 0.2 else "a" * 40,
            "files": listed,
        }
        files["qmd-model.json"] = _json(manifest)
    if dice.random() < 0.1:
        files[dice.choice(("qmd-model.json", "qmd-import.json", "config.json"))] = hostile_json(dice)
    entries: list[Entry] = [(name, "file", content) for name, content in files.items()]
    return [spoilt(entry, dice) if dice.random() < 0.05 else entry for entry in entries]


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def archives(dice: Dice) -> bytes:
    """A folder, or an archive of one in the formats that people send."""
    entries = model_entries(dice)
    if dice.random() < 0.4:
        return pack(entries)
    kind = dice.randrange(10)
    if kind == 0:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as made:
            for path, _, content in entries:
                made.writestr(zipfile.ZipInfo(path.encode("utf-8", "replace").decode() or "x"), content)
        return pack([("m.zip", "file", buffer.getvalue())])
    raw = _tar(entries, dice)
    if kind == 1:
        raw += gzip.compress(bytes(dice.choice((1_000, 3_000_000))))
    raw = mutate(raw, dice, 3) if dice.random() < 0.2 else raw
    name = "m.tar"
    if kind > 5:
        raw, name = gzip.compress(raw, 1), "m.tar.gz"
        raw = mutate(raw, dice, 2) if dice.random() < 0.1 else raw
    return pack([(name, "file", raw)])


def _tar(entries: Sequence[Entry], dice: Dice) -> bytes:
    buffer = io.BytesIO()
    kinds = {"file": tarfile.REGTYPE, "link": tarfile.SYMTYPE, "hard": tarfile.LNKTYPE, "pipe": tarfile.FIFOTYPE}
    form = dice.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT))
    with tarfile.open(fileobj=buffer, mode="w", format=form) as made:
        top = dice.choice(("m/", "m/", "./m/", "", "", "../", "m/../", "/"))
        for path, kind, content in entries:
            member = tarfile.TarInfo(top + path)
            member.type = kinds[kind] if dice.random() < 0.97 else dice.choice((tarfile.CHRTYPE, tarfile.DIRTYPE, b"S"))
            member.linkname = content.decode(errors="replace")[:90] if kind in ("link", "hard") else ""
            member.size = len(content) if kind == "file" else 0
            if dice.random() < 0.03:
                member.pax_headers = {"path": dice.choice(_NAMES).replace("\udcff", ""), "size": "99999999999"}
            made.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
