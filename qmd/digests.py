"""Digests of bytes."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module


def sha256(content: bytes) -> str:
    """The digest in hexadecimal; by OpenSSL, six times as fast and slow to load, where hashlib is imported."""
    for name in ("hashlib",) if "hashlib" in sys.modules else ("_sha2", "_sha256", "hashlib"):
        with suppress(ImportError):
            return str(import_module(name).sha256(content).hexdigest())
    raise AssertionError("hashlib is always there")
