# ruff: noqa: E501 - one client a line reads as a table
"""Programs that start MCP servers: the place of their settings, and the entry that starts this qmd."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from io import StringIO
from pathlib import Path
from subprocess import list2cmdline
from typing import NamedTuple

from qmd.errors import UsageError
from qmd.plugins.install.settings_text import Keys, changed_text
from qmd.process import OWN_PROGRAM


class Client(NamedTuple):
    """Program with its user's settings below the folder `base`, the path of servers in them, and a project's."""

    title: str
    base: str
    file: str
    keys: Keys
    project: str | None = None
    variable: str = ""
    """Environment variable that names the folder of `file`."""


_CLAUDE = "Claude Code"

# fmt: off
CLIENTS: Mapping[str, Client] = {
    "claude": Client(_CLAUDE, "home", ".claude.json", ("mcpServers",), ".mcp.json", "CLAUDE_CONFIG_DIR"),
    "claude-desktop": Client("Claude Desktop", "app", "Claude/claude_desktop_config.json", ("mcpServers",)),
    "codex": Client("Codex", "home", ".codex/config.toml", ("mcp_servers",), ".codex/config.toml", "CODEX_HOME"),
    "gemini": Client("Gemini CLI", "home", ".gemini/settings.json", ("mcpServers",), ".gemini/settings.json"),
    "cursor": Client("Cursor", "home", ".cursor/mcp.json", ("mcpServers",), ".cursor/mcp.json"),
    "vscode": Client("VS Code", "app", "Code/User/mcp.json", ("servers",), ".vscode/mcp.json"),
    "zed": Client("Zed", "app" if sys.platform == "win32" else "config", "zed/settings.json", ("context_servers",), ".zed/settings.json"),
    "opencode": Client("opencode", "config", "opencode/opencode.json", ("mcp",), "opencode.json"),
    "windsurf": Client("Windsurf", "home", ".codeium/windsurf/mcp_config.json", ("mcpServers",)),
    "goose": Client("goose", "config", "goose/config.yaml", ("extensions",)),
    "openclaw": Client("OpenClaw", "home", ".openclaw/openclaw.json", ("mcp", "servers")),
}
ONLY_PRINTED = ("windsurf", "goose", "openclaw")
_HOOKS = Client(_CLAUDE, "home", ".claude/settings.json", ("hooks",), ".claude/settings.json", "CLAUDE_CONFIG_DIR")
_EVENTS = {"prompt": "UserPromptSubmit", "session": "SessionStart"}
# fmt: on
_LONGEST_LINE = 1 << 15
_OPTIONS = r"(?:\n-.*(?:\n(?!-).*)?)*"
_OWN_HOOK = re.compile(
    r"(?:(?:.*/)?env\n)?(?:\w+=.*\n)*"
    rf"(?:(?:.*[/\\])?python[\w.]*(?:\n-\w+)*?\n-m\nqmd|(?:(?:.*[/\\])?uvx(?:\.exe)?{_OPTIONS}\n)?"
    rf"(?:.*[/\\])?qmd(?:-search)?(?:\.exe)?){_OPTIONS}\nhook\n(?:prompt|session){_OPTIONS}",
    re.IGNORECASE,
)
"""The words of a hook of qmd, one a line: perhaps variables, a program and options."""
# Clients start servers with a bare environment, so the entry must contain these to mean the same index.
_CARRIED = ("QMD_CONFIG_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "INDEX_PATH")


class Entry(NamedTuple):
    """Entry in a client's settings; of a list of hooks, qmd's own."""

    client: Client
    keys: Keys
    value: dict[str, object] | list[object]

    def text(self) -> str:
        """Return the entry alone, to be pasted."""
        if not self.client.file.endswith(".yaml"):
            return changed_text("", self.keys, self.value, is_toml=self.client.file.endswith(".toml"))
        from ruamel.yaml import YAML

        YAML().dump({self.keys[0]: {self.keys[1]: self.value}}, buffer := StringIO())
        return buffer.getvalue()


def entry_for(name: str, index_name: str | None, environ: Mapping[str, str], hook: str | None = None) -> Entry:
    """Return the entry that starts this qmd, or calls one of its hooks, with the variables that choose the index.

    Raises:
        UsageError: The client is unknown, or has no such hook.
    """
    client = CLIENTS.get(name)
    if client is None:
        raise UsageError(f"unknown client '{name}'", f"choose one of: {', '.join(CLIENTS)}")
    program, *words = own_command()
    words += ["--index", index_name] if index_name else []
    given = {one: environ[one] for one in _CARRIED if environ.get(one)}
    # A colon after a drive letter belongs to an address, which is absolute already.
    env = {one: text if ":" in text[2:] else str(Path(text).absolute()) for one, text in given.items()}
    if hook is not None:
        if client.title != _CLAUDE:
            raise UsageError(f"qmd knows no {hook} hook of {client.title}", f"qmd install claude --hook {hook}")
        assignments = ["env", *(f"{one}={value}" for one, value in env.items())] if env else []
        argv = [*assignments, program, *words, "hook", hook]
        # On Windows the shell is that of Git, to which a backslash is no separator.
        line = shlex.join(argv) if sys.platform != "win32" else list2cmdline(one.replace("\\", "/") for one in argv)
        # After these seconds the client gives up the hook, which ends itself much earlier.
        action = {"type": "command", "command": line, "timeout": 5}
        return Entry(_HOOKS, ("hooks", _EVENTS[hook]), [{"hooks": [action]}])
    value = _server(name, program, [*words, "mcp"], env)
    return Entry(client, (*client.keys, "qmd"), {key: one for key, one in value.items() if one != {}})


def _server(name: str, program: str, words: list[str], env: Mapping[str, str]) -> dict[str, object]:
    if name == "opencode":
        return {"type": "local", "command": [program, *words], "enabled": True, "environment": env}
    if name == "goose":
        return {"name": "qmd", "type": "stdio", "cmd": program, "args": words, "envs": env, "enabled": True}
    kind = {"vscode": {"type": "stdio"}, "zed": {"source": "custom"}}.get(name, {})
    return {**kind, "command": program, "args": words, "env": env}


def is_own_hook(hook: object) -> bool:
    """Return whether an item of Claude Code's settings runs a hook of qmd and nothing else."""
    command = hook.get("command") if isinstance(hook, dict) else None
    with suppress(ValueError):
        if isinstance(command, str) and len(command) <= _LONGEST_LINE:
            # With unquoted backslashes between folders, too.
            lines = ("\n".join(shlex.split(line)) for line in (command, command.replace("\\", "/")))
            return any(map(_OWN_HOOK.fullmatch, lines))
    return False


def settings_file(client: Client, environ: Mapping[str, str], project: Path | None) -> Path:
    """Return the settings file of a client: of the project in this folder, or the user's.

    Raises:
        UsageError: It has no settings of a project.
    """
    if project is not None:
        if client.project is None:
            raise UsageError(f"{client.title} has no settings of a project", "run it without --project")
        file = project / client.project
    else:
        home = Path(environ.get("HOME") or environ.get("USERPROFILE") or Path.home())
        config = app = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
        if sys.platform == "win32":
            app = Path(environ.get("APPDATA") or home / "AppData/Roaming")
        elif sys.platform == "darwin":
            app = home / "Library/Application Support"
        file = {"home": home, "config": config, "app": app}[client.base] / client.file
        chosen = environ.get(client.variable)
        file = Path(chosen).absolute() / file.name if chosen else file
    # opencode reads either; the latter is the file of users who write comments.
    commented = file.with_suffix(".jsonc")
    return commented if client is CLIENTS["opencode"] and os.path.lexists(commented) else file


def own_command() -> list[str]:
    """Return the command that starts this installation, absolute: its script if there is one, else the interpreter.

    An environment that `uvx` made for one run may be deleted later, so there it is `uvx` itself, from the same source.
    """
    uvx = shutil.which("uvx")
    if uvx is not None and any(part.startswith("archive-v") for part in Path(sys.prefix).parts):
        from qmd.installation import find_installation

        here = find_installation()
        return [uvx, "--from", f"{here.name} @ {here.place}" if here.place else here.name, "qmd-search"]
    script = Path(sys.executable).parent / ("qmd.exe" if sys.platform == "win32" else "qmd")
    if script.exists():
        return [str(script)]
    found = shutil.which("qmd")
    started = Path(sys.argv[0])
    if found is not None and started.name in ("qmd", "qmd.exe") and Path(found).resolve() == started.resolve():
        return [str(Path(found).absolute())]
    return list(OWN_PROGRAM)
