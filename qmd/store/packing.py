"""The form in which an index keeps texts and links: made before the transaction, which should not wait for it."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence

import msgspec

from qmd.records import Link
from qmd.store.records import PackedLinks

_LEVEL = 3
"""Of ISA-L, which has four. A quarter of the time that zlib takes at its level 5, for a twentieth more room."""

_LEVEL_OF_ZLIB = 5
"""Where ISA-L has no wheel: the same format, made more slowly."""

_DECODER = msgspec.json.Decoder(list[Link])


def pack_text(text: str) -> bytes:
    """The stored form of a text."""
    return _compress(text.encode("utf-8", "surrogatepass"))


def unpack_text(packed: bytes) -> str:
    """The text that `pack_text` was given; raises `zlib.error` or `ValueError` for anything else."""
    return zlib.decompress(packed).decode("utf-8", "surrogatepass")


def pack_links(links: Sequence[Link]) -> PackedLinks:
    """The stored form of links."""
    from qmd.analysis.note_names import link_key

    counts: Counter[int] = Counter()
    for target, n in Counter([link.target for link in links]).items():
        key = link_key(target)
        if key:
            counts[hash_key(key)] += n
    return PackedLinks(_compress(msgspec.json.encode(links)), dict(counts))


def unpack_links(packed: bytes) -> list[Link]:
    """The links that `pack_links` was given; raises `zlib.error` or `ValueError` for anything else."""
    return _DECODER.decode(zlib.decompress(packed))


def hash_key(key: str) -> int:
    """A link's key as the index keeps it: 31 bits, the most that SQLite holds in four bytes.

    Two keys may have the same: what is found by it has to be looked at.
    """
    return zlib.crc32(key.encode()) >> 1


def _compress(raw: bytes) -> bytes:
    # Imported here, as a search compresses nothing.
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib.compress(raw, _LEVEL_OF_ZLIB)
    return isal_zlib.compress(raw, _LEVEL)
