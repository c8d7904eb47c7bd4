"""Runs of commands on real terminals, pipes, full disks and closed descriptors.

As a program it reads runs as JSON from stdin and writes their outputs to stdout. Each run is a fork with its own
descriptors, so a hundred commands cost as much as two starts.
"""

import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qmd.cli.app import main


@dataclass(frozen=True)
class Shown:
    """Output of one run; bytes that are not UTF-8 are lone surrogates."""

    status: int
    out: str
    err: str


def run_all(requests: Sequence[dict[str, Any]]) -> list[Shown]:
    """Return the output of each run: `argv`, `streams` (stdin, stdout, stderr for `_channel`), optional `env`,
    `python` to run instead of a command, `gone` for a deleted working directory."""
    sent = [{**one, "argv": [os.fsencode(word).decode("latin-1") for word in one["argv"]]} for one in requests]
    done = subprocess.run(
        [sys.executable, __file__],
        input=json.dumps(sent),
        capture_output=True,
        encoding="utf-8",
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TERM": "xterm", "PAGER": ""},
    )
    return [Shown(one["status"], _text(one["stdout"]), _text(one["stderr"])) for one in json.loads(done.stdout)]


def _text(written: str) -> str:
    return written.encode("latin-1").decode("utf-8", "surrogateescape")


def _run(request: dict[str, Any]) -> dict[str, Any]:
    """Run one command in its own process."""
    reads: dict[int, str] = {}
    ends: list[int | None] = []
    for name, kind in zip(("stdin", "stdout", "stderr"), request["streams"], strict=True):
        ours, theirs = _channel(kind)
        ends.append(theirs)
        if ours is not None and name != "stdin":
            reads[ours] = name
    pid = os.fork()
    if pid == 0:
        _become(request, ends)
    for end in ends:
        if end is not None:
            os.close(end)
    written = {"stdout": b"", "stderr": b""}
    while reads:
        for end in select.select(list(reads), [], [])[0]:
            try:
                piece = os.read(end, 65536)
            except OSError:  # a terminal whose other end is closed
                piece = b""
            written[reads[end]] += piece
            if not piece:
                os.close(end)
                del reads[end]
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return {"status": status, **{name: text.decode("latin-1") for name, text in written.items()}}


def _channel(kind: str) -> tuple[int | None, int | None]:
    """Return (our end, the program's end) of a stream that is `tty`, `ended`, `pipe`, `full`, `empty` or `closed`."""
    if kind == "closed":
        return None, None
    if kind == "full":
        return None, os.open("/dev/full", os.O_WRONLY)
    if kind == "empty":
        return None, os.open(os.devnull, os.O_RDONLY)
    if kind in ("tty", "ended"):
        import pty
        import termios
        import tty

        ours, theirs = pty.openpty()
        if kind == "ended":
            os.write(ours, b"\x04")
        else:
            tty.setraw(theirs, termios.TCSANOW)  # keep line feeds unchanged
        return ours, theirs
    return os.pipe()


def _become(request: dict[str, Any], ends: list[int | None]) -> None:
    """Become the program with these descriptors."""
    status = 99
    try:
        for number, end in enumerate(ends):
            if end is None:
                os.close(number)
            else:
                os.dup2(end, number)
        os.closerange(3, 100)
        sys.stdin, sys.stdout, sys.stderr = (
            None if end is None else os.fdopen(number, mode, closefd=False)
            for number, (end, mode) in enumerate(zip(ends, "rww", strict=True))
        )
        os.environ.update(request.get("env", {}))
        if "gone" in request:
            # the working directory of a shell whose folder was deleted
            shutil.rmtree(request["gone"], ignore_errors=True)
            Path(request["gone"]).mkdir()
            os.chdir(request["gone"])
            Path(request["gone"]).rmdir()
        argv = [word.encode("latin-1").decode("utf-8", "surrogateescape") for word in request["argv"]]
        if request.get("python"):
            exec(request["python"], {})
            status = 0
        else:
            status = main(argv)
    finally:
        os._exit(status)


if __name__ == "__main__":
    requests = json.load(sys.stdin)
    answers = [_run(request) for request in requests]
    json.dump(answers, sys.stdout)
