"""Leaves out what `lancedb` imports and an index of qmd never uses: the client of catalogues that are asked by REST.

Its thousand data classes take more than half of the time in which `lancedb` is imported (740 of 1,310 ms).
"""

from __future__ import annotations

import sys
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

_CLIENT = "lance_namespace_urllib3_client"


class _Placeholders(Loader):
    """Finds the client's modules, and any class in them, which only keeps what it is given."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] == _CLIENT else None

    def create_module(self, spec: ModuleSpec) -> None:
        """As the interpreter does."""

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__getattr__"] = _placeholder


def _placeholder(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (SimpleNamespace,), {})


def import_without_client() -> None:
    """Put placeholders in its place, in our own program alone: a program that uses qmd may use it as well."""
    if "qmd.__main__" in sys.modules:
        sys.meta_path.insert(0, _Placeholders())
