"""What the tests of every engine share."""

from tests.store.conftest import make_document

__all__ = ["make_document"]
