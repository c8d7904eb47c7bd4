"""The tokenizer of a GGUF file, from its vocabulary, as `tokenizer.json` of the package `tokenizers`.

Two kinds are read: byte-level BPE with the splitting of Qwen2 (`gpt2` with `qwen2`), and SentencePiece's BPE with
scores (`llama`, which Gemma has).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from qmd.errors import ModelError
from qmd.plugins.forms.gguf import GgufFile

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
"""Values of `tokenizer.ggml.token_type`."""

_SPLITS = {
    "qwen2": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    )
}
"""How text is cut before merges are looked for, by `tokenizer.ggml.pre`."""

_SPACE = "▁"

_QWEN_END = "<|endoftext|>"
"""What Qwen3-Embedding takes the vector at. Files of before June 2025 name the end of a chat's turn instead, and say
nothing of ends (llama.cpp's issue 14252)."""


def tokenizer_json(file: GgufFile, *, ends_by_default: bool = False) -> dict[str, Any]:
    """The content of `tokenizer.json`.

    Args:
        ends_by_default: Whether an end token follows each text where the file does not say.

    Raises:
        ModelError: The file has no vocabulary, or one of a kind that is not read here.
    """
    vocabulary = _Vocabulary(file)
    kind = vocabulary.setting("model", "")
    if kind == "gpt2":
        content = _byte_level(vocabulary)
    elif kind == "llama":
        content = _sentence_piece(vocabulary)
    else:
        raise ModelError(f"the tokenizer of '{file.path.name}' is of kind '{kind}', which is not read here")
    content["post_processor"] = _template(vocabulary, begins=kind == "llama", ends=ends_by_default)
    return {"version": "1.0", "truncation": None, "padding": None, **content}


class _Vocabulary:
    """Tokens of a file with their types, and the settings around them."""

    def __init__(self, file: GgufFile) -> None:
        self.file = file
        self.tokens: list[str] = self.setting("tokens") or []
        types = self.setting("token_type")
        self.types: Sequence[int] = [_NORMAL] * len(self.tokens) if types is None else types.tolist()
        if not self.tokens or len(self.types) != len(self.tokens):
            raise ModelError(f"'{file.path.name}' holds no whole vocabulary", "get the file again, or another one")

    def setting(self, name: str, default: Any = None) -> Any:
        return self.file.settings.get(f"tokenizer.ggml.{name}", default)

    def ids(self) -> dict[str, int]:
        """Tokens by text, without those that only fill the table up; the first of equal ones counts."""
        found: dict[str, int] = {}
        for index, (token, kind) in enumerate(zip(self.tokens, self.types, strict=True)):
            if kind != _UNUSED:
                found.setdefault(token, index)
        return found

    def added(self) -> list[dict[str, Any]]:
        """Tokens that are found in a text before it is cut: marks of the template and the makers' own."""
        return [
            {
                "id": index,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": kind != _USER_DEFINED,
            }
            for index, (token, kind) in enumerate(zip(self.tokens, self.types, strict=True))
            if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED) and token
        ]


def _byte_level(vocabulary: _Vocabulary) -> dict[str, Any]:
    pre = vocabulary.setting("pre", "default")
    if pre not in _SPLITS:
        raise ModelError(
            f"the tokenizer of '{vocabulary.file.path.name}' cuts text by '{pre}', which is not read here",
            f"read are: {', '.join(_SPLITS)}",
        )
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": _SPLITS[pre]}, "behavior": "Isolated", "invert": False}
    return {
        "added_tokens": vocabulary.added(),
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "decoder": byte_level,
        # A blank within a token is spelt otherwise, so the first one parts the two.
        "model": _bpe(vocabulary, [merge.split(" ", 1) for merge in vocabulary.setting("merges") or ()]),
    }


def _sentence_piece(vocabulary: _Vocabulary) -> dict[str, Any]:
    prefixes = bool(vocabulary.setting("add_space_prefix", True))
    to_mark: list[dict[str, Any]] = [{"type": "Prepend", "prepend": _SPACE}] if prefixes else []
    to_mark.append({"type": "Replace", "pattern": {"String": " "}, "content": _SPACE})
    to_text: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefixes:
        to_text.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "added_tokens": vocabulary.added(),
        "normalizer": {"type": "Sequence", "normalizers": to_mark},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": to_text},
        "model": _bpe(vocabulary, list(_merges(vocabulary)), falls_back=True),
    }


def _bpe(vocabulary: _Vocabulary, merges: Sequence[Sequence[str]], *, falls_back: bool = False) -> dict[str, Any]:
    """The model; `falls_back` spells what is not in the vocabulary as bytes, and else as the unknown token."""
    unknown = vocabulary.setting("unknown_token_id") if falls_back else None
    return {
        "type": "BPE",
        "unk_token": None if unknown is None else vocabulary.tokens[unknown],
        "fuse_unk": falls_back,
        "byte_fallback": falls_back,
        "vocab": vocabulary.ids(),
        "merges": merges,
    }


def _merges(vocabulary: _Vocabulary) -> Iterator[tuple[str, str]]:
    """Pairs in the order of merging.

    SentencePiece joins the two neighbours whose union has the best score; so every way to cut a token into two others
    is a merge, of the token's rank.
    """
    scores = vocabulary.setting("scores")
    if scores is None:
        raise ModelError(f"the vocabulary of '{vocabulary.file.path.name}' has no scores")
    normal = {
        token: index
        for index, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True))
        if kind == _NORMAL
    }
    for token in sorted(normal, key=lambda token: -scores[normal[token]]):
        for cut in range(1, len(token)):
            if token[:cut] in normal and token[cut:] in normal:
                yield token[:cut], token[cut:]


def _template(vocabulary: _Vocabulary, *, begins: bool, ends: bool) -> dict[str, Any] | None:
    """Marks before and after each text."""
    marks = {
        "bos": vocabulary.setting("add_bos_token", begins),
        "eos": vocabulary.setting("add_eos_token", ends),
    }
    ids = {name: vocabulary.setting(f"{name}_token_id") for name, wanted in marks.items() if wanted}
    if "eos" in ids and vocabulary.setting("add_eos_token") is None and _QWEN_END in vocabulary.tokens:
        ids["eos"] = vocabulary.tokens.index(_QWEN_END)
    if any(index is None for index in ids.values()):
        raise ModelError(f"'{vocabulary.file.path.name}' does not say which token begins or ends a text")
    if not ids:
        return None
    pieces: dict[str, Any] = {name: {"SpecialToken": {"id": name, "type_id": 0}} for name in ids}
    text: dict[str, Any] = {"Sequence": {"id": "A", "type_id": 0}}
    single = [*([pieces["bos"]] if "bos" in pieces else []), text, *([pieces["eos"]] if "eos" in pieces else [])]
    specials = {
        name: {"id": name, "ids": [int(index)], "tokens": [vocabulary.tokens[index]]} for name, index in ids.items()
    }
    second = {"Sequence": {"id": "B", "type_id": 0}}
    return {"type": "TemplateProcessing", "single": single, "pair": [*single, second], "special_tokens": specials}
