"""Fixtures shared by the tests of every engine."""

from tests.store.conftest import make_document

__all__ = ["make_document"]
