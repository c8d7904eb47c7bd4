"""Random damage to files of LanceDB tables: one line or a right answer, and `qmd index --verify` makes all right.

    python -m tests.robustness.lance_damage [--tries 200] [--seed 1]

The tables have no checksums: after flipped bits an answer may be wrong, but nothing may fail in another way.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

from tests.robustness.crash_states import memory_folder
from tests.robustness.lance_world import LanceWorld, child, copy_of
from tests.robustness.report import Row, print_table, with_progress
from tests.robustness.scenarios import write_note

_TOO_LONG_S = 180.0
_QUESTIONS: tuple[tuple[str, ...], ...] = (
    ("search", "kettle", "--json", "-n", "50"),
    ("vsearch", "orchid harbour", "--json", "-n", "50"),
    ("multi-get", "notes/first/*.md", "--json", "-l", "30"),
)
_PANIC = re.compile(r"\n?thread '.*panicked at .*\n.*\n(?:note: .*\n|stack backtrace:\n| +\S.*\n)*")
"""What Rust prints of a panic, before anybody is asked; the error that follows is qmd's."""

Answer = tuple[int, str, str]
"""Status, standard output, and what was said beside it."""


def _cut(file: Path, dice: random.Random) -> None:
    os.truncate(file, dice.randrange(file.stat().st_size))


def _remove(file: Path, dice: random.Random) -> None:
    file.unlink()


def _fill(file: Path, dice: random.Random) -> None:
    file.write_bytes(dice.randbytes(file.stat().st_size))


def _flip(file: Path, dice: random.Random) -> None:
    raw = bytearray(file.read_bytes())
    for _ in range(dice.randrange(1, 9)):
        raw[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
    file.write_bytes(raw)


DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    "cut": _cut,
    "removed": _remove,
    "filled anew": _fill,
    "flipped": _flip,
}


def qmd(world: LanceWorld, *words: str) -> Answer:
    """Run a command in this process; what the Rust library says by itself belongs to what is said."""
    from qmd.cli.app import main

    os.environ.update(world.environ, QMD_DAEMON="off")
    os.chdir(world.home)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out, tempfile.TemporaryFile("w+", encoding="utf-8") as err:
        streams, real = (sys.stdout, sys.stderr), os.dup(2)
        os.dup2(err.fileno(), 2)
        sys.stdout, sys.stderr = out, err
        try:
            status = main(words)
        finally:
            for one in (out, err):
                one.flush()
            os.dup2(real, 2)
            os.close(real)
            sys.stdout, sys.stderr = streams
        return status, _all_of(out), _all_of(err)


def _all_of(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def facts_of(answer: Answer) -> object:
    """What an answer tells, without scores, which depend on how the tables were filled."""
    return sorted((row["file"], row.get("body", "")) for row in json.loads(answer[1]))


def ask(world: LanceWorld) -> list[Answer]:
    """The answers to all questions."""
    return [qmd(world, *words) for words in _QUESTIONS]


def is_in_one_line(answer: Answer, *, any_hint: bool) -> bool:
    """Whether a command that could not answer says so in a line, and in another what to do."""
    said = [line for line in _PANIC.sub("", answer[2]).splitlines() if not line.startswith("warning: ")]
    named = [line.partition(": ")[0] for line in said]
    return named == ["error", "hint"] and "error: unexpected " not in answer[2] and (any_hint or "qmd index" in said[1])


def wrong_answers(world: LanceWorld, sound: Sequence[object], *, flipped: bool, mended: bool) -> Iterator[str]:
    """The answers that are neither right nor, unless the index was mended, one line."""
    for words, answer, expected in zip(_QUESTIONS, ask(world), sound, strict=True):
        is_wrong = not answer[0] and not flipped and facts_of(answer) != expected
        is_failure = answer[0] and ((mended and not flipped) or not is_in_one_line(answer, any_hint=flipped))
        if is_wrong or is_failure:
            yield f"{'mended, but ' if mended else ''}{words[0]}: {answer[1][:100]} {answer[2]}"


def wrong_after(world: LanceWorld, sound: Sequence[object], *, flipped: bool) -> Iterator[str]:
    """What is wrong with a damaged index, and once it was mended."""
    yield from wrong_answers(world, sound, flipped=flipped, mended=False)
    for words in (("index",), ("index", "--verify")):
        answer = qmd(world, *words)
        # Some flipped bits look like a file of a newer LanceDB, of which nothing may be thrown away.
        may_fail = "--verify" not in words or (flipped and "version" in answer[2])
        if answer[0] and not (may_fail and is_in_one_line(answer, any_hint=flipped)):
            yield f"{' '.join(words)}: {answer[2]}"
    yield from wrong_answers(world, sound, flipped=flipped, mended=True)


def try_one(tell: Connection, world: LanceWorld, sound: Sequence[object], kind: str, seed: str) -> None:
    """Damage one or two files, and tell what is wrong after it."""
    dice = random.Random(seed)
    files = sorted(path for path in world.tables.rglob("*") if path.is_file() and path.stat().st_size)
    chosen = dice.sample(files, dice.randrange(1, 3))
    for file in chosen:
        DAMAGES[kind](file, dice)
    names = ", ".join(str(file.relative_to(world.tables)) for file in chosen)
    tell.send([f"{names}: {what}" for what in wrong_after(world, sound, flipped=kind == "flipped")])


def prepare(tell: Connection, world: LanceWorld) -> None:
    """Index some notes, in two steps, so that there are files of changes; tell the answers."""
    for step, n_notes in enumerate((10, 14)):
        for number in range(n_notes):
            write_note(world, "first", f"first-{number}.md", step if number % 4 == 0 else 0)
        assert qmd(world, "index", str(world.notes))[0] == 0
    tell.send([facts_of(answer) for answer in ask(world)])


def run(n_tries: int, seed: int, home: Path) -> list[Row]:
    """So many tries, each in a process of its own; one row per kind of damage."""
    whole = LanceWorld(home)
    whole.folder.mkdir(parents=True)
    sound = child(prepare, whole)[1].recv()
    rows = {kind: Row(f"lance, damaged: {kind}") for kind in DAMAGES}
    for number in with_progress("damage", range(n_tries)):
        kind = list(DAMAGES)[number % len(DAMAGES)]
        world = copy_of(whole, f"try-{number}")
        process, told = child(try_one, world, sound, kind, f"{seed}/{number}")
        rows[kind].tries += 1
        try:
            found = told.recv() if told.poll(_TOO_LONG_S) else ["no end"]
        except EOFError:
            process.join()
            found = [f"died with status {process.exitcode}"]
        process.kill()
        if found:
            rows[kind].fail(f"try {number}: {'; '.join(found)}")
        shutil.rmtree(world.folder)
    return list(rows.values())


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tries", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        return print_table(run(options.tries, options.seed, Path(folder).resolve()), shown=20)


if __name__ == "__main__":
    sys.exit(main())
