"""A model's tokenizer without its own truncation and padding: only this module cuts texts."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from qmd.errors import ModelError
from qmd.foreign import map_file, read_json_file, short

if TYPE_CHECKING:
    import tokenizers


class Tokens(Struct, frozen=True):
    """One encoded text. All three fields have one entry per token, special tokens included."""

    ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    """Code-point spans in the text; (0, 0) for special tokens."""
    is_special: tuple[bool, ...]


_FETCH_AGAIN = "fetch it again: qmd models pull"
_MAX_FILE_BYTES = 40 << 20
"""Most bytes of a tokenizer: Gemma's, the largest known, has 33 MB."""
_MAX_ENCODED_CHARACTERS = 500_000
"""Most characters of one encoding, which takes about 500 bytes a token: five gigabytes for a text of ten megabytes.
More also take longer by an index than parsing XLM-RoBERTa's whole file and encoding by it."""


class Tokenizer:
    """A model's `tokenizer.json`."""

    def __init__(self, inner: tokenizers.Tokenizer, end_id: int | None = None) -> None:
        self._inner = inner
        self._end_id = end_id
        self._inner.no_truncation()
        self._inner.no_padding()
        self._unknown_id: int | None = next(
            (known for token in ("[UNK]", "<unk>") if (known := inner.token_to_id(token)) is not None), None
        )

    @classmethod
    def copy_of(cls, inner: tokenizers.Tokenizer) -> Tokenizer:
        """Copy a tokenizer that its owner continues to use with truncation and padding."""
        import tokenizers

        return cls(tokenizers.Tokenizer.from_str(inner.to_str()))

    def encode(self, text: str, max_length: int | None = None) -> Tokens:
        """Encode with special tokens, and add the end token if the file lacks it.

        Beyond `max_length` tokens the text's end is cut; special tokens stay.
        """
        tokens = self._tokens(text, specials=True)
        ids, spans, special = tokens.ids, tokens.spans, tokens.is_special
        if self._end_id is not None and ids[-1:] != (self._end_id,):
            ids, spans, special = (*ids, self._end_id), (*spans, (0, 0)), (*special, True)
        if max_length is not None and len(ids) > max_length:
            tail = 0
            while tail < len(ids) and special[len(ids) - 1 - tail]:
                tail += 1
            keep = [*range(max(0, max_length - tail)), *range(len(ids) - tail, len(ids))][:max_length]
            ids = tuple(ids[index] for index in keep)
            spans = tuple(spans[index] for index in keep)
            special = tuple(special[index] for index in keep)
        return Tokens(ids, spans, special)

    def _tokens(self, text: str, *, specials: bool) -> Tokens:
        found = encode(self._inner, text, specials=specials)
        return Tokens(tuple(found.ids), tuple(found.offsets), tuple(map(bool, found.special_tokens_mask)))

    def token_starts(self, text: str) -> Sequence[int]:
        """Return the code-point offset of the first character of every token, ascending, without special tokens."""
        if len(text) <= _MAX_ENCODED_CHARACTERS:
            return [start for start, _ in encode(self._inner, text, specials=False).offsets] if text else ()
        starts = array("q")
        begin = 0
        while begin < len(text):
            end = begin + _MAX_ENCODED_CHARACTERS
            if end < len(text):
                # After the last line break or blank that fits.
                end = max(text.rfind("\n", begin, end), text.rfind(" ", begin, end)) + 1 or end
            starts.extend(begin + start for start, _ in encode(self._inner, text[begin:end], specials=False).offsets)
            begin = end
        return starts

    def unknown_share(self, text: str) -> float:
        """Return the share of the text's tokens that the vocabulary lacks, in [0, 1]; 0 for a text without tokens."""
        if self._unknown_id is None or not text:
            return 0.0
        ids = self._tokens(text, specials=False).ids
        return ids.count(self._unknown_id) / len(ids) if ids else 0.0


class QuickTokenizer(Tokenizer):
    """A Unigram tokenizer whose file is parsed whole only for indexing and for long texts.

    A path depends on the pieces within the text and on the lowest score, which gives unknown letters theirs. So a new
    tokenizer of these pieces, out of the same file, cuts the text as the whole one.
    """

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer as Package

        from qmd.inference.runtime.pieces import Pieces

        self._path, self._pieces = path, Pieces(map_file(path), map_file(path.with_suffix(".pieces")))
        self._end_id, self._unknown_id, self._lock = None, next(iter(self._pieces.find(()))), Lock()
        own = {"truncation": None, "padding": None, "model": {"type": "Unigram", "unk_id": 0, "vocab": [["\0", 0.0]]}}
        # Its tokens are words, spelt as the whole tokenizer looks them up.
        self._words = Package.from_str(json.dumps({**json.loads(self._pieces.rest), **own}))

    @cached_property
    def _inner(self) -> tokenizers.Tokenizer:  # type: ignore[override]
        with self._lock:
            return vars(self).get("_inner") or Tokenizer(read_tokenizer(self._path))._inner

    def _tokens(self, text: str, *, specials: bool) -> Tokens:
        if "_inner" not in vars(self) and len(text) <= _MAX_ENCODED_CHARACTERS:
            with suppress(ModelError), _failing("its index is damaged"):
                return self._quick_tokens(text, specials)
        return super()._tokens(text, specials=specials)

    def _quick_tokens(self, text: str, specials: bool) -> Tokens:
        found = self._pieces.find(sorted(set(encode(self._words, text, specials=False).tokens)))
        # Through JSON, as the package reads decimal numbers in its own way.
        model = b'{"version":"1.0","model":{"type":"Unigram","unk_id":0,"vocab":[%b]}}' % b",".join(found.values())
        inner, ids = type(self._words).from_buffer(model), list(found)
        for part in ("normalizer", "pre_tokenizer", "post_processor"):
            setattr(inner, part, getattr(self._words, part))
        inner.add_tokens(list(self._words.get_added_tokens_decoder().values()))
        tokens = Tokenizer(inner)._tokens(text, specials=specials)
        # The post-processor's own tokens have the ids of the file already; one that the pieces lack has none here.
        own = (i if mark else ids[i] for i, mark in zip(tokens.ids, tokens.is_special, strict=True))
        return Tokens(tuple(own), tokens.spans, tokens.is_special)


@contextmanager
def _failing(problem: str) -> Iterator[None]:
    """Turn every failure of the package into a ModelError: plain exceptions, and panics, which are none."""
    try:
        yield
    except BaseException as exc:
        if not isinstance(exc, Exception) and type(exc).__name__ != "PanicException":
            raise
        raise ModelError(f"{problem}: {short(exc)}", _FETCH_AGAIN) from exc


def encode(inner: tokenizers.Tokenizer, text: str, *, specials: bool) -> tokenizers.Encoding:
    """Return the package's tokens of a text.

    Raises:
        ModelError: The tokenizer cannot read it, as if its vocabulary lacks its own unknown token.
    """
    with _failing("the model's tokenizer cannot read a text"):
        try:
            return inner.encode(text, add_special_tokens=specials)
        except (TypeError, UnicodeEncodeError):
            # A lone surrogate, from a file name or a lenient decoder, has no UTF-8 form.
            return inner.encode(text.encode("utf-8", "replace").decode("utf-8"), add_special_tokens=specials)


def read_tokenizer(path: Path) -> tokenizers.Tokenizer:
    """Read a `tokenizer.json`.

    Raises:
        ModelError: The package is missing, or the file is absent or not a tokenizer.
    """
    try:
        import tokenizers
    except ModuleNotFoundError as exc:
        raise ModelError(f"'{exc.name}' is not installed; it has no package for some systems") from exc
    except ImportError as exc:
        raise ModelError(f"tokenizers cannot be imported: {exc}", "reinstall qmd") from exc
    if not path.is_file():
        raise ModelError(f"tokenizer file '{path}' is missing", _FETCH_AGAIN)
    if path.stat().st_size > _MAX_FILE_BYTES:
        raise ModelError(f"tokenizer file '{path}' has more than {_MAX_FILE_BYTES >> 20} MiB", _FETCH_AGAIN)
    with _failing(f"tokenizer file '{path}' is damaged"):
        return tokenizers.Tokenizer.from_file(str(path))


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object of a model's folder, empty if there is no file; a ModelError for other contents."""
    try:
        found = read_json_file(path)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        raise ModelError(f"model file '{path}' cannot be read: {short(exc)}", _FETCH_AGAIN) from exc
    if not isinstance(found, dict):
        raise ModelError(f"model file '{path}' is not a JSON object", _FETCH_AGAIN)
    return found


def load_tokenizer(path: Path, *, is_lower_case: bool = False, end_token: str | None = None) -> Tokenizer:
    """Load the tokenizer of an encoder.

    Args:
        is_lower_case: Lower-case texts first, even if the file does not.
        end_token: Special token that ends every text; added if the file does not end texts with it.

    Raises:
        ModelError: As `read_tokenizer`, or the vocabulary has no such token.
    """
    if not is_lower_case and end_token is None and path.with_suffix(".pieces").is_file():
        with suppress(ModelError), _failing("no index"):
            return QuickTokenizer(path)
    inner = read_tokenizer(path)
    if is_lower_case:
        from tokenizers import normalizers

        own = [inner.normalizer] if inner.normalizer else []
        inner.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])
    end_id: int | None = None
    if end_token is not None:
        end_id = inner.token_to_id(end_token)
        if end_id is None:
            raise ModelError(f"tokenizer file '{path}' has no token '{end_token}', which ends every text", _FETCH_AGAIN)
    return Tokenizer(inner, end_id)
