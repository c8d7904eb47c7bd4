"""Imports of typer and msgspec without rarely used modules, which take a tenth of the time of a search."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType


class _LazyModule(ModuleType):
    """Placeholder of a module that is imported at the first call of a function."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is not self:
            return getattr(import_module(self.__name__), name)
        return lambda *args, **settings: getattr(self, name)(*args, **settings)


_RARELY_USED = ("difflib", "shutil", "subprocess", "typer.completion", "msgspec.inspect", "msgspec._json_schema")
_replaced: dict[str, ModuleType | None] = {name: _LazyModule(name) for name in _RARELY_USED if name not in sys.modules}
# Without `typing_extensions`, msgspec uses the same functions of `typing`.
_replaced |= {} if "typing_extensions" in sys.modules else {"typing_extensions": None}
sys.modules.update(_replaced)  # type: ignore[arg-type]
try:
    import msgspec  # noqa: F401

    if "typing_extensions" in _replaced:
        del sys.modules["typing_extensions"], _replaced["typing_extensions"]
    import typer  # noqa: F401
finally:
    for _name in _replaced:
        del sys.modules[_name]
