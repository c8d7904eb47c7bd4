"""What is made when it is first used, because a search must start in a tenth of a second."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from types import ModuleType


def lazy_names(package: str, names: Container[str], homes: Mapping[str, str], home: str) -> Callable[[str], object]:
    """A package's `__getattr__`: public names that are imported when they are first used.

    Args:
        package: Its `__name__`.
        names: What it exports.
        homes: Name → the module inside the package that defines it, where that is not `home`.
        home: The module that defines all other names.
    """

    def get(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(load_module(f"{package}.{homes.get(name, home)}"), name)

    return get


def load_module(name: str) -> ModuleType:
    """The module of that dotted name; `importlib.import_module` without importing importlib."""
    return __import__(name, fromlist=["*"])
