"""Histories of agents: share of questions answered from generated sessions, and the cost of many sessions.

    pip install bpe-openai
    python -m tests.benchmarks.bench_history [--half development|aside|all] [--raw] [--verbose] [--save FILE]
        [--compare FILE]
    python -m tests.benchmarks.bench_history --cost SESSIONS KB [--vectors] [--raw]

The sessions are those of `transcripts.py`, the questions `questions/history.json`, asked on the day after the last
session with the built-in models. With --raw the same files are indexed as plain text. Measures:

- `pack 2000`: a sentence with the answer is in a `pack` of 2,000 tokens (o200k);
- `session 5`, `passage 5`: the session is among the first 5 hits, and the passage of such a hit is from the right turn;
- `filtered`: `pack 2000` of the questions about one project, with the filter `project:NAME`;
- `refused`: the verdict is that nothing answers; of questions without an answer as well (kind `none`).

Half of each kind is set aside: measure it once, at the end; --verbose prints no question of it. --cost prints processor
time of reading and indexing, and what one turn costs that is appended to a session. Without --vectors, they are
computed for 20 of the sessions.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from unittest.mock import patch

import msgspec
from bpe_openai import get_encoding
from msgspec import Struct

import qmd
from qmd.app.index import Index
from qmd.masks import HISTORY
from qmd.plugins.pack.packing import pack
from qmd.retrieval.request import SearchRequest
from qmd.retrieval.trace import Listener
from tests.benchmarks.answers import holds_any
from tests.benchmarks.bootstrap import report
from tests.benchmarks.transcript_formats import Writer
from tests.benchmarks.transcripts import FACTS, TODAY, write_history, write_plain

QUESTIONS = Path(__file__).parent / "questions/history.json"
TOKENS, HITS, SAMPLE = 2_000, 5, 20


class Question(Struct, frozen=True):
    """A question; `evidence` is a sentence of one turn of a session, empty if nothing answers."""

    id: str
    kind: str
    half: str
    query: str
    fact: str = ""
    project: str = ""
    evidence: tuple[str, ...] = ()
    session: str = ""
    turn: int = 0


def questions(half: str) -> list[Question]:
    """Return the questions of a half, or `all`."""
    content = json.loads(QUESTIONS.read_text("utf-8"))["queries"]
    return [one for one in msgspec.convert(content, list[Question]) if half in (one.half, "all")]


@contextmanager
def opened(database: Path, folder: Path, *, raw: bool) -> Iterator[Index]:
    """Open an index of the sessions in a folder."""
    collection = {"path": str(folder), "pattern": HISTORY.replace(".jsonl", ".txt") if raw else HISTORY}
    environ = {**os.environ, "QMD_EMBED_MODEL": "built-in", "QMD_RERANK_MODEL": "built-in", "QMD_DAEMON": "0"}
    with qmd.open_index(database, config={"collections": {"sessions": collection}}, environ=environ) as index:
        yield index


def as_text(folder: Path) -> None:
    """Give all transcripts the ending of a plain text."""
    for path in list(folder.rglob("*.jsonl")):
        path.rename(path.with_suffix(".txt"))


def measure(index: Index, question: Question, *, has_projects: bool) -> Iterator[tuple[str, float]]:
    """Yield the measures of one question."""
    response = index.search(SearchRequest(question.query, limit=10))
    yield "refused", float(response.verdict == "none")
    if not question.evidence:
        return
    yield "pack 2000", _is_packed(index, SearchRequest(question.query), question)
    if question.project and has_projects:
        request = SearchRequest(question.query, filter=f"project:{question.project}")
        yield "filtered", _is_packed(index, request, question)
    stem = Path(question.session).stem
    hits = [hit for hit in response.hits[:HITS] if Path(hit.document.path).stem == stem]
    yield "session 5", float(bool(hits))
    is_right = [
        holds_any(hit.passage.text, question.evidence) or hit.passage.heading_trail[-1:] == (f"turn{question.turn}",)
        for hit in hits
    ]
    yield "passage 5", float(any(is_right))


def _is_packed(index: Index, request: SearchRequest, question: Question) -> float:
    encoding = get_encoding("o200k_base")
    text = pack(index, request, Listener(), TOKENS, "md")
    return float(holds_any(str(encoding.decode(encoding.encode(text)[:TOKENS])), question.evidence))


def wrong_turns(index: Index) -> list[str]:
    """Return questions whose evidence is in another turn of the indexed text, where that has turns."""
    wrong = []
    texts = {Path(one.path).stem: index.get(one.uri).text for one in index.documents()}
    for one in questions("all"):
        if not one.evidence:
            continue
        before, found, _ = texts[Path(one.session).stem].partition(one.evidence[0])
        heading = f"\n## turn{one.turn}\n"
        if not found or ("\n## turn" in before and before.rindex("\n## turn") != before.rfind(heading)):
            wrong.append(one.id)
    return wrong


def ask(half: str, *, raw: bool, verbose: bool) -> dict[str, dict[str, float]]:
    """Index the history, ask, and return measure and kind → question → value."""
    measured: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as made, patch("qmd.times.local_today", lambda: date.fromisoformat(TODAY)):
        folder = Path(made).resolve() / "history"
        write_history(folder)
        if raw:
            as_text(folder)
        with opened(folder.with_name("index.sqlite"), folder, raw=raw) as index:
            index.update()
            done = index.embed()
            print(f"{done.documents} sessions, {done.chunks} chunks, {len(FACTS)} facts", flush=True)
            if wrong := wrong_turns(index):
                print(f"evidence missing, or in another turn: {len(wrong)}", *wrong if verbose else ())
            has_projects = any(one.field == "project" for one in index.fields())
            for one in questions(half):
                values = dict(measure(index, one, has_projects=has_projects))
                if verbose and one.half == "development":
                    print(f"{one.id:12} {values} {one.query}", flush=True)
                for what, value in values.items():
                    kinds = (one.kind,) if one.kind == "none" else (one.kind, "answerable")
                    for kind in kinds:
                        measured.setdefault(f"{what} {kind}", {})[one.id] = value
    return measured


def cpu_s() -> float:
    """Return the processor time of this process and its children."""
    return sum(os.times()[:4])


class Cost(Struct):
    """Prints steps with their processor time."""

    index: Index
    database: Path

    def step(self, name: str, *, vectors: bool = False) -> None:
        """Update the index, compute vectors if wanted, and print a line."""
        before, size = cpu_s(), self.size_bytes()
        self.index.update()
        line = f"{name:28} words {cpu_s() - before:8.2f} s"
        if vectors:
            before = cpu_s()
            done = self.index.embed()
            spent = cpu_s() - before
            line += f"   vectors {spent:8.2f} s, {done.embedded} computed, {done.reused} reused"
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{line}   index {(self.size_bytes() - size) / 1e6:+.2f} MB   peak {peak:.0f} MB", flush=True)

    def size_bytes(self) -> int:
        """Return the size of the index with its side files."""
        return sum(path.stat().st_size for path in self.database.parent.glob(f"{self.database.name}*"))


def cost(n_sessions: int, size_kb: int, *, raw: bool, vectors: bool) -> None:
    """Print the cost of sessions, of finding nothing changed, and of one more turn."""
    runs = {"all": (n_sessions, vectors)} | ({} if vectors else {"sample": (min(SAMPLE, n_sessions), True)})
    for name, (n, with_vectors) in runs.items():
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made).resolve() / "history"
            writers = [write_plain(folder, number, size_kb * 1_000) for number in range(n)]
            if raw:
                as_text(folder)
            _print_cost(folder, writers, name, raw=raw, vectors=with_vectors)


def _print_cost(folder: Path, writers: Sequence[Writer], name: str, *, raw: bool, vectors: bool) -> None:
    suffix = ".txt" if raw else ".jsonl"
    paths = [(folder / writer.path()).with_suffix(suffix) for writer in writers]
    megabytes = sum(path.stat().st_size for path in paths) / 1e6
    print(f"{name}: {len(paths)} sessions, {megabytes:.1f} MB")
    database = folder.with_name("index.sqlite")
    with opened(database, folder, raw=raw) as index:
        costs = Cost(index, database)
        costs.step("first index", vectors=vectors)
        costs.step("nothing changed", vectors=vectors)
        for position in (0, 1):  # one of Codex, one of Claude Code
            writer, n_lines = writers[position], len(writers[position].lines)
            writer.exchange([("user", "and one more thing"), ("assistant", writer.chosen("overview"))])
            added = "".join(line + "\n" for line in writer.lines[n_lines:])
            with paths[position].open("a", encoding="utf-8") as file:
                file.write(added)
            costs.step(f"a turn of {len(added.encode())} bytes", vectors=vectors)


def main(argv: Sequence[str] | None = None) -> int:
    """Ask and print a line for each measure, or print the cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=("development", "aside", "all"), default="development")
    parser.add_argument("--raw", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--cost", nargs=2, type=int, metavar=("SESSIONS", "KB"))
    parser.add_argument("--vectors", action="store_true")
    options = parser.parse_args(argv)
    if options.cost:
        cost(*options.cost, raw=options.raw, vectors=options.vectors)
        return 0
    measured = ask(options.half, raw=options.raw, verbose=options.verbose)
    report(measured, options.compare, options.save)
    return 0


if __name__ == "__main__":
    sys.exit(main())
