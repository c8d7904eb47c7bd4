"""Public names of a package that are imported when they are first used."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping


def lazy_names(package: str, names: Container[str], homes: Mapping[str, str], home: str) -> Callable[[str], object]:
    """A package's `__getattr__`.

    Args:
        package: Its `__name__`.
        names: What it exports.
        homes: Name → the module inside the package that defines it, where that is not `home`.
        home: The module that defines all other names.
    """

    def get(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"{package}.{homes.get(name, home)}"), name)

    return get
