"""Index of a Unigram vocabulary, `tokenizer.pieces`: finds the pieces of a text in `tokenizer.json` without parsing it.

Imports numpy and the standard library only, as the build of `qmd_multilingual` loads this module by its path. The index
has 64-bit numbers: check sum; characters of the longest piece; begin and end of the pieces in the JSON; places of the
unknown and of the lowest piece; all hashes, ascending; their places. A place is `id << 32 | offset in the JSON`.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from mmap import mmap

import numpy as np
import numpy.typing as npt

_LONGEST = 64
_ENTRY = re.compile(rb'\[\s*"(?:[^"\\]|\\.)*"\s*,\s*-?[\d.eE+-]+\s*\]')


class Pieces:
    """An open index with its JSON; ValueError if it is damaged or of another JSON."""

    def __init__(self, text: mmap, index: mmap) -> None:
        numbers = np.frombuffer(index, "<u8")
        check, self._longest, begin, end, *self._first = numbers[:6].tolist()
        self._text, (self._hashes, self._places) = text, numbers[6:].reshape(2, -1)
        self.rest = text[:begin] + text[end:] if max(len(text), len(index)) <= 40 << 20 else b""
        if not self.rest or zlib.crc32(index[8:], zlib.crc32(self.rest)) != check:
            raise ValueError("the index is not of this file")

    def find(self, words: Sequence[str]) -> dict[int, bytes]:
        """Return JSON by id: the unknown and the lowest piece, all in the words, and perhaps others of equal hashes."""
        hashes = np.concatenate([self._hashes[:0], *(found for _, found in _hashes(words, self._longest))])
        hashes.sort()  # they are found several times as fast then
        at = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        places = [*self._first, *np.unique(self._places[at[self._hashes[at] == hashes]]).tolist()]
        return {place >> 32: _ENTRY.match(self._text, place & 0xFFFFFFFF)[0] for place in places}  # type: ignore[index]


def index_pieces(raw: bytes) -> bytes | None:
    """Return the index of a `tokenizer.json`; None if it is not a Unigram model that an index can serve."""
    content = json.loads(raw)
    model = content["model"]
    if model.get("type") != "Unigram" or model.get("byte_fallback") or model.get("unk_id") is None:
        return None
    pieces, scores = zip(*model["vocab"], strict=True)
    entries = list(islice(_ENTRY.finditer(raw, raw.index(b'"vocab"')), len(pieces)))
    begin, end = entries[0].start(), entries[-1].end()
    rest, lengths = raw[:begin] + raw[end:], np.array([len(piece) for piece in pieces])
    every = np.zeros(lengths.sum(), np.uint64)
    for starts, found in _hashes(pieces, _LONGEST):
        every[starts] = found  # where a piece starts, the last one is of all its characters
    hashes = every[np.cumsum(lengths) - lengths]
    is_served = (
        json.loads(b"[%b]" % b",".join(entry[0] for entry in entries)) == model["vocab"]
        and json.loads(rest) == {**content, "model": {**model, "vocab": []}}
        and (pieces[model["unk_id"]], "[UNK]" in pieces) == ("<unk>", False)  # which `Tokenizer.unknown_share` counts
        and (len(np.unique(hashes)), lengths.max() <= _LONGEST) == (len(pieces), True)
    )
    places = [index << 32 | entry.start() for index, entry in enumerate(entries)]
    first = [lengths.max(), begin, end, places[model["unk_id"]], places[scores.index(min(scores))]]
    order = np.argsort(hashes)
    body = np.concatenate([np.array(first, "<u8"), hashes[order], np.array(places, "<u8")[order]]).tobytes()
    return zlib.crc32(body, zlib.crc32(rest)).to_bytes(8, "little") + body if is_served else None


def _hashes(words: Sequence[str], longest: int) -> Iterator[tuple[npt.NDArray[np.intp], npt.NDArray[np.uint64]]]:
    """Yield for each length the starts and hashes of the substrings of the words, joined to one text."""
    found = points = np.frombuffer("".join(words).encode("utf-32-le"), "<u4").astype(np.uint64) + np.uint64(1)
    lengths = np.array([len(word) for word in words], np.int64)
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(points))
    for size in range(1, min(longest, len(points), _LONGEST) + 1):
        starts = np.flatnonzero(left[: len(found)] >= size)
        yield starts, found[starts]
        found = found[:-1] * np.uint64(0x9E3779B97F4A7C15) + points[size:]
