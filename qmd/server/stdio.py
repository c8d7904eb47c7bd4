"""MCP over stdin and stdout: ends when the client closes stdin, or dies without doing so."""

from __future__ import annotations

import functools
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

from qmd.server.opening import answer_opening, instructions_for, read_line
from qmd.server.service import SearchService

_PARENT_POLL_S = 1.0
_IDLE_POLL_S = 5.0


def run_stdio(service: SearchService) -> None:
    """Serve one client on this process's stdin and stdout, then end the process with status 0."""
    # stdout carries the protocol and nothing else.
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s", stream=sys.stderr
    )
    # The reader thread blocks in read(2), where an interrupt handler of Python's never gets to run.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _watch_parent(lambda: _end("the parent process is gone"))
    _release_while_idle(service)
    first = read_line(sys.stdin.buffer)
    if first:
        _serve(service, first)
    _end("stdin closed")


def _serve(service: SearchService, first: bytes) -> None:
    """Answer the opening line `first` at once if that is simple, and leave the session to the SDK."""
    told = functools.cache(lambda: instructions_for(service))
    opening = answer_opening(first, told)
    if opening is not None:
        sys.stdout.buffer.write(opening[1])
        sys.stdout.buffer.flush()
    # Imported only now: this takes many times as long as all that came before it.
    from qmd.server.stdio_session import run_session

    run_session(service, told(), first, opening[0] if opening else None)


def _end(reason: str) -> None:
    """Leave at once: models and readers hold nothing that must be written, and a running search cannot be joined."""
    try:
        sys.stderr.write(f"Shutting down ({reason})...\n")
        sys.stderr.flush()
        sys.stdout.flush()
    except OSError:
        # The client took the pipes with it.
        pass
    os._exit(0)


def _watch_parent(on_death: Callable[[], None]) -> None:
    """Call back when the process that started this one has died; a wrapper may keep our stdin open for ever."""
    parent = os.getppid()
    if parent <= 1 or sys.platform == "win32":
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_POLL_S)
        on_death()

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _release_while_idle(service: SearchService) -> None:
    def release() -> None:
        while True:
            time.sleep(_IDLE_POLL_S)
            service.release_idle()

    threading.Thread(target=release, name="idle-release", daemon=True).start()
