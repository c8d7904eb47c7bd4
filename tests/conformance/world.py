"""What tests of the whole program hold in their hands: a home folder of its own, and the program in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Run:
    """What one command did."""

    status: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Standard output as JSON."""
        rows: list[dict[str, Any]] = json.loads(self.out)
        return rows


@dataclass(frozen=True)
class World:
    """A home folder and the program in it."""

    home: Path
    config_file: Path
    database: Path
    run: Callable[..., Run]

    def ok(self, *argv: str) -> Run:
        """Run a command that must succeed."""
        done = self.run(*argv)
        assert done.status == 0, f"{argv}: {done}"
        return done

    def write(self, folder: str, files: Mapping[str, str]) -> Path:
        """Write files below a folder of the home; the folder."""
        for name, text in files.items():
            target = self.home / folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        return self.home / folder

    def collection(self, name: str, files: Mapping[str, str], *options: str) -> Path:
        """Write files and add their folder as a collection."""
        folder = self.write(name, files)
        self.ok("collection", "add", str(folder), "--name", name, *options)
        return folder
