"""Imports typer and msgspec without what they bring along and hardly any command uses, a tenth of a search's time."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType


class _Late(ModuleType):
    """Stands for a module that is imported when a function of it is called."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is not self:
            return getattr(import_module(self.__name__), name)
        return lambda *args, **settings: getattr(self, name)(*args, **settings)


_UNUSED = ("difflib", "shutil", "subprocess", "typer.completion", "msgspec.inspect", "msgspec._json_schema")
_put: dict[str, ModuleType | None] = {name: _Late(name) for name in _UNUSED if name not in sys.modules}
# msgspec prefers its functions to the same ones of Python's own `typing`.
_put |= {} if "typing_extensions" in sys.modules else {"typing_extensions": None}
sys.modules.update(_put)  # type: ignore[arg-type]
try:
    import msgspec  # noqa: F401

    if "typing_extensions" in _put:
        del sys.modules["typing_extensions"], _put["typing_extensions"]
    import typer  # noqa: F401
finally:
    for _name in _put:
        del sys.modules[_name]
