"""What is made when it is first used, because a search must start in a tenth of a second."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from types import ModuleType
from typing import Any, AnyStr, cast


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


def lazy_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """A regular expression that is compiled when one of its methods is first used."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(pattern, flags))


class _LazyPattern:
    def __init__(self, pattern: Any, flags: int) -> None:
        self._pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> object:
        # Kept on the object, so that the next use finds the compiled pattern's method without coming here.
        value = getattr(re.compile(self._pattern, self._flags), name)
        setattr(self, name, value)
        return value
