"""Folders in which agents keep the transcripts of their sessions, and the projects to which these belong."""

from __future__ import annotations

import os
import re
from pathlib import Path


def histories() -> dict[str, Path]:
    """Return the real folder of each agent's sessions, which need not exist."""
    claude = os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude"
    codex = os.environ.get("CODEX_HOME") or Path.home() / ".codex"
    return {"claude": Path(claude, "projects").resolve(), "codex": Path(codex, "sessions").resolve()}


def history_name(path: Path) -> str | None:
    """Return a name for the sessions at a real path, all of an agent or those of a project; None for another path."""
    for agent, folder in histories().items():
        for root in (path, path.parent):
            if root == folder or root.parts[-2:] == (f".{agent}", folder.name):
                return (root != path and path.name.strip("-")) or f"{agent}-history"
    return None


def project_names(folder: Path) -> list[str]:
    """Return what Claude Code calls the projects around a real folder, nearest first; without home, which has all."""
    around = (one for one in (folder, *folder.parents) if not Path.home().resolve().is_relative_to(one))
    return [re.sub("[^a-zA-Z0-9]", "-", str(one)) for one in around]
