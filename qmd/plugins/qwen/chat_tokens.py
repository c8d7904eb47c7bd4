"""The tokenizer side of a chat model: template pieces, plain text, end tokens, and the spelling of each token."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from qmd.errors import ModelError
from qmd.inference.models.folders import sha256_of
from qmd.inference.runtime.tokenization import encode, read_json, read_tokenizer

if TYPE_CHECKING:
    import tokenizers

_END_TOKENS = ("<|im_end|>", "<|endoftext|>", "</s>", "<|end|>", "<|eot_id|>", "<eos>")
_MARKUP = re.compile(r"<\|[^|<>]{1,32}\|>|</?think>")
_BYTE_TOKEN = re.compile(r"^<0x([0-9A-Fa-f]{2})>$")

_OPEN: WeakValueDictionary[str, ChatTokenizer] = WeakValueDictionary()
"""Open tokenizers by the digest of the file: reranker and expander share one, which takes .3 s to read."""


class ChatTokenizer:
    """A `tokenizer.json` without truncation and padding, and the tokens that end a text."""

    def __init__(self, inner: tokenizers.Tokenizer, end_ids: frozenset[int]) -> None:
        self._inner = inner
        self._inner.no_truncation()
        self._inner.no_padding()
        self.end_ids = end_ids
        # This part only: the whole, with the vocabulary, takes .2 s.
        decoder = json.loads(inner.decoder.__getstate__()) if inner.decoder else {}
        self._is_byte_level = any(part.get("type") == "ByteLevel" for part in (decoder, *decoder.get("decoders", ())))

    def encode_template(self, text: str) -> list[int]:
        """Return the tokens of trusted text: markup such as `<|im_start|>` becomes single tokens."""
        ids: list[int] = encode(self._inner, text, specials=False).ids
        return ids

    def encode_text(self, text: str) -> list[int]:
        """Return the tokens of a user's or a document's text; chat markup is blanked, so it cannot end the turn."""
        return self.encode_template(clean_text(text))

    def shorten(self, text: str, max_tokens: int) -> str:
        """Return the cleaned text, cut after `max_tokens` tokens."""
        cleaned = clean_text(text)
        encoding = encode(self._inner, cleaned, specials=False)
        if len(encoding.ids) <= max_tokens:
            return cleaned
        end: int = encoding.offsets[max_tokens - 1][1]
        return cleaned[:end]

    def token_id(self, token: str) -> int | None:
        """Return the id of a token, spelled as in the vocabulary."""
        found: int | None = self._inner.token_to_id(token)
        return found

    @property
    def end_tokens(self) -> list[str]:
        """The tokens that end a text, spelled as in the vocabulary."""
        return [self._inner.id_to_token(id_) or str(id_) for id_ in sorted(self.end_ids)]

    @property
    def n_tokens(self) -> int:
        """Size of the vocabulary, added tokens included."""
        size: int = self._inner.get_vocab_size(with_added_tokens=True)
        return size

    def token_bytes(self) -> list[bytes | None]:
        """Return each token's spelling by id; None for added tokens and gaps in the numbering."""
        vocabulary: dict[str, int] = self._inner.get_vocab(with_added_tokens=True)
        table: list[bytes | None] = [None] * (max(vocabulary.values(), default=-1) + 1)
        added = set(self._inner.get_added_tokens_decoder())
        letters = dict.fromkeys(range(256)) | _byte_letters() if self._is_byte_level else {}
        for token, index in vocabulary.items():
            if index not in added:
                table[index] = token.translate(letters).encode("latin-1", "ignore") if letters else _spell(token)
        return table

    def decode(self, tokens: Sequence[int], table: Sequence[bytes | None]) -> str:
        """Return the text of tokens by a table of `token_bytes`, without characters cut at either end."""
        pieces = (table[token] or b"" for token in tokens if token < len(table))
        return b"".join(pieces).decode("utf-8", "ignore")


def clean_text(text: str) -> str:
    """Remove chat markup and lone surrogates, so that the text is safe in a template."""
    return _MARKUP.sub(" ", text).encode("utf-8", "replace").decode("utf-8")


def load_chat_tokenizer(folder: Path) -> ChatTokenizer:
    """Load `tokenizer.json` and the end tokens in `generation_config.json` or `config.json`.

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
    return bytes([int(match[1], 16)]) if match else token.replace("▁", " ").encode("utf-8")


def _byte_letters() -> dict[int, int]:
    """Return the alphabet of byte-level BPE: printable bytes as themselves, letters from U+0100 on for the others."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in printable]
    return {byte: byte for byte in printable} | {0x100 + place: byte for place, byte in enumerate(hidden)}
