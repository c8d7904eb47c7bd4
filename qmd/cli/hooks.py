"""Update commands, which collections run before an update."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

from qmd.cli.invocation import Invocation
from qmd.cli.output import is_interactive, out, warn
from qmd.errors import EXIT_FAILURE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from subprocess import Popen

    from qmd.records import Collection

DEFAULT_TIMEOUT_S = 600.0
EXIT_TIMED_OUT = 124
"""Exit status of `timeout(1)`."""
_GRACE_S = 2.0
_LONGEST_S = 1_000_000.0
"""Maximum timeout, near the limit of system calls."""


def git_pull_command(collection: Collection) -> str | None:
    """Return the command of `update --pull` for a collection: a fast-forward pull in a git checkout, else None."""
    folder = collection.path.resolve()
    is_checkout = any((place / ".git").exists() for place in (folder, *folder.parents))
    return "git pull --ff-only" if is_checkout else None


def run_hook(invocation: Invocation, collection: Collection, command: str) -> int:
    """Run a command in the collection's folder, and indent its output on stdout.

    After `QMD_HOOK_TIMEOUT` seconds (default 600, 0 for no limit) the command and its children are ended: a command
    that waits for a password must not block an unattended update.

    Returns:
        Its exit status; 124 after a timeout, 128 plus the number of the signal that killed it.
    """
    import shutil
    import subprocess

    out(f"    Running update command: {command}\n")
    shell = shutil.which("bash") or shutil.which("sh")
    timeout_s = hook_timeout_s(invocation.environ)
    # On a terminal the command shares it, because git may ask for a passphrase.
    owns_group = os.name == "posix" and not is_interactive()
    try:
        process = subprocess.Popen(
            [shell, "-c", command] if shell else command,
            shell=shell is None,
            cwd=collection.path if collection.path.is_dir() else collection.path.parent,
            env=dict(invocation.environ),
            stdin=None if is_interactive() else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=owns_group,
        )
    except OSError as exc:
        warn(f"cannot run the update command of '{collection.name}': {exc.strerror}")
        return EXIT_FAILURE
    with process:
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
            status = process.returncode if process.returncode >= 0 else 128 - process.returncode
        except subprocess.TimeoutExpired:
            stdout, stderr = _end(process, owns_group)
            warn(
                f"the update command of '{collection.name}' was ended after {timeout_s:g} s; "
                "to change the limit, set QMD_HOOK_TIMEOUT to seconds, or to 0 for no limit"
            )
            status = EXIT_TIMED_OUT
        except BaseException:
            # A command in its own session does not receive Ctrl-C.
            _end(process, owns_group)
            raise
    for line in (stdout + stderr).splitlines():
        out(f"    {line}\n")
    return status


def hook_timeout_s(environ: Mapping[str, str]) -> float | None:
    """Return the timeout of an update command in seconds; None without a limit."""
    text = environ.get("QMD_HOOK_TIMEOUT", "").strip()
    if not text:
        return DEFAULT_TIMEOUT_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        warn(f"QMD_HOOK_TIMEOUT '{text}' is not a number of seconds; using {DEFAULT_TIMEOUT_S:g}")
        return DEFAULT_TIMEOUT_S
    return min(seconds, _LONGEST_S) or None


def _end(process: Popen[str], owns_group: bool) -> tuple[str, str]:
    """Terminate the command and its children, then kill them; return its output."""
    import subprocess

    _signal(process, signal.SIGTERM, owns_group)
    try:
        return process.communicate(timeout=_GRACE_S)
    except subprocess.TimeoutExpired:
        _signal(process, getattr(signal, "SIGKILL", signal.SIGTERM), owns_group)
        return process.communicate()


def _signal(process: Popen[str], number: int, owns_group: bool) -> None:
    if not owns_group:
        process.send_signal(number)
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
