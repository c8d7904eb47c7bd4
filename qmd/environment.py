"""What the process was given: switches in environment variables, CPUs, and the place that it was installed from."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_OFF_WORDS = frozenset({"0", "off", "no", "false", "none", "never", "disable", "disabled"})

_DISTRIBUTION = "qmd-search"


def is_off(value: str | None) -> bool:
    """Whether an environment variable switches off: `0`, `off`, `no`, `false`, `none`, `never`, `disable(d)`."""
    return value is not None and value.strip().lower() in _OFF_WORDS


def is_on(value: str | None) -> bool:
    """Whether an environment variable switches on: it is set, not blank, and no word that switches off."""
    return value is not None and bool(value.strip()) and not is_off(value)


def usable_cpus() -> int:
    """CPUs that this process may use, at least 1: its affinity, and the quota of its control group."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()[:2]
        return max(1, min(cpus, round(int(quota) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):
        return cpus


def install_command(extra: str, prefix: Path = Path(sys.prefix), platform: str = sys.platform) -> str:
    """What adds an extra to this very installation, in the environment at `prefix`, as it was installed.

    Only what came from an index is named by its name alone: on another index that name may be a stranger's.
    """
    import json
    import shlex
    import tomllib
    from importlib import metadata
    from urllib.request import url2pathname

    try:
        distribution = metadata.distribution(_DISTRIBUTION)
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
        program = "uv pip install" if (distribution.read_text("INSTALLER") or "").strip() == "uv" else "pip install"
    except metadata.PackageNotFoundError:
        origin, program = {"url": Path(__file__).parents[1].as_uri()}, "pip install"
    extras = {extra}
    if (receipt := prefix / "uv-receipt.toml").is_file():
        # The extras that are not named again would go.
        asked = tomllib.loads(receipt.read_text("utf-8"))["tool"]["requirements"]
        extras.update(one for part in asked if part["name"] == _DISTRIBUTION for one in part.get("extras", ()))
        program = "uv tool install"
    elif (prefix / "pipx_metadata.json").is_file():
        program = f"pipx runpip {prefix.name} install"
    url, made_from = origin.get("url", ""), origin.get("vcs_info")
    names = f"[{','.join(sorted(extras))}]"
    if url.startswith("file:") and not made_from:
        wanted = url2pathname(url.removeprefix("file://")) + names
    else:
        place = f"{made_from['vcs']}+{url}@{made_from['commit_id']}" if made_from else url
        wanted = f"{_DISTRIBUTION}{names}{' @ ' if place else ''}{place}"
    flag = " -e" if origin.get("dir_info", {}).get("editable") else ""
    return f"{program}{flag} " + (f'"{wanted}"' if platform == "win32" else shlex.quote(wanted))
