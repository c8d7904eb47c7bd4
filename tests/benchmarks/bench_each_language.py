"""Notes of 44 languages, found by words, with the built-in model and with the multilingual one.

    python -m tests.benchmarks.bench_each_language DATA [--languages de,th] [--notes 100] [--questions 40] [--mrr]
        [--all] [--keep FOLDER] [--save FILE] [--compare FILE] [--page docs/languages.md]

DATA is described in `language_samples`. Prints the rows of the table in docs/languages.md: the share of questions whose
note is first (--mrr: the mean reciprocal rank of the first ten) by `search` and by `query` with each model, then of the
same questions in English over these notes; --all prints every column, with the vectors alone. The package
`qmd-search-multilingual` must be installed. --keep is a folder for the indexes, which a later run uses; --save writes
all ranks to a file, which a later run continues, and whose means --compare prints; --page replaces the table there.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from qmd.indexing.embed import embed_pending
from qmd.indexing.reading import stored_form
from qmd.inference.base import Engines
from qmd.inference.loader import load_engines
from qmd.inference.settings import EngineSettings
from qmd.plugins.bench.running import BACKENDS
from qmd.records import Collection
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import parse_query
from qmd.store.base import IndexReader, IndexWriter
from qmd.store.opening import open_reader, open_writer
from tests.benchmarks.language_samples import SOURCES, Sample, read_sample
from tests.benchmarks.metrics import average
from tests.parsing import parse_document

MODELS = {"built-in": "all-MiniLM-L6-v2", "multilingual": "multilingual"}
COLUMNS = {
    "words": "words",
    "query built-in": "built-in",
    "query multilingual": "multilingual",
    "English query built-in": "English: built-in",
    "English query multilingual": "multilingual",
}
"""Measure → column of the page."""
MEASURES = tuple(
    f"{asked}{way}"
    for asked in ("", "English ")
    for way in ("words", *(f"{way} {model}" for model in MODELS for way in ("vectors", "query")))
)

_NAMES = """
ar:Arabic bg:Bulgarian bn:Bengali ca:Catalan cs:Czech da:Danish de:German el:Greek en:English es:Spanish et:Estonian
fa:Persian fi:Finnish fr:French he:Hebrew hi:Hindi hr:Croatian hu:Hungarian id:Indonesian is:Icelandic it:Italian
ja:Japanese ka:Georgian km:Khmer ko:Korean lo:Lao lt:Lithuanian lv:Latvian nb:Norwegian nl:Dutch pl:Polish pt:Portuguese
ro:Romanian ru:Russian sk:Slovak sl:Slovenian sr:Serbian sv:Swedish ta:Tamil th:Thai tr:Turkish uk:Ukrainian
vi:Vietnamese zh:Chinese
"""
NAMES = dict(pair.split(":") for pair in _NAMES.split())


def main(argv: Sequence[str] | None = None) -> int:
    """Ask every question of every language and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--languages", default="")
    parser.add_argument("--notes", type=int, default=100)
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--mrr", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args(argv)
    engines = {
        model: load_engines(EngineSettings(Path("no-full-tier"), embed=name, rerank="built-in"), ("embed", "rerank"))
        for model, name in MODELS.items()
    }
    found: dict[str, dict[str, list[float]]] = {}
    if options.save and options.save.exists():
        found = json.loads(options.save.read_text())
    old = json.loads(options.compare.read_text()) if options.compare else {}
    columns = list(MEASURES if options.all else COLUMNS)
    chosen = options.languages.split(",") if options.languages else [*NAMES]
    lines: list[str] = []

    def show(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    for source, languages in SOURCES.items():
        headings = columns if options.all else COLUMNS.values()
        show(f"\n| {' | '.join((source, *headings))} |\n|{'---|' * (1 + len(columns))}")
        for language in sorted(filter(chosen.__contains__, languages.split()), key=NAMES.__getitem__):
            key = f"{source}: {language}"
            if key not in found:
                sample = read_sample(options.data, source, language, options.notes, options.questions)
                found[key] = ask_all(sample, engines, options.keep, language + source[:1])
                if options.save:
                    options.save.write_text(json.dumps(found))
            show(row_of(NAMES[language], found[key], columns, is_first=not options.mrr))
        for title, answers in {"all but English": found, "before": old}.items():
            rows = [row for key, row in answers.items() if key.startswith(source) and key in found and key[-2:] != "en"]
            if rows:
                show(row_of(title, mean_of(rows), columns, is_first=not options.mrr))
    if options.page:
        before, after = re.split(r"\n\|[^#]*\|\n", options.page.read_text("utf-8"), maxsplit=1)
        options.page.write_text("\n".join([before, *lines, after]).replace("\n\n\n", "\n\n"), "utf-8")
    return 0


def ask_all(sample: Sample, engines: Mapping[str, Engines], kept: Path | None, name: str) -> dict[str, list[float]]:
    """Return column → the reciprocal rank of each question's note, 0 where it is not among the first ten."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for model, its_engines in engines.items():
            assert its_engines.embedder is not None, f"the model '{model}' is not installed"
            path = (kept or Path(folder)) / f"{name}-{model}.sqlite"
            with open_writer(path) as writer:
                if not writer.count_documents():
                    add_notes(writer, sample.notes)
                embed_pending(writer, its_engines.embedder)
            with open_reader(path) as reader:
                for kind, questions in (("", sample.questions), ("English ", sample.english)):
                    if model == next(iter(engines)):
                        found[f"{kind}words"] = [*ranks(reader, its_engines, questions, "bm25")]
                    found[f"{kind}vectors {model}"] = [*ranks(reader, its_engines, questions, "vector")]
                    found[f"{kind}query {model}"] = [*ranks(reader, its_engines, questions, "full")]
    return found


def add_notes(writer: IndexWriter, notes: Mapping[str, str]) -> None:
    """Add the notes to a new index, without vectors."""
    writer.mirror_config([Collection("notes", Path("notes"))], None, "bench")
    with writer.transaction():
        for name, text in notes.items():
            raw = text.encode()
            writer.put_documents("notes", [stored_form(parse_document(f"{name}.txt", raw), len(raw), 0, 0, 0)])
        writer.settle("notes")


def ranks(reader: IndexReader, engines: Engines, questions: Mapping[str, str], backend: str) -> Iterator[float]:
    """Yield the reciprocal rank of each question's note."""
    request = replace(BACKENDS[backend], limit=10, folds_copies=False)
    for question, name in questions.items():
        paths = [hit.document.path for hit in search(reader, engines, parse_query(question), request).hits]
        yield 1 / (paths.index(f"{name}.txt") + 1) if f"{name}.txt" in paths else 0.0


def mean_of(rows: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, list[float]]:
    """Return all answers of several languages together."""
    return {column: [value for row in rows for value in row.get(column, ())] for column in MEASURES}


def row_of(name: str, answers: Mapping[str, Sequence[float]], columns: Sequence[str], *, is_first: bool) -> str:
    """Return a row of the table in Markdown."""
    cells = [name]
    for column in columns:
        values = [float(value == 1) if is_first else value for value in answers.get(column, ())]
        cells.append(f"{average(values):.2f}".removeprefix("0") if values else "")
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
