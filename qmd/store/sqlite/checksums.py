"""SQLite's checksum module: a checksum on every page, verified whenever the page is read."""

from __future__ import annotations

import sys
from pathlib import Path

import apsw

CHECKSUM_BYTES = 8
"""Bytes at the end of each page that SQLite leaves to the checksum module, and by which it knows that it is wanted."""


def register_checksums() -> bool:
    """Put SQLite's checksum module under all files opened from here on; False where this build of apsw lacks it.

    Each page then carries a checksum that is verified whenever it is read, so that a flipped bit in a posting, a vector
    or a pointer is an error and not another answer. Files without room for checksums it leaves alone.
    """
    # A second registration would make the module call itself for ever.
    if "cksmvfs" in apsw.vfs_names():
        return True
    ending = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
    library = Path(apsw.__file__).parent / "sqlite_extra_binaries" / f"cksumvfs{ending}"
    if not library.exists():
        return False
    connection = apsw.Connection(":memory:")
    try:
        connection.enable_load_extension(True)
        connection.load_extension(str(library))
    except apsw.Error:
        return False
    finally:
        connection.close()
    return True
