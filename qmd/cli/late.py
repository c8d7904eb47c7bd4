"""Imports typer and msgspec without what they bring along and hardly any command uses, a tenth of a search's time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import ModuleType

_UNUSED = ("difflib", "shutil", "subprocess", "typer.completion", "msgspec.inspect", "msgspec._json_schema")
_OPTIONAL = "typing_extensions"
"""Which msgspec prefers to the same functions of Python's own `typing`."""


class _LateModule(ModuleType):
    """Stands for a module that is imported when a function of it is called."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        is_over = sys.modules.get(self.__name__) is not self
        return getattr(import_module(self.__name__), name) if is_over else partial(_call, self.__name__, name)


def _call(module: str, name: str, *args: object, **settings: object) -> object:
    return getattr(import_module(module), name)(*args, **settings)


@contextmanager
def _in_place_of(modules: dict[str, ModuleType | None]) -> Iterator[None]:
    """While the block runs, whoever imports one of these that is not imported yet gets this instead."""
    put = {name: module for name, module in modules.items() if name not in sys.modules}
    sys.modules.update(put)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in put:
            del sys.modules[name]


_late: dict[str, ModuleType | None] = {name: _LateModule(name) for name in _UNUSED}
with _in_place_of({**_late, _OPTIONAL: None}):
    import msgspec  # noqa: F401
with _in_place_of(_late):
    import typer  # noqa: F401
