"""Kill `index` at a random moment, let Python's `sqlite3` open what is left, and see that nothing is lost by it.

    python -m tests.robustness.plain_programs [--tries 200] [--seed 1]

Such a program writes the pages of the log, or pages of its own, without the checksums of qmd. A search must then answer
or refuse in one line; the next `index` must set nothing aside, keep every vector, and lead to the answers of an index
made from nothing.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from qmd.config.paths import Locations
from qmd.errors import NotFoundError, QmdError
from qmd.store.opening import open_reader
from tests.robustness import flip_bits
from tests.robustness.crash_states import memory_folder
from tests.robustness.report import Row, print_table, with_progress


def _count(connection: sqlite3.Connection) -> None:
    connection.execute("SELECT count(*) FROM documents").fetchall()


def _checkpoint(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _vacuum(connection: sqlite3.Connection) -> None:
    connection.execute("VACUUM")


def _insert_and_delete(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO meta VALUES ('of another program', ?)", ("x" * 20_000,))
    connection.execute("DELETE FROM meta WHERE key = 'of another program'")
    connection.execute("UPDATE documents SET title = title || 'x'")
    connection.execute("UPDATE documents SET title = substr(title, 1, length(title) - 1)")


PROGRAMS: dict[str, Callable[[sqlite3.Connection], None]] = {
    "select": _count,
    "checkpoint": _checkpoint,
    "vacuum": _vacuum,
    "insert and delete": _insert_and_delete,
}


def run(tries: int, seed: int, home: Path) -> list[Row]:
    """Try each program after kills; the rows of the table, one for each."""
    places, fresh = flip_bits.make_index(home), flip_bits.places_in(home, "fresh")
    cache = places.database.parent
    shutil.copytree(cache, home / "before")
    for path in sorted((home / "notes").iterdir())[::2]:
        path.write_text(path.read_text(encoding="utf-8") + " ".join(flip_bits.WORDS[::5]) + "\n", encoding="utf-8")
    whole_s = _index(fresh, None)
    expected = flip_bits.ask(fresh.database)
    chooser = random.Random(seed)
    rows, refused = {name: Row(name) for name in PROGRAMS}, Counter[str]()
    for number in with_progress("plain programs", range(tries)):
        shutil.rmtree(cache, ignore_errors=True)
        if number % 4:
            shutil.copytree(home / "before", cache)
        row = chooser.choice(list(rows.values()))
        row.tries += 1
        took_s = _index(places, whole_s * chooser.random())
        if not places.database.exists():
            continue
        vectors = _vectors(places.database)
        _let_write(PROGRAMS[row.name], places.database)
        try:
            flip_bits.ask(places.database)
        except QmdError:
            refused[row.name] += 1
        if problem := _index_again(places, vectors, expected, verify=chooser.random() < 0.5):
            row.fail(f"try {number}, killed after {took_s:.3f} s: {problem}")
        row.note = f"search refused {refused[row.name]} times"
    return list(rows.values())


def _index(places: Locations, wait_s: float | None) -> float:
    """Index in a process, which is killed after so many seconds; the time that it had."""
    process, begun = multiprocessing.get_context("fork").Process(target=_index_slowly, args=(places,)), time.monotonic()
    process.start()
    process.join(wait_s)
    took_s = time.monotonic() - begun
    process.kill()
    process.join()
    return took_s


def _index_slowly(places: Locations) -> None:
    flip_bits.index(places, verify=False, embedder=replace(flip_bits.EMBEDDER, before=lambda _: time.sleep(0.02)))


def _let_write(program: Callable[[sqlite3.Connection], None], database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        # A run that was killed at once has made no tables.
        if connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
            program(connection)


def _index_again(
    places: Locations, vectors: set[tuple[bytes, bytes]], expected: flip_bits.Answers, *, verify: bool
) -> str | None:
    """Index after the program; the first problem."""
    try:
        flip_bits.index(places, verify=verify)
    except QmdError as exc:
        return f"index: {exc}"
    if aside := [path.name for path in places.database.parent.glob("*.damaged*")]:
        return f"set aside: {aside}"
    if lost := vectors - _vectors(places.database):
        return f"{len(lost)} of {len(vectors)} vectors lost"
    answers = flip_bits.ask(places.database)
    wrong = [name for name, answer in expected.items() if answers.get(name) != answer]
    return f"other answers: {wrong[:3]}" if wrong else None


def _vectors(database: Path) -> set[tuple[bytes, bytes]]:
    """The vectors with their keys, unless the run was killed before it made a table."""
    try:
        with open_reader(database) as reader:
            found = list(reader.all_vectors(flip_bits.EMBEDDER.fingerprint))
    except NotFoundError:
        return set()
    return {(key, vector.tobytes()) for part in found for key, vector in part.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        return print_table(run(options.tries, options.seed, Path(folder).resolve()))


if __name__ == "__main__":
    sys.exit(main())
