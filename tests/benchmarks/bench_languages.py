"""Answers to questions in other languages than English, and their number of warnings.

    python -m tests.benchmarks.bench_languages INDEX=QUESTIONS… [--modes lexical,hybrid] [--embed MODEL]
        [--index-dir DIR] [--save FILE] [--compare FILE]

Prints for each language (the type of a question) and mode the share of questions whose page is first and within three,
the mean reciprocal rank (10), the same first with the English original of a page counted as well, and the lines of
warnings for each question. A fixture with `notes` needs no index: `=QUESTIONS` indexes them. Two files of XQuAD are a
fixture as well: every paragraph of the first is a note, and the first question about it in the second is asked; their
indexes are kept in --index-dir. --compare prints differences to a saved run with 95 % intervals (paired bootstrap).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from qmd.indexing.embed import embed_pending
from qmd.indexing.reading import stored_form
from qmd.inference.base import Engines
from qmd.inference.loader import load_engines
from qmd.inference.settings import EngineSettings
from qmd.plugins.bench.fixture import read_fixture, same_file
from qmd.plugins.bench.running import BACKENDS
from qmd.records import Collection
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import parse_query
from qmd.store.base import IndexReader
from qmd.store.opening import open_reader, open_writer
from tests.benchmarks.bootstrap import compare_runs
from tests.benchmarks.metrics import average
from tests.parsing import parse_document

MODES = {"hybrid": "full", "fused": "hybrid", "lexical": "bm25", "dense": "vector"}
MEASURES = ("first", "three", "rr", "original", "warnings")


def main(argv: Sequence[str] | None = None) -> int:
    """Ask every question in every mode and print a line for each language."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", metavar="INDEX=QUESTIONS")
    parser.add_argument("--modes", default="lexical,hybrid")
    parser.add_argument("--embed", default="built-in")
    parser.add_argument("--index-dir", type=Path, default=Path(".bench"))
    parser.add_argument("--save", type=Path)
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--show", action="store_true", help="each question with its rank and its warnings")
    options = parser.parse_args(argv)
    settings = EngineSettings(models_dir=Path("no-full-tier"), embed=options.embed, rerank="built-in")
    engines = load_engines(settings, ("embed", "rerank"))
    old = json.loads(options.compare.read_text()) if options.compare else {}
    kept: dict[str, dict[str, float]] = {}
    for index, _, questions in (one.partition("=") for one in options.sets):
        with tempfile.TemporaryDirectory() as folder:
            path, fixture = Path(index), Path(questions)
            if path.suffix == ".json":
                notes, asked = path, fixture
                path = options.index_dir / f"{notes.stem}.{options.embed}.sqlite"
                fixture = Path(folder) / f"{notes.stem}={asked.stem}.json"
                fixture.write_text(json.dumps(join_squad(notes, asked)))
            path = path if index else Path(folder) / "index.sqlite"
            if not path.exists():
                index_notes(fixture, path, engines)
            with open_reader(path) as reader:
                for mode in options.modes.split(","):
                    kept |= ask(reader, engines, fixture, mode, shows=options.show)
    for name, values in kept.items():
        mean = average(list(values.values()))
        line = f"{name:44} {mean:6.3f} ({len(values)})"
        if name in old:
            c = compare_runs(old[name], values)
            line += f"   {c.difference:+.3f} [{c.low:+.3f}, {c.high:+.3f}], {c.better} up, {c.worse} down"
        print(line)
    if options.save:
        options.save.write_text(json.dumps(kept))
    return 0


def join_squad(notes: Path, questions: Path) -> dict[str, object]:
    """Return a fixture of the paragraphs of one file of SQuAD and the first question of another about each."""
    found: dict[str, str] = {}
    queries = []
    pairs = zip(read_paragraphs(notes), read_paragraphs(questions), strict=True)
    for number, (own, other) in enumerate(pairs):
        path = f"{number:03}.md"
        found[path] = own["context"]
        asked = other["qas"][0]
        queries.append({"id": asked["id"], "type": "asked", "query": asked["question"], "expected_files": [path]})
    return {"notes": found, "queries": queries}


def read_paragraphs(file: Path) -> list[dict[str, Any]]:
    """Return the paragraphs of a file of SQuAD, with their questions."""
    articles = json.loads(file.read_text(encoding="utf-8"))["data"]
    return [paragraph for article in articles for paragraph in article["paragraphs"]]


def index_notes(fixture: Path, database: Path, engines: Engines) -> None:
    """Make an index of the notes in a fixture, with vectors."""
    with open_writer(database) as writer:
        writer.mirror_config([Collection("notes", database.parent)], None, "bench")
        with writer.transaction():
            for path, text in json.loads(fixture.read_text(encoding="utf-8"))["notes"].items():
                raw = text.encode()
                writer.put_documents("notes", [stored_form(parse_document(path, raw), len(raw), 0, 0, 0)])
            writer.settle("notes")
        assert engines.embedder is not None
        embed_pending(writer, engines.embedder)


def ask(
    reader: IndexReader, engines: Engines, questions: Path, mode: str, *, shows: bool
) -> dict[str, dict[str, float]]:
    """Return `fixture language mode measure` → question → value; the language `all` is all of them."""
    found: dict[str, dict[str, float]] = {}
    for case in read_fixture(questions).cases.values():
        response = search(reader, engines, parse_query(case.query), replace(BACKENDS[MODES[mode]], limit=10))
        paths = [hit.document.path for hit in response.hits]
        rank = rank_of(paths, case.expected_files)
        originals = [re.sub(r"^docs/\w\w/", "docs/en/", file) for file in case.expected_files]
        original = rank_of(paths, [*case.expected_files, *originals])
        values = (rank == 1, 0 < rank <= 3, 1 / rank if rank else 0, original == 1, len(response.warnings))
        for language in (case.type, "all"):
            for measure, value in zip(MEASURES, values, strict=True):
                found.setdefault(f"{questions.stem} {language} {mode} {measure}", {})[case.id] = float(value)
        if shows:
            print(
                f"{mode:8} {rank or '-':>2} {case.id} {case.query}\n"
                + "".join(f"      {w}\n" for w in response.warnings),
                end="",
            )
    return found


def rank_of(paths: Sequence[str], expected: Sequence[str]) -> int:
    """Return the rank, from 1; 0 where none of them is among the hits."""
    ranks = [rank for rank, path in enumerate(paths, start=1) if any(same_file(path, file) for file in expected)]
    return min(ranks, default=0)


if __name__ == "__main__":
    sys.exit(main())
