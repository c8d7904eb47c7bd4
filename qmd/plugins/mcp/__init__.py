"""Serves one index to editors, agents and the command line: MCP, HTTP, the warm process.

Requests come in as protocol messages, are checked, and go out as the records of the retrieval pipeline, rendered for
that protocol. It must not know SQL, models or terminals, and nothing heavy is imported until a server is started. The
SDK's clients and its other server, a sixth of the start, are imported when somebody asks `mcp` or `mcp.server` for one.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec
from types import ModuleType

__all__: list[str] = []


class _Package(ModuleType):
    """A package of which only modules are imported so far: its own code, which imports them all, has yet to run."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") or self.__spec__ is None or self.__spec__.loader is None:
            raise AttributeError(name)
        self.__class__ = ModuleType  # type: ignore[assignment]
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


for _name in ("mcp", "mcp.server"):
    if _name not in sys.modules and (_spec := find_spec(_name)) is not None:
        sys.modules[_name] = module_from_spec(_spec)
        sys.modules[_name].__class__ = _Package
if isinstance(sys.modules.get("mcp"), _Package):
    vars(sys.modules["mcp"])["server"] = sys.modules["mcp.server"]
