"""Fixtures shared by the tests of every engine."""

from tests.store.conftest import make

__all__ = ["make"]
