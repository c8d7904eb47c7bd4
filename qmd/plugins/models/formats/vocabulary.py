"""The tokenizer of a GGUF file, from its vocabulary, as `tokenizer.json` of the package `tokenizers`.

Four kinds: byte-level BPE with the splitting of Qwen2 (`gpt2` with `qwen2`), SentencePiece's BPE with scores (`llama`,
which Gemma has), the word pieces of BERT (`bert`), and SentencePiece's Unigram (`t5`, which XLM-RoBERTa has).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from qmd.errors import ModelError
from qmd.foreign import short
from qmd.plugins.models.formats.gguf import GgufFile

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
"""Values of `tokenizer.ggml.token_type`."""

_SPLITS = {
    "qwen2": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    )
}
"""Pattern that splits text before merges, by `tokenizer.ggml.pre`."""

_SPACE = "▁"
_LONGEST = 1024
"""Characters of a token, four times those of any known; merges and tries grow by its square."""

_QWEN_END = "<|endoftext|>"
"""End token whose vector Qwen3-Embedding uses. Files from before June 2025 name the end of a chat's turn instead, and
state no end token (llama.cpp's issue 14252)."""


def tokenizer_json(file: GgufFile, *, ends_by_default: bool = False) -> dict[str, Any]:
    """Return the content of `tokenizer.json`.

    Args:
        ends_by_default: An end token follows each text if the file does not state it.

    Raises:
        ModelError: The file has no vocabulary, or one of an unsupported kind.
    """
    vocabulary = _Vocabulary(file)
    kind = vocabulary.setting("model", "")
    kinds = {"gpt2": _byte_level, "llama": _sentence_piece, "bert": _word_pieces, "t5": _unigram}
    if kind not in kinds:
        raise ModelError(f"the tokenizer of '{file.path.name}' is of kind '{short(kind)}', which is not supported")
    content = kinds[kind](vocabulary)
    content["post_processor"] = _template(vocabulary, kind, ends=ends_by_default)
    return {"version": "1.0", "truncation": None, "padding": None, **content}


class _Vocabulary:
    """Tokens of a file with their types, and related settings."""

    def __init__(self, file: GgufFile) -> None:
        self.file = file
        self.tokens: list[str] = self.setting("tokens") or []
        types = self.setting("token_type")
        self.types: Sequence[int] = [_NORMAL] * len(self.tokens) if types is None else types.tolist()
        lengths = list(map(len, self.tokens))
        if not lengths or len(self.types) != len(lengths) or max(lengths) > _LONGEST or sum(lengths) > _LONGEST << 13:
            raise ModelError(f"'{file.path.name}' has no whole vocabulary", "get the file again, or another one")

    def setting(self, name: str, default: Any = None) -> Any:
        return self.file.settings.get(f"tokenizer.ggml.{name}", default)

    def mark(self, name: str, usual: str) -> int:
        """Return the id of a token by the setting that names it, else by its usual text."""
        index = self.setting(f"{name}_token_id")
        index = self.tokens.index(usual) if index is None and usual in self.tokens else index
        if index is None or not 0 <= index < len(self.tokens):
            raise ModelError(f"'{self.file.path.name}' does not say which token is its '{usual}'", "get another file")
        return int(index)

    def ids(self) -> dict[str, int]:
        """Return tokens by text, without those that only fill up the table; the first of equal ones counts."""
        found: dict[str, int] = {}
        for index, (token, kind) in enumerate(zip(self.tokens, self.types, strict=True)):
            if kind != _UNUSED:
                found.setdefault(token, index)
        return found

    def added(self) -> list[dict[str, Any]]:
        """Return tokens that are found in a text before it is split: marks of the template and the makers' own."""
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
            f"the tokenizer of '{vocabulary.file.path.name}' cuts text by '{pre}', which is not supported",
            f"supported: {', '.join(_SPLITS)}",
        )
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": _SPLITS[pre]}, "behavior": "Isolated", "invert": False}
    return {
        "added_tokens": vocabulary.added(),
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "decoder": byte_level,
        # A blank within a token is spelt differently, so the first one separates the two.
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


def _word_pieces(vocabulary: _Vocabulary) -> dict[str, Any]:
    """Return BERT's model. These files mark the beginning of a word, while `tokenizers` marks continuations."""
    vocabulary.tokens = list(map(_word_piece, vocabulary.tokens, vocabulary.types))
    # No setting states it; every cased vocabulary has thousands of capitals, and others a handful.
    n_cased = sum(token != token.lower() for token in vocabulary.tokens if not token.startswith("["))
    clean = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None}
    unknown = vocabulary.tokens[vocabulary.mark("unknown", "[UNK]")]
    prefix = {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    return {
        "added_tokens": vocabulary.added(),
        "normalizer": {"type": "BertNormalizer", **clean, "lowercase": n_cased < len(vocabulary.tokens) / 20},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": unknown, **prefix, "vocab": vocabulary.ids()},
    }


def _word_piece(token: str, kind: int) -> str:
    """Return a token as BERT's own files spell it; a mark as `[CLS]` stays as it is, whatever its type."""
    if len(token) > 1 and token.startswith(_SPACE):
        return token[1:]
    return token if kind == _CONTROL or (token[:1], token[-1:]) == ("[", "]") else f"##{token}"


def _unigram(vocabulary: _Vocabulary) -> dict[str, Any]:
    """Return SentencePiece's model, split at blanks as for XLM-RoBERTa: no piece of its vocabulary spans two words."""
    scores, charsmap = vocabulary.setting("scores", ()), vocabulary.setting("precompiled_charsmap")
    if len(scores) != len(vocabulary.tokens) or not np.isfinite(scores).all():
        raise ModelError(f"the vocabulary of '{vocabulary.file.path.name}' has no whole scores", "get the file again")
    scheme = "always" if vocabulary.setting("add_space_prefix", True) else "never"
    space = {"type": "Metaspace", "replacement": _SPACE, "prepend_scheme": scheme, "split": True}
    pieces = list(zip(vocabulary.tokens, scores.tolist(), strict=True))
    return {
        "added_tokens": vocabulary.added(),
        "normalizer": None if charsmap is None else _normalizer(charsmap.tobytes()),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, space]},
        "decoder": space,
        "model": {"type": "Unigram", "unk_id": vocabulary.mark("unknown", "<unk>"), "vocab": pieces},
    }


def _normalizer(raw: bytes) -> dict[str, Any]:
    """Return SentencePiece's normalisation: a trie's size in bytes, the trie, and its replacements, separated by NULs.

    `tokenizers` ends the process if a node leads out of the trie or a leaf out of the texts, so both are refused.
    Source: a node and its leaf as in darts-clone's double array.
    """
    size = int.from_bytes(raw[:4], "little")
    units, texts = np.frombuffer(raw, "<u4", size // 4, 4).astype(np.int64), raw[4 + size :]
    nodes = np.flatnonzero(units < 1 << 31)  # the others are leaves
    reached = nodes ^ ((units[nodes] >> 10) << ((units[nodes] & 512) >> 6))
    is_whole = size % 4 == 0 and nodes[:1].tolist() == [0] and bool(((reached | 255) < len(units)).all())
    starts = units[reached[units[nodes] & 256 > 0]] & 0x7FFFFFFF if is_whole else np.array([len(texts)])
    # A replacement begins at a letter; the longest in Unicode have 33 bytes.
    begins = np.append(np.frombuffer(texts, np.uint8) & 192 != 128, False)[np.minimum(starts, len(texts))]
    if not begins.all() or max(map(len, texts.split(b"\0"))) > 256:
        raise ValueError("its normalisation of letters leads nowhere, or makes long texts of single ones")
    texts.decode()
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(raw).decode()}


def _bpe(vocabulary: _Vocabulary, merges: Sequence[Sequence[str]], *, falls_back: bool = False) -> dict[str, Any]:
    """Return the BPE model; `falls_back` spells unknown text as bytes, instead of the unknown token."""
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
    """Yield pairs in the order of merging.

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


def _template(vocabulary: _Vocabulary, kind: str, *, ends: bool) -> dict[str, Any] | None:
    """Return the marks before and after each text; BERT always has both."""
    names = ("bos", "<s>"), ("eos", "</s>")
    if kind == "bert":
        names = ("cls", "[CLS]"), ("seperator", "[SEP]")
    defaults = {"bos": kind in ("llama", "t5"), "eos": ends or kind == "t5"}.items()
    wanted = [kind == "bert" or vocabulary.setting(f"add_{key}_token", default) for key, default in defaults]
    ids = {key: vocabulary.mark(*name) for key, name, on in zip(("bos", "eos"), names, wanted, strict=True) if on}
    if "eos" in ids and vocabulary.setting("add_eos_token") is None and _QWEN_END in vocabulary.tokens:
        ids["eos"] = vocabulary.tokens.index(_QWEN_END)
    if not ids:
        return None
    pieces: dict[str, Any] = {name: {"SpecialToken": {"id": name, "type_id": 0}} for name in ids}
    text: dict[str, Any] = {"Sequence": {"id": "A", "type_id": 0}}
    single = [*([pieces["bos"]] if "bos" in pieces else []), text, *([pieces["eos"]] if "eos" in pieces else [])]
    tokens = vocabulary.tokens
    specials = {name: {"id": name, "ids": [int(index)], "tokens": [tokens[index]]} for name, index in ids.items()}
    second = {"Sequence": {"id": "B", "type_id": 0}}
    return {"type": "TemplateProcessing", "single": single, "pair": [*single, second], "special_tokens": specials}
