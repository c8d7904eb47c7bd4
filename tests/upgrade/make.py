"""Keeps what a version of qmd leaves on a machine, for `test_upgrade.py`: two indexes, an imported model, its answers.

In a checkout of that version with its own virtual environment, whose program is started as `.venv/bin/qmd`:

    python tests/upgrade/make.py CHECKOUT NAME            # writes tests/upgrade/NAME
    python tests/upgrade/make.py CHECKOUT NAME --project  # and NAME/project.tar.xz, a project with its `.qmd`

Everything is made below one folder without a name of this machine, as an index and a model hold where they came from.
Nothing in a folder that was made so is edited, and a test that opens it is never loosened without a line in CHANGELOG.
"""

from __future__ import annotations

import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.upgrade.world import HERE, QUESTIONS, lay_out, variables

ROOT = Path("/tmp/qmd-upgrade")

_WEIGHTS = """
import sys
from pathlib import Path
from tests.plugins.forms import gguf_files as made
made.HIDDEN, made.LAYERS, made.HEADS, made.GEMMA_HEADS, made.KV_HEADS, made.HEAD_SIZE, made.FFN = 32, 1, 4, 4, 1, 8, 64
made.write_gemma(Path(sys.argv[1]), "Q4_0")
"""
"""A small model; the tests of a version know how to write what that version imports."""


def make(checkout: Path, out: Path, *, with_project: bool) -> None:
    """Write the folder of a version."""
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir()
    lay_out(ROOT)
    out.mkdir(exist_ok=True)
    weights = ROOT / "small.gguf"
    subprocess.run([checkout / ".venv/bin/python", "-c", _WEIGHTS, weights], check=True, cwd=checkout)

    def qmd(*argv: str, cwd: Path = ROOT) -> str:
        path = f"{checkout / '.venv/bin'}{os.pathsep}{os.environ['PATH']}"
        command = [str(checkout / ".venv/bin/qmd"), *argv]
        env = {"PATH": path, **dict(variables(ROOT))}
        return subprocess.check_output(command, cwd=cwd, env=env, text=True)

    qmd("models", "import", str(weights), "--name", "small", "--role", "embed")
    for index in ("index", "imported"):
        qmd("index", "--index", index)
    answers = [{"argv": argv, "out": qmd(*argv).replace(str(ROOT), "ROOT")} for argv in QUESTIONS]
    (out / "answers.json").write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n", "utf-8")
    for index in ("index", "imported"):
        found = (ROOT / "cache" / "qmd" / f"{index}.sqlite").read_bytes()
        (out / f"{index}.sqlite.xz").write_bytes(lzma.compress(found, preset=9 | lzma.PRESET_EXTREME))
    _pack(out / "models.tar.xz", ROOT / "cache" / "qmd" / "models")
    if with_project:
        project = ROOT / "project"
        shutil.copytree(ROOT / "notes" / "work", project)
        (project / ".qmd").mkdir()
        (project / ".qmd" / "index.yml").write_text("collections:\n  project:\n    path: .\n", "utf-8")
        qmd("index", cwd=project)
        _pack(out / "project.tar.xz", project)
    shutil.rmtree(ROOT)


def _pack(archive: Path, folder: Path) -> None:
    """A folder's files without their owners and times, so that making them again changes as little as can be."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = 1_700_000_000
        return entry

    with tarfile.open(archive, "w:xz") as packed:
        packed.add(folder, folder.name, filter=plain)


def main(argv: Sequence[str]) -> None:
    """See above."""
    checkout, name = argv[:2]
    make(Path(checkout).absolute(), HERE / name, with_project="--project" in argv)


if __name__ == "__main__":
    main(sys.argv[1:])
