"""The tokenizer side of a chat model: template pieces, plain text, end tokens, and what each token spells."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from qmd.errors import ModelError
from qmd.inference.models.folders import sha256_of
from qmd.inference.runtime.tokenization import read_json, read_tokenizer

if TYPE_CHECKING:
    import tokenizers

_END_TOKENS = ("<|im_end|>", "<|endoftext|>", "</s>", "<|end|>", "<|eot_id|>", "<eos>")
_MARKUP = re.compile(r"<\|[^|<>]{1,32}\|>|</?think>")
_BYTE_TOKEN = re.compile(r"^<0x([0-9A-Fa-f]{2})>$")


_OPEN: WeakValueDictionary[str, ChatTokenizer] = WeakValueDictionary()
"""By the digest of the file: the reranker's is the expander's, and takes .3 s to read."""


class ChatTokenizer:
    """`tokenizer.json` with its truncation and padding switched off, and the tokens that end a text."""

    def __init__(self, inner: tokenizers.Tokenizer, end_ids: frozenset[int]) -> None:
        self._inner = inner
        self._inner.no_truncation()
        self._inner.no_padding()
        self.end_ids = end_ids
        # Its part alone: the whole, with the vocabulary, takes .2 s.
        decoder = json.loads(inner.decoder.__getstate__()) if inner.decoder else {}
        self._is_byte_level = any(part.get("type") == "ByteLevel" for part in (decoder, *decoder.get("decoders", ())))

    def encode_template(self, text: str) -> list[int]:
        """Tokens of trusted text: `<|im_start|>` and its like become single tokens."""
        ids: list[int] = self._inner.encode(text, add_special_tokens=False).ids
        return ids

    def encode_text(self, text: str) -> list[int]:
        """Tokens of a user's or a document's text, in which chat markup is blanked: it may not end the turn."""
        return self.encode_template(clean_text(text))

    def shorten(self, text: str, max_tokens: int) -> str:
        """The text, cleaned, up to its token of that number."""
        cleaned = clean_text(text)
        encoding = self._inner.encode(cleaned, add_special_tokens=False)
        if len(encoding.ids) <= max_tokens:
            return cleaned
        end: int = encoding.offsets[max_tokens - 1][1]
        return cleaned[:end]

    def token_id(self, token: str) -> int | None:
        """Id of a token as the vocabulary spells it."""
        found: int | None = self._inner.token_to_id(token)
        return found

    @property
    def end_tokens(self) -> list[str]:
        """The tokens that end a text, as the vocabulary spells them."""
        return [self._inner.id_to_token(id_) or str(id_) for id_ in sorted(self.end_ids)]

    @property
    def n_tokens(self) -> int:
        """Size of the vocabulary, added tokens included."""
        size: int = self._inner.get_vocab_size(with_added_tokens=True)
        return size

    def token_bytes(self) -> list[bytes | None]:
        """What each token spells, by id; None for added tokens and holes in the numbering."""
        vocabulary: dict[str, int] = self._inner.get_vocab(with_added_tokens=True)
        table: list[bytes | None] = [None] * (max(vocabulary.values(), default=-1) + 1)
        added = set(self._inner.get_added_tokens_decoder())
        letters = dict.fromkeys(range(256)) | _byte_letters() if self._is_byte_level else {}
        for token, index in vocabulary.items():
            if index not in added:
                table[index] = token.translate(letters).encode("latin-1", "ignore") if letters else _spell(token)
        return table

    def decode(self, tokens: Sequence[int], table: Sequence[bytes | None]) -> str:
        """Text of tokens by a table of `token_bytes`; a character cut at either end is left out."""
        pieces = (table[token] or b"" for token in tokens if token < len(table))
        return b"".join(pieces).decode("utf-8", "ignore")


def clean_text(text: str) -> str:
    """Text without chat markup and lone surrogates, safe to put into a template."""
    return _MARKUP.sub(" ", text).encode("utf-8", "replace").decode("utf-8")


def load_chat_tokenizer(folder: Path) -> ChatTokenizer:
    """Load `tokenizer.json` and the end tokens that `generation_config.json` or `config.json` names.

    Raises:
        ModelError: The file is absent or damaged, or no end token is known.
    """
    path = folder / "tokenizer.json"
    digest = sha256_of(path) if path.is_file() else ""
    known = _OPEN.get(digest)
    inner = known._inner if known is not None else read_tokenizer(path)
    ends: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        value = read_json(folder / name).get("eos_token_id")
        ends.update(item for item in (value if isinstance(value, list) else [value]) if isinstance(item, int))
    ends.update(found for token in _END_TOKENS if (found := inner.token_to_id(token)) is not None)
    if not ends:
        raise ModelError(f"'{folder}' names no end-of-text token", "add generation_config.json to the folder")
    if known is None or known.end_ids != ends:
        known = _OPEN[digest] = ChatTokenizer(inner, frozenset(ends))
    return known


def _spell(token: str) -> bytes:
    match = _BYTE_TOKEN.match(token)
    if match:
        return bytes([int(match[1], 16)])
    return token.replace("▁", " ").encode("utf-8")


def _byte_letters() -> dict[int, int]:
    """The alphabet of byte-level BPE: printable bytes stand for themselves, letters from U+0100 on for the others."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in printable]
    return {byte: byte for byte in printable} | {0x100 + place: byte for place, byte in enumerate(hidden)}
