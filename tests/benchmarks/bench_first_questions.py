"""Quality and time of the first, later and last answers about a folder that was indexed without vectors.

    python tests/benchmarks/bench_first_questions.py FOLDER QUESTIONS.json [--after INDEX.sqlite]

Ten questions, drawn with a fixed seed, are asked three times: at once, after ninety others, and with all vectors, which
are computed then (or copied from the index `--after`). Before each time the process is new and its models are loaded by
a question that does not count. Answers of the first time are kept, as `qmd query` keeps them; right first and right
among the first three are also given for words alone. Times are wall times of one question, reranked, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import qmd
from qmd.store.opening import open_reader, open_writer

FEW = 10
OTHERS = 90
SEED = 5


def ask(index: Path, questions: Sequence[dict[str, Any]], mode: Literal["lexical", "hybrid"]) -> None:
    """Ask in this process and print one JSON line: rank of the first right file (0 for none) and milliseconds."""
    answers = []
    with qmd.open_index(index, config=json.loads(index.with_suffix(".json").read_text("utf-8"))) as opened:
        opened.search("warm up", mode=mode, limit=1, collections="notes")
        for question in questions:
            begun = time.perf_counter()
            hits = opened.search(question["query"], mode=mode, limit=10).hits
            elapsed_ms = (time.perf_counter() - begun) * 1000
            ranks = [n for n, hit in enumerate(hits, 1) if hit.document.path in question["expected_files"]]
            answers.append((ranks[0] if ranks else 0, elapsed_ms))
    print(json.dumps(answers))


def measure(label: str, index: Path, questions: Path, part: str, mode: str = "hybrid") -> None:
    """Ask in a process of its own and print a row."""
    command = [sys.executable, __file__, str(index), str(questions), "--ask", part, "--mode", mode]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    finished = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    answers = json.loads(finished.stdout.splitlines()[-1])
    times = sorted(elapsed_ms for _, elapsed_ms in answers)
    with open_reader(index) as reader:
        state = reader.status(None)
    first, three = (sum(0 < rank <= most for rank, _ in answers) for most in (1, 3))
    print(
        f"{label:34} right first {first:3} in three {three:3} of {len(answers)}"
        f" | ms median {statistics.median(times):6.0f} most {times[-1]:6.0f}"
        f" | notes with vectors {state.documents - state.pending_documents}",
        flush=True,
    )


def parts(questions: Sequence[dict[str, Any]]) -> dict[str, Sequence[dict[str, Any]]]:
    """Return the ten, the ninety, and all."""
    drawn = random.Random(SEED).sample(questions, min(FEW + OTHERS, len(questions)))
    return {"few": drawn[:FEW], "others": drawn[FEW:], "all": questions}


def take_vectors(index: Path, complete: Path) -> None:
    """Give an index the vectors and chunk sets that another one has of the same texts."""
    with open_reader(complete) as source, open_writer(index) as target:
        [model] = source.models()
        for vectors in source.all_vectors(model.fingerprint):
            target.put_vectors(model.fingerprint, model.dim, vectors)
        for sets in source.chunk_sets(model.fingerprint):
            target.put_chunks(model.fingerprint, model.dim, sets)


def main() -> None:
    """Run the benchmark and print its rows."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--after", type=Path)
    parser.add_argument("--ask", choices=["few", "others", "all"], help=argparse.SUPPRESS)
    parser.add_argument("--mode", default="hybrid", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    known = json.loads(arguments.questions.read_text("utf-8"))["queries"]
    if arguments.ask:
        ask(arguments.folder, parts(known)[arguments.ask], arguments.mode)
        return
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index.sqlite"
        config = {"collections": {"notes": {"path": str(arguments.folder.resolve()), "pattern": "**/*.md"}}}
        index.with_suffix(".json").write_text(json.dumps(config), "utf-8")
        begun = time.perf_counter()
        with qmd.open_index(index, config=config) as opened:
            [report] = opened.update()
        print(f"indexed {report.new} files without vectors in {time.perf_counter() - begun:.1f} s")
        measure("words alone", index, arguments.questions, "few", "lexical")
        measure("the first ten", index, arguments.questions, "few")
        measure("the next ninety", index, arguments.questions, "others")
        measure("the same ten after a hundred", index, arguments.questions, "few")
        measure("all questions, words alone", index, arguments.questions, "all", "lexical")
        measure("all questions", index, arguments.questions, "all")
        if arguments.after:
            take_vectors(index, arguments.after)
        with qmd.open_index(index, config=config) as opened:
            opened.embed()
        measure("the same ten with all vectors", index, arguments.questions, "few")
        measure("all questions with all vectors", index, arguments.questions, "all")


if __name__ == "__main__":
    main()
