"""A client's view of qmd: the installed program, an environment, a folder of notes. Nothing is imported from qmd."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

NOTES: Mapping[str, str] = {
    "pricing.md": "# Pricing decision\n\nWe chose per-seat pricing after the March interviews.\n\n"
    "## Why not usage based\n\nCustomers could not predict their bills.\n",
    "deploy.md": "---\ntags: [ops, release]\n---\n# Deploy runbook\n\nRoll back with the previous image tag.\n"
    "<!-- id: 6512f -->\nThe rate limiter uses a sliding window.\n",
    "daily/2026-03-01.md": "# Sunday\n\nTalked to Ana about the rate limiter and the sliding window.\n",
    "sub/日记.md": "# 日记\n\n今天讨论了数据库迁移的计划。\n",
    "we ird/c & d.md": "# Beta & co\n\nAn odd file name about gardening and tomatoes.\n",
}


@dataclass(frozen=True)
class Client:
    """One program that drives qmd: its environment and working directory."""

    env: Mapping[str, str]
    cwd: Path
    notes: Path
    timeout_s: float = 60.0
    command: tuple[str, ...] = field(default_factory=lambda: qmd_command())

    def run(self, *args: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command, *args],
            env=dict(self.env),
            cwd=self.cwd,
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            timeout=self.timeout_s,
            check=False,
        )

    def ok(self, *args: str) -> str:
        done = self.run(*args)
        assert done.returncode == 0, f"{args}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def qmd_command() -> tuple[str, ...]:
    script = shutil.which("qmd", path=str(Path(sys.executable).parent))
    return (script,) if script else (sys.executable, "-m", "qmd")


def write_notes(folder: Path) -> Path:
    for name, text in NOTES.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def make_client(tmp_path: Path) -> Callable[..., Client]:
    def build(**env: str) -> Client:
        notes = write_notes(tmp_path / "notes")
        base = {
            "HOME": str(tmp_path / "home"),
            "PATH": os.environ.get("PATH", ""),
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "QMD_DAEMON": "0",
        }
        if "SYSTEMROOT" in os.environ:
            base["SYSTEMROOT"] = os.environ["SYSTEMROOT"]
        (tmp_path / "home").mkdir(exist_ok=True)
        return Client(env={**base, **env}, cwd=tmp_path, notes=notes)

    return build
