"""Files of others that qmd edits, while it is killed and while their own program writes them.

    python -m tests.robustness.edits [--kills 500] [--installs 400] [--seed 1]

*Kills*: `install`, `install --remove`, `install --hook`, `add` to a note, `add` as a new one and `context add` end at a
random moment, or at a random line of the modules that write. Afterwards the file is byte for byte as it was or as the
command makes it, with its mode and owner; after the next run of the command nothing is left beside it.

*Writers*: another program reads its settings, counts on in them and writes them every 10 to 60 ms, by a rename or into
the file itself, while `install` and `install --remove` take turns. A count that goes back is an update that was lost.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from types import FrameType
from typing import Any

from qmd.cli.app import main as qmd
from tests.robustness.report import Row, print_table, with_progress

_OWNER = 1000
_MODE = 0o640
_SETTINGS = '// mine\n{\n  "model": "x", // best\n  "hooks": {"UserPromptSubmit": [{"hooks": [{"command": "a"}]}]}\n}\n'
_NOTE = "# Log\n\nfirst\n"
_CONFIG = "# mine\ncollections:\n  mem:\n    path: {mem}  # here\n"
_TEXT = "A decision about the harbour. " * 300
_WRITING = re.compile(r"qmd/(files|external_files|plugins/install/editing|config/edits)\.py$")
"""Modules at whose lines a command is killed."""


@dataclass(frozen=True)
class Command:
    """A command and the file that it changes."""

    argv: tuple[str, ...]
    file: str
    before: str | None
    is_new: Callable[[str], bool] = lambda text: "qmd" in text
    prepared: tuple[str, ...] = ()
    """A command that runs first, undisturbed."""


def _is_appended(text: str) -> bool:
    return (
        re.fullmatch(re.escape(_NOTE) + r"\n## \d{4}-\d\d-\d\d \d\d:\d\d\n\n" + re.escape(_TEXT.strip()) + "\n", text)
        is not None
    )


def _is_created(text: str) -> bool:
    return text.startswith("---\n") and text.endswith(f"---\n\n{_TEXT.strip()}\n")


_INSTALL = ("install", "claude", "--yes")
_HOOK = ("install", "claude", "--hook", "--yes")
COMMANDS = {
    "install": Command(_INSTALL, ".claude.json", _SETTINGS),
    "install, first file": Command(_INSTALL, ".claude.json", None),
    "install --remove": Command(
        (*_INSTALL, "--remove"), ".claude.json", _SETTINGS, lambda text: text == _SETTINGS, _INSTALL
    ),
    "install --hook": Command(_HOOK, ".claude/settings.json", _SETTINGS),
    "add to a note": Command(("add", _TEXT, "--to", "mem/log.md"), "mem/log.md", _NOTE, _is_appended),
    "add a note": Command(("add", _TEXT, "--to", "mem", "--title", "new"), "mem/new.md", None, _is_created),
    "context add": Command(
        ("context", "add", "qmd://mem", "qmd's"), ".config/qmd/index.yml", _CONFIG, lambda text: "qmd's" in text
    ),
}


def _prepare(home: Path, command: Command) -> None:
    """An empty home with the files of a user, who is not the administrator."""
    texts = {".config/qmd/index.yml": _CONFIG.format(mem=home / "mem"), "mem/log.md": _NOTE}
    for name, text in (texts | ({command.file: command.before} if command.before else {})).items():
        file = home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.format(mem=home / "mem") if text is _CONFIG else text)
        file.chmod(_MODE)
    if os.geteuid() == 0:
        for path in (home, *home.rglob("*")):
            os.chown(path, _OWNER, _OWNER)


def _enter(home: Path) -> None:
    os.environ.update(
        HOME=str(home),
        XDG_CONFIG_HOME=str(home / ".config"),
        XDG_CACHE_HOME=str(home / ".cache"),
        QMD_DAEMON="off",
        SUDO_UID=str(_OWNER),
    )
    os.chdir(home)
    for descriptor in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def _start(home: Path, argv: Sequence[str], killed_at: int | None = None) -> int:
    """A process with this command, which perhaps kills itself at a line; it has imported everything already."""
    child = os.fork()
    if child:
        return child
    status = 70
    try:
        _enter(home)
        lines = iter(range(1, 1 << 30))

        def trace(frame: FrameType, event: str, _: object) -> Any:
            if not _WRITING.search(frame.f_code.co_filename):
                return None
            if event == "line" and next(lines) == killed_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return trace

        if killed_at is not None:
            sys.settrace(trace)
        status = qmd([*argv])
        if killed_at == 0:
            (home / "lines").write_text(str(next(lines) - 1))
    finally:
        os._exit(status)


def _run(home: Path, argv: Sequence[str], killed_at: int | None = None) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(_start(home, argv, killed_at), 0)[1])


def _content(file: Path) -> str | None:
    return file.read_text() if file.exists() else None


def _wrong_with(home: Path, command: Command, before: str | None) -> str | None:
    file = home / command.file
    text = _content(file)
    if text != before and not (text is not None and command.is_new(text)):
        return f"neither old nor new: {text!r}"
    if text is None or before is None:
        return None
    status = file.stat()
    if stat.S_IMODE(status.st_mode) != _MODE and file.suffix != ".yml":
        return f"mode {status.st_mode:o}"
    return f"owner {status.st_uid}" if os.geteuid() == 0 and status.st_uid != _OWNER else None


def _left_in(home: Path, file: Path) -> list[str]:
    names = (path.name for path in file.parent.iterdir() if path.is_file())
    return [name for name in names if re.search(r"\.[0-9a-f]{8}$", name)]


def _kill_once(home: Path, command: Command, dice: random.Random, took_s: float, n_lines: int) -> str | None:
    """What is wrong after one kill, and after the next run of the command."""
    _prepare(home, command)
    if command.prepared and _run(home, command.prepared) != 0:
        return "the first command failed"
    before = _content(home / command.file)
    if dice.random() < 0.5:
        _run(home, command.argv, dice.randrange(1, n_lines + 1))
    else:
        child = _start(home, command.argv)
        time.sleep(dice.uniform(0, took_s))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    wrong = _wrong_with(home, command, before)
    if wrong is not None:
        return wrong
    # As if the next run came a little later: what was written this moment may still be in use.
    for name in _left_in(home, home / command.file):
        os.utime((home / command.file).with_name(name), (time.time() - 5,) * 2)
    argv = (*command.argv, "--force") if command.argv[0] == "add" else command.argv
    if (status := _run(home, argv)) != 0:
        return f"the next run ends with {status}"
    left = _left_in(home, home / command.file)
    return f"left over: {left}" if left else None


def kill_rows(n_kills: int, seed: int, home: Path) -> list[Row]:
    """Kill each command as often as the others."""
    rows = []
    for number, (name, command) in enumerate(COMMANDS.items()):
        row = Row(f"killed: {name}")
        folder = home / f"undisturbed {number}"
        _prepare(folder, command)
        if command.prepared:
            _run(folder, command.prepared)
        begun = time.monotonic()
        _run(folder, command.argv, 0)
        took_s, n_lines = time.monotonic() - begun, int((folder / "lines").read_text())
        row.note = f"{n_lines} lines"
        for one in with_progress(row.name, range(n_kills // len(COMMANDS) + 1)):
            wrong = _kill_once(
                home / f"{number} {one}", command, random.Random(f"{seed}:{name}:{one}"), took_s, n_lines
            )
            row.tries += 1
            if wrong is not None:
                row.fail(f"kill {one}: {wrong}")
        rows.append(row)
    return rows


def _count_on(file: Path, stop: Event, seed: int, *, renames: bool) -> None:
    """Another program, which counts in its settings and notices when a count went back; the result is in its file."""
    dice, count, n_lost = random.Random(seed), 0, 0
    while not stop.is_set():
        time.sleep(dice.uniform(0.01, 0.06))
        found = json.loads(file.read_text())
        n_lost += found["count"] < count
        count += 1
        text = json.dumps({**found, "count": count}, indent=2)
        if renames:
            file.with_name("settings.new").write_text(text)
            file.with_name("settings.new").replace(file)
        else:
            file.write_text(text)
    n_lost += json.loads(file.read_text())["count"] < count
    file.with_name("result").write_text(json.dumps([count, n_lost]))


def writer_row(n_installs: int, seed: int, home: Path, *, renames: bool, padding: int = 0) -> Row:
    """Install and remove beside a program that writes its settings all the time."""
    row = Row(
        f"beside a writer that {'renames' if renames else 'writes in place'}{f', {padding >> 20} MB' * (padding > 0)}"
    )
    home.mkdir()
    file = home / ".claude.json"
    file.write_text(json.dumps({"count": 0, "history": ["x" * 1000] * (padding // 1000)}))
    context = get_context("fork")
    stop = context.Event()
    writer = context.Process(target=_count_on, args=(file, stop, seed), kwargs={"renames": renames})
    writer.start()
    n_busy, n_refused = 0, 0
    for number in with_progress(row.name, range(n_installs)):
        status = _run(home, (*_INSTALL, "--remove") if number % 2 else _INSTALL)
        row.tries += 1
        n_busy += status == 5
        n_refused += status == 1
        if status not in (0, 1, 5):
            row.fail(f"install {number} ended with {status}")
    stop.set()
    writer.join()
    if writer.exitcode != 0:
        row.fail("the other program could not read its settings")
        return row
    count, n_lost = json.loads((home / "result").read_text())
    row.note = f"{count:,} updates, {n_lost} lost; {n_busy} installs gave up, {n_refused} met half a file"
    if n_lost:
        row.fail(f"{n_lost} of {count} updates were lost")
    return row


def run(n_kills: int, n_installs: int, seed: int, home: Path) -> list[Row]:
    """Kill commands, then let another program write beside them."""
    home.mkdir(parents=True, exist_ok=True)
    rows = kill_rows(n_kills, seed, home) if n_kills else []
    for renames in (True, False) if n_installs else ():
        rows.append(writer_row(n_installs, seed, home / f"writer {renames}", renames=renames))
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--installs", type=int, default=400, help="beside each kind of writer")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        return print_table(run(options.kills, options.installs, options.seed, Path(folder).resolve()), shown=20)


if __name__ == "__main__":
    sys.exit(main())
