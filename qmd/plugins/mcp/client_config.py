"""What to paste into an editor's settings so that it starts this qmd, with absolute paths."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from qmd.environment import OWN_PROGRAM
from qmd.errors import UsageError

CLIENTS = ("claude", "vscode", "cursor", "zed")

_PLACES: Mapping[str, str] = {
    "claude": "Claude Desktop: claude_desktop_config.json; Claude Code: .mcp.json of the project",
    "vscode": "VS Code: .vscode/mcp.json",
    "cursor": "Cursor: ~/.cursor/mcp.json, or .cursor/mcp.json of the project",
    "zed": "Zed: settings.json",
}
# Editors start servers with a bare environment, so these must be written down to mean the same index.
_CARRIED = ("QMD_CONFIG_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "INDEX_PATH")


def client_place(client: str) -> str:
    """Where that program keeps its settings."""
    return _PLACES[client]


def client_config(client: str, index_name: str | None, environ: Mapping[str, str]) -> str:
    """The settings of `client` as JSON.

    Args:
        client: One of `CLIENTS`.
        index_name: Value of `--index`, or None.
        environ: Variables that choose the index are carried over.

    Raises:
        UsageError: If the client is unknown.
    """
    if client not in CLIENTS:
        raise UsageError(f"unknown client '{client}'", f"choose one of: {', '.join(CLIENTS)}")
    command = own_command()
    args = [*command[1:], *(["--index", index_name] if index_name else []), "mcp"]
    server: dict[str, object] = {"command": command[0], "args": args}
    carried = {name: str(Path(environ[name]).absolute()) for name in _CARRIED if environ.get(name)}
    if carried:
        server["env"] = carried
    shapes: Mapping[str, dict[str, object]] = {
        "claude": {"mcpServers": {"qmd": server}},
        "cursor": {"mcpServers": {"qmd": server}},
        "vscode": {"servers": {"qmd": {"type": "stdio", **server}}},
        "zed": {"context_servers": {"qmd": {"source": "custom", **server}}},
    }
    return json.dumps(shapes[client], indent=2, ensure_ascii=False) + "\n"


def own_command() -> list[str]:
    """The command that starts this very installation, absolute: its script where there is one, else the interpreter."""
    beside = Path(sys.executable).parent / ("qmd.exe" if sys.platform == "win32" else "qmd")
    if beside.exists():
        return [str(beside)]
    found = shutil.which("qmd")
    started = Path(sys.argv[0])
    if found is not None and started.name in ("qmd", "qmd.exe") and Path(found).resolve() == started.resolve():
        return [str(Path(found).absolute())]
    return list(OWN_PROGRAM)
