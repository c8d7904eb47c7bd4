"""The form in which an index keeps texts and links: made before the transaction, which should not wait for it."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence

import msgspec

from qmd.records import Link
from qmd.store.records import PackedLinks

# A tenth smaller than with zlib's level 1; level 6 takes a sixth more time for half a per cent.
_TEXT_LEVEL = 5

# A third less time than level 6 takes, for a twentieth more room.
_LINKS_LEVEL = 1

_Row = tuple[str, str, str, int, bool]
"""The fields of `Link` in order."""


def pack_text(text: str) -> bytes:
    """The stored form of a text."""
    return zlib.compress(text.encode("utf-8", "surrogatepass"), _TEXT_LEVEL)


def unpack_text(packed: bytes) -> str:
    """The text that `pack_text` was given; raises `zlib.error` or `ValueError` for anything else."""
    return zlib.decompress(packed).decode("utf-8", "surrogatepass")


def pack_links(links: Sequence[Link]) -> PackedLinks:
    """The stored form of links."""
    from qmd.analysis.link_targets import link_key

    keys = [key for link in links if (key := link_key(link.target))]
    packed = zlib.compress(msgspec.json.encode([msgspec.structs.astuple(link) for link in links]), _LINKS_LEVEL)
    return PackedLinks(packed, dict(Counter(map(hash_key, keys))))


def unpack_links(packed: bytes) -> list[Link]:
    """The links that `pack_links` was given; raises `zlib.error` or `ValueError` for anything else."""
    return [Link(*row) for row in msgspec.json.decode(zlib.decompress(packed), type=list[_Row])]


def hash_key(key: str) -> int:
    """A link's key as the index keeps it: 31 bits, the most that SQLite holds in four bytes.

    Two keys may have the same: what is found by it has to be looked at.
    """
    return zlib.crc32(key.encode()) >> 1
