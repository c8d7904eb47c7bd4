"""Keep what a version of qmd leaves on a machine, for `test_upgrade.py`.

That is indexes, an imported model, a project that is trusted, the configurations, and its answers.

In a checkout of that version with its own virtual environment, whose program is started as `.venv/bin/qmd`:

    python tests/upgrade/make.py CHECKOUT NAME            # writes tests/upgrade/NAME
    python tests/upgrade/make.py CHECKOUT NAME ORIGINAL   # and NAME/original.txt, with tobi/qmd of `npm install`

ORIGINAL is its `bin/qmd`, with a `node` of version 22 first on the PATH. Everything is made below one folder without a
name of this machine, as an index and a model hold where they came from; in the configurations, the records of trust and
the answers that folder is called ROOT, and the test puts its own in its place.
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
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.upgrade.world import HERE, IN_PROJECT, LONG_AGO, QUESTIONS, lay_out, variables

ROOT = Path("/tmp/qmd-upgrade")

_WEIGHTS = """
import sys
from pathlib import Path
from tests.plugins.forms import gguf_files as made
made.HIDDEN, made.LAYERS, made.HEADS, made.GEMMA_HEADS, made.KV_HEADS, made.HEAD_SIZE, made.FFN = 32, 1, 4, 4, 1, 8, 64
made.write_gemma(Path(sys.argv[1]), "Q4_0")
"""
"""A small model; the tests of a version know how to write what that version imports."""


def make(checkout: Path, out: Path, original: Path | None) -> None:
    """Write the folder of a version."""
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir()
    lay_out(ROOT, HERE)
    out.mkdir(exist_ok=True)
    weights = ROOT / "small.gguf"
    subprocess.run([checkout / ".venv/bin/python", "-c", _WEIGHTS, weights], check=True, cwd=checkout)
    path = f"{checkout / '.venv/bin'}{os.pathsep}{os.environ['PATH']}"

    def qmd(*argv: str, cwd: Path = ROOT) -> str:
        command = [str(checkout / ".venv/bin/qmd"), *argv]
        env = {"PATH": path, **dict(variables(ROOT))}
        return subprocess.check_output(command, cwd=cwd, env=env, text=True)

    qmd("models", "import", str(weights), "--name", "small", "--role", "embed")
    for index in ("index", "imported"):
        qmd("index", "--index", index)
    _make_project(ROOT / "project", qmd)
    asked = [(argv, ".") for argv in QUESTIONS] + [(argv, "project") for argv in IN_PROJECT]
    answers = [{"in": place, "argv": argv, "out": _neutral(qmd(*argv, cwd=ROOT / place))} for argv, place in asked]
    (out / "answers.json").write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n", "utf-8")
    for file in (*(ROOT / "config").glob("*.yml"), ROOT / "config" / "trusted.json"):
        (out / file.name).write_text(_neutral(file.read_text("utf-8")), "utf-8")
    # Which indexes of projects were made on this machine; no other one is opened.
    records = {file.name: _neutral(file.read_text("utf-8")) for file in (ROOT / "cache/qmd/projects").glob("?" * 32)}
    (out / "projects.json").write_text(json.dumps(records) + "\n", "utf-8")
    for index in ("index", "imported"):
        found = (ROOT / "cache" / "qmd" / f"{index}.sqlite").read_bytes()
        (out / f"{index}.sqlite.xz").write_bytes(lzma.compress(found, preset=9 | lzma.PRESET_EXTREME))
    _pack(out / "models.tar.xz", ROOT / "cache" / "qmd" / "models")
    _pack(out / "project.tar.xz", ROOT / "project")
    if original is not None:
        (out / "original.txt").write_text(_ask_original(original), "utf-8")
    shutil.rmtree(ROOT)


def _make_project(project: Path, qmd: Callable[..., object]) -> None:
    """Make a project with its own index, trusted to run a command and to choose where links lead."""
    shutil.copytree(ROOT / "notes" / "work", project)
    qmd("init", cwd=project)
    qmd("collection", "add", ".", "--name", "project", "--mask", "**/*.md", cwd=project)
    qmd("collection", "update-cmd", "project", "touch pulled.mark", cwd=project)
    file = project / ".qmd" / "index.yml"
    # Relative, so that the folder can be unpacked elsewhere and is still the one that was trusted.
    text = file.read_text("utf-8").replace(f"path: {project}", "path: .")
    file.write_text(f"{text}editor_uri: vscode://file/{{path}}:{{line}}\n", "utf-8")
    qmd("trust", cwd=project)
    os.utime(project, (LONG_AGO, LONG_AGO))  # as it will be when it has been unpacked
    qmd("index", cwd=project)


def _ask_original(program: Path) -> str:
    """Return what tobi/qmd reads in the same configuration, without the times."""
    shutil.copytree(ROOT / "config", ROOT / "original")
    env = {"PATH": os.environ["PATH"], "HOME": str(ROOT / "original"), "QMD_CONFIG_DIR": str(ROOT / "original")}
    env |= {"INDEX_PATH": str(ROOT / "original.sqlite"), "CI": "1", "NO_COLOR": "1"}
    commands = (["update"], ["collection", "list"], ["context", "list"], ["ls", "archive"])
    told = [subprocess.check_output([program, *argv], cwd=ROOT, env=env, text=True) for argv in commands]
    return _neutral("".join(line for line in "".join(told[1:]).splitlines(keepends=True) if "Updated:" not in line))


def _neutral(text: str) -> str:
    return text.replace(str(ROOT), "ROOT")


def _pack(archive: Path, folder: Path) -> None:
    """Pack a folder without owners, times and locks, so that making it again changes as little as can be."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if entry.name.endswith(("-shm", "-wal", ".lock")):
            return None
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = LONG_AGO
        return entry

    with tarfile.open(archive, "w:xz") as packed:
        packed.add(folder, folder.name, filter=plain)


def main(argv: Sequence[str]) -> None:
    """See above."""
    checkout, name, *original = argv
    make(Path(checkout).absolute(), HERE / name, Path(original[0]).absolute() if original else None)


if __name__ == "__main__":
    main(sys.argv[1:])
