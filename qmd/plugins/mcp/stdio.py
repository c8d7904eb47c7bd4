"""MCP over stdin and stdout, until the client closes stdin or dies."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec, module_from_spec
from types import ModuleType

from qmd.app.index import Index
from qmd.plugins.warm.background import VectorWorker
from qmd.plugins.warm.lifecycle import end_process

_PARENT_POLL_S = 1.0
_IDLE_POLL_S = 5.0


def run_stdio(index: Index) -> None:
    """Serve one client on this process's stdin and stdout, then end the process with status 0."""
    # stdout carries only the protocol.
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s", stream=sys.stderr
    )
    # The reader thread blocks in read(2), where Python never runs its interrupt handler.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _watch_parent(lambda: _end("the parent process ended"))
    _release_while_idle(index)
    _defer_sdk_imports()
    from qmd.plugins.mcp.stdio_session import run_session

    with VectorWorker(index).running():
        run_session(index)
    _end("stdin closed")


class _LazyPackage(ModuleType):
    """Package whose own code, which imports all of its modules, runs at the first use of an attribute."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") or self.__spec__ is None or self.__spec__.loader is None:
            raise AttributeError(name)
        self.__class__ = ModuleType  # type: ignore[assignment]
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def _defer_sdk_imports() -> None:
    """Defer the import of the SDK's clients and its other server, a sixth of the start, until they are used."""
    for name in ("mcp", "mcp.server"):
        if name not in sys.modules and (spec := find_spec(name)) is not None:
            sys.modules[name] = package = module_from_spec(spec)
            package.__class__ = _LazyPackage
            if name == "mcp.server":
                vars(sys.modules["mcp"])["server"] = package


def _end(reason: str) -> None:
    """End the process at once: models and readers have nothing to write, and a running search cannot be joined."""
    # Clients that start a server per call show its stderr, where this line is noise. They may have closed the pipe.
    if os.environ.get("QMD_DEBUG"):
        with suppress(OSError):
            sys.stderr.write(f"Shutting down ({reason})...\n")
    end_process()


def _watch_parent(on_death: Callable[[], None]) -> None:
    """Call `on_death` when the parent process has died; a wrapper may keep our stdin open."""
    parent = os.getppid()
    if parent <= 1 or sys.platform == "win32":
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_POLL_S)
        on_death()

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _release_while_idle(index: Index) -> None:
    def release() -> None:
        while True:
            time.sleep(_IDLE_POLL_S)
            index.release_idle()

    threading.Thread(target=release, name="idle-release", daemon=True).start()
