"""A collection of very many notes: commands answer rightly, in bounded words, and take no more than linear time.

    python -m tests.robustness.many_notes [--notes 100000] [--compare 10000] [--seed 1] [--folder DIR]

The notes are small, lie three folders deep, and one in a hundred has a name that is hard on programs. Each command runs
in a process of its own, whose time, memory and output are measured. Its growth is compared with that of a run over
fewer notes: what takes more than `_MOST_GROWTH` times its share is a failure.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import apsw

from qmd.errors import EXIT_NOT_FOUND
from qmd.store.records import unpack_text
from tests.processes import environment
from tests.robustness.comparison import SELECTS
from tests.robustness.report import Row, print_table

_MOST_GROWTH = 1.6
"""Most CPU time per note, in units of that of the smaller run."""
_BASE_S = 1.0
"""CPU seconds of any command that are not compared: starting Python, opening the index."""
_READ_S = 3.0, 30e-6
"""Most CPU seconds of a command that reads, at all and for each note."""
_MOST_OUTPUT = 20_000
"""Most characters that a command may print which was not asked for a list."""

_HARD_NAMES = (
    "a b", "-rf", "#1 100% of [it]", "{a,b}", "q?", "naïve é", "naïve e\u0301", "日本語の覚え書き", "\U0001f4dd note",
    "line\nfeed", "bell\x07", "x" * 180, "'quoted'", '"twice"', "a\\b", "$HOME", "m..md", "CON", "a\u202eb", "ß" * 80,
    "%2e%2e%2f", "a;b", "tab\there", "end ", "\udcff\udcfe",
)  # fmt: skip


@dataclass
class Measured:
    """What one command took, and what it printed."""

    name: str
    wall_s: float
    cpu_s: float
    memory_mb: float
    status: int
    stdout: str
    stderr: str
    index_mb: float


@dataclass
class Notes:
    """The files, and what is known of them."""

    home: Path
    n_notes: int
    dice: random.Random
    words: dict[str, int] = field(default_factory=dict)
    """Path below the collection → number of the only word that no other note has."""
    measured: list[Measured] = field(default_factory=list)
    row: Row = field(default_factory=lambda: Row("many notes"))

    @property
    def folder(self) -> Path:
        """The folder of the collection."""
        return self.home / "notes"

    @property
    def index(self) -> Path:
        """The file of the index."""
        return self.home / "index.sqlite"

    def read(self, name: str, *words: str, status: int = 0, most_output: int = _MOST_OUTPUT) -> str:
        """Run a command that someone waits for; see `run`."""
        answer = self.run(name, *words, status=status, most_output=most_output)
        least, each = _READ_S
        cpu_s = self.measured[-1].cpu_s
        self.check(cpu_s < least + each * self.n_notes, f"{name}: {cpu_s:.1f} s CPU")
        return answer

    def run(self, name: str, *words: str, status: int = 0, most_output: int = _MOST_OUTPUT, index: str = "") -> str:
        """Run `qmd WORDS`, measure it, and check its status and the length of its output."""
        environ = environment(
            self.home,
            INDEX_PATH=str(self.home / f"{index}index.sqlite"),
            QMD_CONFIG_DIR=str(self.home / f"{index}config"),
            XDG_CACHE_HOME=str(self.home / "cache"),
            QMD_DAEMON="off",
        )
        files = [(self.home / f"std{end}").open("w+b") for end in ("out", "err")]
        begun = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "qmd", *words], cwd=self.home, env=environ, stdin=subprocess.DEVNULL,
            stdout=files[0], stderr=files[1],
        )  # fmt: skip
        _, ended, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(ended)
        wall_s = time.monotonic() - begun
        said = []
        for file in files:
            file.seek(0)
            said.append(file.read().decode(errors="replace"))
            file.close()
        size = sum(path.stat().st_size for path in self.home.glob(f"{index}index.sqlite*")) / 1e6
        cpu_s, memory = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
        one = Measured(name, wall_s, cpu_s, memory, process.returncode, said[0], said[1], size)
        self.measured.append(one)
        self.row.tries += 1
        print(f"{name:32} {wall_s:7.1f} s {cpu_s:7.1f} s CPU {memory:6.0f} MB  index {size:6.0f} MB", file=sys.stderr)
        self.check(one.status == status, f"{name}: status {one.status}: {one.stderr[-300:]}")
        self.check("Traceback" not in one.stdout + one.stderr, f"{name}: {one.stderr[-300:]}")
        for what, text in (("prints", one.stdout), ("warns", one.stderr)):
            self.check(len(text) <= most_output, f"{name}: {what} {len(text):,} characters")
        return one.stdout

    def check(self, is_so: bool, otherwise: str) -> None:
        """Count a failure unless something is so."""
        if not is_so:
            self.row.fail(f"{self.n_notes:,} notes: {otherwise}")

    def write(self, path: str, number: int) -> None:
        """Write a note; its number makes its words."""
        dice = random.Random(f"{self.n_notes}/{number}")
        own = f"marker{number:07d}x"
        text = [f"---\ntags: [t{number % 50}]\ndate: 2024-{number % 12 + 1:02}-03\n---\n"] if number % 5 == 0 else []
        # A heading in seven is that of many notes, so that file names become titles.
        text.append(f"# {'Daily log' if number % 7 == 0 else f'About {_word(dice)} {_word(dice)}'}\n")
        text += [" ".join(_word(dice) for _ in range(25)) + f" {own}.\n" for _ in range(2)]
        if number % 3 == 0 and self.words:
            text.append(f"See [[marker-{dice.randrange(self.n_notes):07d}]] and [one](../topic-0/marker-0000001.md).\n")
        place = self.folder / os.fsdecode(os.fsencode(path))
        place.write_bytes("\n".join(text).encode())
        self.words[path] = number

    def found_by(self, number: int) -> list[str]:
        """Return the paths that a search for a note's own word finds."""
        answer = self.read("search", "search", f"marker{number:07d}x", "--json", "-n", "3")
        return [hit["file"] for hit in json.loads(answer or "[]")]

    def count(self) -> int:
        """Return the number of documents in the index."""
        with closing(apsw.Connection(str(self.index), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            return len(connection.execute("SELECT id FROM documents").fetchall())


def _word(dice: random.Random) -> str:
    """Return one of some 20,000 words, the first of them often."""
    return f"w{int(20_000 ** dice.random()):x}"


def make(notes: Notes) -> None:
    """Write the notes: three in ten below `large`, the rest in a hundred folders of folders."""
    for number in range(notes.n_notes):
        area = "large" if number % 10 < 3 else f"area-{number // 10 % 100}"
        folder = f"{area}/topic-{number // 1_000 % 10}"
        name = f"marker-{number:07d}"
        if number % 100 == 99:
            name = f"{_HARD_NAMES[number // 100 % len(_HARD_NAMES)]}{number}"
        (notes.folder / folder).mkdir(parents=True, exist_ok=True)
        notes.write(f"{folder}/{name}.md", number)
    # What an index leaves out must cost and say no more either: links that lead out, and files that are no text.
    (outside := notes.home / "outside.md").write_text("# Outside\n")
    (left_out := notes.folder / "left-out").mkdir()
    for number in range(notes.n_notes // 50):
        (left_out / f"link-{number}.md").symlink_to(outside)
        (left_out / f"binary-{number}.md").write_bytes(b"\0\1\2")


def change(notes: Notes) -> list[int]:
    """Rewrite, add and remove one note in three hundred each; return the numbers that are new."""
    paths = sorted(notes.words)
    several = max(notes.n_notes // 300, 1)
    chosen = notes.dice.sample(paths, 2 * several)
    new = []
    for at, path in enumerate(chosen[:several]):
        (notes.folder / path).unlink()
        del notes.words[path]
        new += [notes.n_notes + 2 * at, notes.n_notes + 2 * at + 1]
        notes.write(f"area-1/topic-0/new-{new[-2]}.md", new[-2])
        notes.write(chosen[several + at], new[-1])
    return new


def rename(notes: Notes) -> None:
    """Rename the folder with three notes in ten."""
    (notes.folder / "large").rename(notes.folder / "renamed")
    notes.words = {path.replace("large/", "renamed/", 1): number for path, number in notes.words.items()}


def remove(notes: Notes) -> None:
    """Remove half of the notes."""
    for path in notes.dice.sample(sorted(notes.words), len(notes.words) // 2):
        (notes.folder / path).unlink()
        del notes.words[path]


def read(notes: Notes, when: str) -> None:
    """Ask in all ways that read, and compare the answers with what is known."""
    status = notes.read(f"status, {when}", "status")
    counted = f"Total:    {len(notes.words)} files"
    notes.check(counted in status, f"status, {when}, says not '{counted}': {status[:200]}")
    path, number = notes.dice.choice(sorted(notes.words.items()))
    found = notes.found_by(number)
    notes.check(len(found) == 1, f"'{path}' is found {len(found)} times, {when}")
    get = notes.read("get", "get", found[0] if found else path)
    notes.check(f"marker{number:07d}x" in get, f"'{path}' cannot be read, {when}")
    notes.read("search, common words", "search", "w1 w2 w3", "-n", "5")
    notes.read("query, of a tag", "query", "w1 tag:t5", "-n", "5")
    notes.read("query, no words", "query", "after:2024-03", "-n", "5")
    notes.read("ls", "ls", "notes", most_output=500 * notes.n_notes)
    notes.read("related", "related", found[0] if found else path)
    notes.read("links", "links", found[0] if found else path)
    notes.read("get, of no note", "get", "notes/area-1/marker-000001.md", status=EXIT_NOT_FOUND)


def scenario(notes: Notes) -> None:
    """Index, read, change, rename and remove, with a look at the answers after each."""
    make(notes)
    notes.run("index", "index", str(notes.folder), "--no-embed")
    read(notes, "indexed")
    notes.run("embed, a few", "embed", "--timeout", "0.05")
    notes.run("update, nothing changed", "update")
    new = change(notes)
    notes.read("search, as 1 % has changed", "search", "w1", "-n", "3")
    notes.run("update, 1 % changed", "update")
    notes.check(len(notes.found_by(new[0])) == len(notes.found_by(new[1])) == 1, "a changed note is not found")
    rename(notes)
    notes.read("search, as 30 % are renamed", "search", "w1", "-n", "3")
    notes.run("update, 30 % renamed", "update")
    read(notes, "renamed")
    remove(notes)
    notes.read("search, as 50 % are removed", "search", "w1", "-n", "3")
    notes.run("update, 50 % removed", "update")
    read(notes, "removed")
    notes.run("cleanup", "cleanup")
    notes.run("index --verify", "index", "--verify", "--no-embed")
    notes.run("index, of what is left", "index", str(notes.folder), "--no-embed", index="fresh-")
    for difference in differences(notes.index, notes.home / "fresh-index.sqlite"):
        notes.check(False, difference)


def differences(one: Path, other: Path) -> Iterator[str]:
    """Yield the tables in which two indexes differ, a row at a time in memory."""
    opened = [apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY) for path in (one, other)]
    with closing(opened[0]), closing(opened[1]):
        for name in ("documents", "texts", "terms", "left out"):
            here, there = (map(_comparable, connection.execute(SELECTS[name])) for connection in opened)
            for row in here:
                if row != (matching := next(there, None)):
                    yield f"{name} differ from those of an index made of what is left: {row!r:.200} {matching!r:.200}"
                    break
            else:
                if next(there, None) is not None:
                    yield f"{name} lack rows of an index made of what is left"


def _comparable(row: Sequence[object]) -> list[object]:
    """Return a row with packed texts unpacked: equal ones may be packed in two ways."""
    return [unpack_text(one) if isinstance(one, bytes) else one for one in row]


def growing(small: Notes, large: Notes) -> Iterator[str]:
    """Yield the commands whose CPU time grows faster than the number of notes."""
    share = large.n_notes / small.n_notes
    for before, after in zip(small.measured, large.measured, strict=True):
        if after.cpu_s > _BASE_S + before.cpu_s * share * _MOST_GROWTH:
            yield f"{after.name}: {before.cpu_s:.1f} s CPU become {after.cpu_s:.1f} s"


def run(counts: Sequence[int], seed: int, home: Path, scenario: Callable[[Notes], None] = scenario) -> Row:
    """Run the scenario over so many notes, the smallest first; one row for all."""
    all_notes: list[Notes] = []
    total = Row("many notes")
    for n_notes in sorted(counts):
        (folder := home / str(n_notes)).mkdir(parents=True)
        all_notes.append(notes := Notes(folder, n_notes, random.Random(seed)))
        scenario(notes)
        total.tries += notes.row.tries
        total.failures += notes.row.failures
    for small, large in pairwise(all_notes):
        for what in growing(small, large):
            total.fail(what)
    return total


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--notes", type=int, default=100_000)
    parser.add_argument("--compare", type=int, default=10_000, help="the smaller run; 0 for none")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where the notes lie; kept")
    options = parser.parse_args(argv)
    counts = [one for one in (options.compare, options.notes) if one]
    if options.folder is not None:
        return print_table([run(counts, options.seed, options.folder.resolve())], shown=30)
    with tempfile.TemporaryDirectory() as folder:
        return print_table([run(counts, options.seed, Path(folder).resolve())], shown=30)


if __name__ == "__main__":
    sys.exit(main())
