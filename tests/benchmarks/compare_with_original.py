"""Run the original (tobi/qmd 2.8.3) and this program over the same folder: outputs field by field, and costs.

    mkdir peer && (cd peer && npm install node@22 @tobilu/qmd@2.8.3)
    python tests/benchmarks/compare_with_original.py FOLDER --peer peer [--measure] [--runs 7]

Both get an empty configuration and an index of their own. Without models the original does everything but `embed`,
`vsearch` and `query`, so those are not compared here. Every difference is printed with its reason; one without a reason
makes the exit status 1. Without Node 22 or the package the script prints a message and ends with status 0.
`--measure` adds ratios, as in docs/dev/benchmarks.md: all figures are of one machine and one run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 900


@dataclass(frozen=True)
class Program:
    """One of the two programs: its command, environment and index."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    database: Path


@dataclass(frozen=True)
class Done:
    """Output and cost of one run."""

    status: int
    out: str
    err: str
    wall_s: float
    cpu_s: float
    peak_mb: float


@dataclass(frozen=True)
class Case:
    """A command line to compare; `kind` selects how to read its output."""

    argv: tuple[str, ...]
    kind: str = "text"


@dataclass(frozen=True)
class Difference:
    """A field that differs."""

    case: str
    field: str
    theirs: str
    ours: str


REASONS: tuple[tuple[str, str, str], ...] = (
    (
        r"(search|query).*",
        r"rows",
        "ranking: any word may match, stop words do not count, titles and headings weigh more",
    ),
    (
        r"search.*",
        r".*\.(score|snippet|line)",
        "calibrated score; the snippet is the line with most of the query's weight",
    ),
    (r".*", r".*\.title", "titles lose their markup, and front matter may name one"),
    (r".*", r".*\.added", "additive fields: collection, path, uri, start_line, end_line"),
    (r".*", r".*\.context", "a note ends at its folder: 'sub' does not apply to 'subway'"),
    (r"get.*", r"last line", "the last line break ends a line and begins no empty one"),
    (r"multi-get.*", r".*\.body", "the last line break ends a line and begins no empty one"),
    (r"multi-get.*", r".*\.(file|skipped|reason)", "a single name is shown as the address that get takes"),
    (r"multi-get.*", r"text", "titles without markup; a single name is shown as the address that get takes"),
    (r"ls", r"text", "'1 file' in the singular; .gitignore and .qmdignore are honoured"),
    (r"ls .*", r"text", "the width of the size column fits the listing; .gitignore and .qmdignore are honoured"),
    (r"(collection|context|status).*", r"text", "see the tables of docs/dev/conformance.md"),
    (r".*", r"status", "2 for wrong usage and 3 for what does not exist, where the original says 1"),
    (r"search.*", r"stderr", "a word that no document contains is named"),
    (r".*", r"stderr", "one line of error and one of advice"),
)
"""(command, field, reason of a difference), regular expressions; the first match counts."""


def peer_program(folder: Path, home: Path) -> Program | str:
    """Return the original as installed in `folder`, or why it cannot run."""
    script = folder / "node_modules" / "@tobilu" / "qmd" / "dist" / "cli" / "qmd.js"
    if not script.is_file():
        return f"no @tobilu/qmd in '{folder}' (npm install node@22 @tobilu/qmd@2.8.3)"
    bundled = folder / "node_modules" / "node" / "bin" / "node"
    node = str(bundled) if bundled.is_file() else shutil.which("node")
    if node is None:
        return "Node is not at hand"
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    if int((re.match(r"v(\d+)", version) or ["", "0"])[1]) < 22:
        return f"Node 22 or newer is needed, '{node}' is {version.strip()}"
    database = home / "peer" / "index.sqlite"
    own = {"INDEX_PATH": str(database), "QMD_CONFIG_DIR": str(home / "peer" / "config"), "CI": "1"}
    return Program("original", (node, str(script)), {**_environment(home), **own}, database)


def our_program(home: Path) -> Program:
    """Return this program from this checkout."""
    database = home / "ours" / "index.sqlite"
    own = {"INDEX_PATH": str(database), "QMD_CONFIG_DIR": str(home / "ours" / "config"), "QMD_DAEMON": "0"}
    installed = Path(sys.executable).with_name("qmd")
    command = (str(installed),) if installed.is_file() else (sys.executable, "-m", "qmd")
    return Program("ours", command, {**_environment(home), "PYTHONPATH": str(ROOT), **own}, database)


def _environment(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "NO_COLOR": "1", "LANG": "C.UTF-8"}


def run(program: Program, argv: Sequence[str], cwd: Path) -> Done:
    """Run one command to its end."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = time.perf_counter()
        env = {**program.env, "PWD": str(cwd)}
        process = subprocess.Popen([*program.command, *argv], env=env, cwd=cwd, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        texts = [stream.read().decode("utf-8", "replace") for stream in (out, err)]
    peak_mb = usage.ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    return Done(process.returncode, texts[0], texts[1], wall_s, usage.ru_utime + usage.ru_stime, peak_mb)


def cases(names: Sequence[str], words: Sequence[str]) -> list[Case]:
    """Return the commands to compare: `names` are paths of documents, `words` occur in them."""
    first, second = names[0], names[1]
    found = [
        Case(("search", word, "--format", format, "-n", "5"), format) for word in words for format in ("json", "csv")
    ]
    found += [Case(("search", words[0], "--files"), "files"), Case(("search", "zzyzxq", "--json"), "json")]
    found += [Case(("search", "zzyzxq", *option)) for option in ((), ("--csv",), ("--xml",), ("--md",), ("--files",))]
    found += [Case(("get", first)), Case(("get", f"{first}:2:3")), Case(("get", f"qmd://docs/{first}", "-l", "2"))]
    found += [Case(("get", first, "--from", "3", "-l", "2", "--no-line-numbers")), Case(("get", "no-such.md"))]
    found += [Case(("get", first, "--full-path", "-l", "1")), Case(("get", first, "--from", "99999"))]
    found += [
        Case(("multi-get", f"{first},{second}", "--format", format), format) for format in ("json", "csv", "files")
    ]
    found += [
        Case(("multi-get", f"{first},{second}", "-l", "2", "--format", format)) for format in ("cli", "md", "xml")
    ]
    found += [Case(("multi-get", "no-such*.md")), Case(("multi-get", f"{first},no-such.md", "--files"), "files")]
    found += [Case(("ls",)), Case(("ls", "docs")), Case(("ls", "docs/zzz")), Case(("ls", "nope"))]
    found += [Case(("collection", *rest)) for rest in (("list",), ("show", "docs"), ("show", "nope"), ("zork",))]
    found += [Case(("context", "list")), Case(("context", "rm", "qmd://docs/none")), Case(("status",)), Case(("zork",))]
    return found


def compare(case: Case, theirs: Done, ours: Done, home: Path) -> list[Difference]:
    """Return every field in which two runs of one command differ."""
    name = " ".join(case.argv)
    found = []
    if theirs.status != ours.status:
        found.append(Difference(name, "status", str(theirs.status), str(ours.status)))
    if theirs.err.strip() != ours.err.strip():
        found.append(Difference(name, "stderr", _short(theirs.err), _short(ours.err)))
    one, two = (_normalise(done.out, home) for done in (theirs, ours))
    if one == two:
        return found
    if case.kind == "text":
        return [*found, *_compare_text(name, one, two)]
    rows = [_rows(text, case.kind) for text in (one, two)]
    keys = [[row["file"] for row in listed] for listed in rows]
    if sorted(keys[0]) != sorted(keys[1]):
        found.append(Difference(name, "rows", ", ".join(keys[0]), ", ".join(keys[1])))
    elif keys[0] != keys[1]:
        found.append(Difference(name, "order", ", ".join(keys[0]), ", ".join(keys[1])))
    by_file = {row["file"]: row for row in rows[1]}
    for row in rows[0]:
        other = by_file.get(row["file"], row)
        for field in row:
            if row[field] != other.get(field):
                found.append(Difference(name, f"row.{field}", _short(row[field]), _short(other.get(field, ""))))
        added = sorted(other.keys() - row.keys())
        if added:
            found.append(Difference(name, "row.added", "", ", ".join(added)))
    return list(dict.fromkeys(found))


def _compare_text(name: str, theirs: str, ours: str) -> list[Difference]:
    lines = [text.rstrip("\n").split("\n") for text in (theirs, ours)]
    if re.sub(r"\d+: \Z", "", theirs.rstrip("\n")).rstrip() == ours.rstrip():
        return [Difference(name, "last line", lines[0][-1], lines[1][-1])]
    different = [(a, b) for a, b in zip(*lines, strict=False) if a != b]
    one, two = different[0] if different else (f"{len(lines[0])} lines", f"{len(lines[1])} lines")
    return [Difference(name, "text", _short(one), _short(two))]


def _rows(text: str, kind: str) -> list[dict[str, str]]:
    if kind == "json":
        return [{key: str(value) for key, value in row.items()} for row in json.loads(text)]
    import csv
    import io

    if kind == "csv":
        return list(csv.DictReader(io.StringIO(text)))
    return [{"file": next(field for field in row if ".md" in field)} for row in csv.reader(io.StringIO(text))]


def _normalise(text: str, home: Path) -> str:
    text = re.sub(r"\d+[smhd] ago", "T ago", text.replace(str(home), "HOME"))
    # Numbered bodies: the empty line after the last line break.
    return text.replace("HOME/peer", "HOME/own").replace("HOME/ours", "HOME/own")


def _short(value: object) -> str:
    text = " ⏎ ".join(str(value).strip().splitlines())
    return text if len(text) <= 110 else f"{text[:107]}..."


def reason_for(difference: Difference) -> str | None:
    """Return the reason of an intended difference, or None."""
    for command, field, reason in REASONS:
        if re.fullmatch(command, difference.case) and re.fullmatch(field, difference.field):
            return reason
    return None


def measure(programs: Sequence[Program], folder: Path, cwd: Path, runs: int, example: str) -> list[str]:
    """Return the cost of both programs as lines of a table; the index is rebuilt."""
    samples: dict[str, list[list[float]]] = {}

    def note(name: str, program: Program, value: float) -> None:
        samples.setdefault(name, [[], []])[programs.index(program)].append(value)

    # In turns, so that other load affects both alike.
    for _ in range(max(runs // 3, 1)):
        for program in programs:
            shutil.rmtree(program.database.parent, ignore_errors=True)
            first = run(program, ("collection", "add", str(folder), "--name", "docs"), cwd)
            note("first index, wall s", program, first.wall_s)
            note("first index, CPU s", program, first.cpu_s)
            note("first index, peak MB", program, first.peak_mb)
    for program in programs:
        run(program, ("cleanup",), cwd)
        parts = program.database.parent.glob(program.database.name + "*")
        note("index size, MB", program, sum(part.stat().st_size for part in parts) / 1e6)
    commands = (
        ("update",),
        ("search", "string conversion", "--json"),
        ("get", example),
        ("status",),
        ("multi-get", "*.md", "-l", "3", "--json"),
    )
    for command in commands:
        name = "nothing changed" if command == ("update",) else command[0]
        for _ in range(runs):
            for program in programs:
                done = run(program, command, cwd)
                note(f"{name}, wall s", program, done.wall_s)
                note(f"{name}, CPU s", program, done.cpu_s)
    figures = {name: [statistics.median(values) for values in pair] for name, pair in samples.items()}
    return [f"| {name} | {theirs:.3g} | {ours:.3g} | {ours / theirs:.2f} |" for name, (theirs, ours) in figures.items()]


def main() -> int:
    """Compare, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peer", type=Path, default=Path(os.environ.get("QMD_ORIGINAL", "peer")))
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--only-measure", action="store_true")
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        home = Path(made).resolve()
        peer = peer_program(arguments.peer.resolve(), home)
        if isinstance(peer, str):
            print(f"skipped: {peer}")
            return 0
        programs = (peer, our_program(home))
        docs = home / "work" / "docs"
        shutil.copytree(arguments.folder, docs, symlinks=True)
        unexplained = 0 if arguments.only_measure else _compare_all(programs, docs, home)
        if arguments.measure or arguments.only_measure:
            example = sorted(path.name for path in docs.rglob("*.md"))[0]
            print("\n| | original | ours | ratio |\n|---|---|---|---|")
            print("\n".join(measure(programs, docs, docs.parent, arguments.runs, example)))
    return 1 if unexplained else 0


def _compare_all(programs: Sequence[Program], docs: Path, home: Path) -> int:
    """Print every difference once with its reason; return the number of those without one."""
    setup = (
        ("collection", "add", str(docs), "--name", "docs"),
        ("context", "add", "/", "Everything"),
        ("context", "add", f"qmd://docs/{_some_folder(docs)}", "One folder"),
    )
    for argv in setup:
        for program in programs:
            done = run(program, argv, docs.parent)
            if done.status:
                raise SystemExit(f"{program.name}: {argv} failed with {done.status}: {done.err}")
    relative = (path.relative_to(docs).as_posix() for path in docs.rglob("*.md") if path.stat().st_size > 200)
    names = sorted(name for name in relative if not re.search(r"(^|/)\.", name))
    counted: dict[tuple[str, str, str | None], list[Difference]] = {}
    all_cases = cases(names, _words(docs, names))
    n_equal = 0
    for case in all_cases:
        theirs, ours = (run(program, case.argv, docs.parent) for program in programs)
        found = compare(case, theirs, ours, home)
        n_equal += not found
        for difference in found:
            key = (difference.case.split()[0], difference.field, reason_for(difference))
            counted.setdefault(key, []).append(difference)
    print(f"{len(all_cases)} commands, {n_equal} with no difference at all")
    for (command, field, reason), differences in counted.items():
        one = differences[0]
        print(f"\n{command}: {field} differs {len(differences)} times: {reason or 'UNEXPLAINED'}")
        print(f"  qmd {one.case}\n    original: {one.theirs}\n    ours:     {one.ours}")
    return sum(len(found) for (_, _, reason), found in counted.items() if reason is None)


def _some_folder(docs: Path) -> str:
    return next((path.name for path in sorted(docs.iterdir()) if path.is_dir()), "none")


def _words(docs: Path, names: Sequence[str]) -> list[str]:
    """Return longer words of a few documents, the same in every run."""
    words = []
    for name in names[:: max(len(names) // 4, 1)][:4]:
        words += re.findall(r"[A-Za-z]{8,}", (docs / name).read_text("utf-8", "replace"))[-1:]
    return list(dict.fromkeys(words)) or ["string"]


if __name__ == "__main__":
    sys.exit(main())
