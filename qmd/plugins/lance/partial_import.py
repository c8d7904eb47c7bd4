"""Partial import of `lancedb`, without its client of REST catalogues, which an index of qmd never uses.

The client's thousand data classes take more than half of the import time (740 of 1,310 ms).
"""

from __future__ import annotations

import sys
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

_CLIENT = "lance_namespace_urllib3_client"


class _Placeholders(Loader):
    """Importer of the client's modules with any class in them, which only stores its arguments."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] == _CLIENT else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Use the interpreter's default."""

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__getattr__"] = _make_placeholder


def _make_placeholder(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (SimpleNamespace,), {})


def import_without_client() -> None:
    """Replace the client by placeholders, only in our own program: a program that uses qmd may need it."""
    if "qmd.__main__" in sys.modules:
        sys.meta_path.insert(0, _Placeholders())
