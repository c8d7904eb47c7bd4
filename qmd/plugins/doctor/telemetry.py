"""Traces of ONNX Runtime's telemetry on this machine, from before `qmd` switched it off (see `qmd.NO_TELEMETRY`)."""

from __future__ import annotations

import re
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_FOLDER = Path("Microsoft", "DeveloperTools", ".onnxruntime")
_FILES = ("deviceid", "deviceid.lock", "deviceid.tmp.*", "onnxruntime.db", "onnxruntime.db-*", "onnxruntime.db.ses")
"""Lasting identifier of the device, and events that wait to be sent."""
_SESSION_FILE = ".ses"
"""File of the reporting library in the temporary folder: start of the session, and its identifier."""
_SESSION = re.compile(rb"\d{13}\n[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\n?")


def remove_traces(home: Path, environ: Mapping[str, str]) -> list[Path]:
    """Delete those files, and their folders if they are empty then; return the deleted files.

    If another program runs ONNX Runtime with telemetry on, it creates another identifier.
    """
    places = [home / ".cache", home / "Library" / "Application Support"]
    if environ.get("XDG_CACHE_HOME"):
        places.append(Path(environ["XDG_CACHE_HOME"]))
    removed: list[Path] = []
    for folder in (place / _FOLDER for place in places):
        if not folder.is_dir() or folder.is_symlink():
            continue
        for file in sorted({file for pattern in _FILES for file in folder.glob(pattern)}):
            with suppress(OSError):
                file.unlink()
                removed.append(file)
        with suppress(OSError):
            for empty in (folder, *list(folder.parents)[: len(_FOLDER.parts) - 1]):
                empty.rmdir()
    session = Path(tempfile.gettempdir(), _SESSION_FILE)
    with suppress(OSError):
        # Any user can create a file of that name.
        is_plain = stat.S_ISREG(session.lstat().st_mode) and session.stat().st_size < 100
        if is_plain and _SESSION.fullmatch(session.read_bytes()):
            session.unlink()
            removed.append(session)
    return removed
