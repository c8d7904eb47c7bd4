"""Questions about several notes, about what is true now, and lists: share of the evidence that an answer shows.

    pip install bpe-openai
    python -m tests.benchmarks.bench_several INDEX=QUESTIONS… [--half development|aside]
        [--types state,none] [--verbose] [--save FILE] [--compare FILE]

Questions are `questions/now-*.json`; those of the diary belong to the tree that `diary.py FOLDER` writes. Half of each
type is set aside: measure it once, at the end. Types and their measures:

- `several`: expected files in the first 5 and 10 hits; expected texts in a `pack` of 1,000 and of 2,000 tokens;
- `state`: the newest statement is in the first hit, or named with one of the hits (`named`: either);
- `none`: one fact that nothing newer contradicts: `first`, `hits 5`, `pack 1000`, and `false alarm` where any hit names
  a later place;
- `session`, `alone`: minutes whose item goes on in the next session, or does not: `offered`, `false offer`;
- `list`: expected items in a `pack` of 2,000 tokens.

--compare prints differences to a saved run with 95 % intervals (paired bootstrap).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import msgspec
from bpe_openai import get_encoding
from msgspec import Struct
from msgspec.structs import replace

from qmd.app.index import Index
from qmd.inference.base import Engines
from qmd.inference.loader import load_engines
from qmd.inference.settings import EngineSettings
from qmd.plugins.bench.fixture import same_file
from qmd.plugins.bench.running import BACKENDS
from qmd.plugins.pack.packing import pack
from qmd.records import Hit, SearchResponse
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import parse_query
from qmd.retrieval.request import SearchRequest
from qmd.retrieval.trace import Listener
from qmd.store.base import IndexReader
from qmd.store.opening import open_reader
from tests.benchmarks.answers import holds_any
from tests.benchmarks.bench_tokens import Searched
from tests.benchmarks.bootstrap import report
from tests.benchmarks.metrics import average

AROUND = 3
"""Lines around the named one that may have the expected text."""

_OPTIONS = replace(BACKENDS["full"], limit=10)


class Question(Struct, frozen=True):
    """A question; `expected_text[i]` is in `expected_files[i]`, and the older ones are what it replaces."""

    id: str
    type: str
    query: str
    half: str
    expected_files: tuple[str, ...] = ()
    expected_text: tuple[str, ...] = ()
    older_files: tuple[str, ...] = ()
    older_text: tuple[str, ...] = ()
    same_files: tuple[str, ...] = ()
    same_text: tuple[str, ...] = ()
    """Other places that state the same, which count as well where one fact is expected."""


class Asker(Struct):
    """One index with its engines."""

    reader: IndexReader
    engines: Engines

    def search(self, query: str) -> SearchResponse:
        """Return ten hits."""
        return search(self.reader, self.engines, parse_query(query), _OPTIONS)

    def packed(self, query: str, tokens: int) -> str:
        """Return a pack, cut to the tokens that it may have."""
        searched = cast(Index, Searched(self.reader, self.engines, _OPTIONS))
        encoding = get_encoding("o200k_base")
        text = pack(searched, SearchRequest(query), Listener(), tokens, "md")
        return str(encoding.decode(encoding.encode(text)[:tokens]))

    def names(self, hit: Hit, question: Question) -> bool:
        """Return whether a hit names the expected text as a later place."""
        later = hit.continues
        if later is None or not same_file(later.document.path, question.expected_files[0]):
            return False
        lines = self.reader.texts([later.document.hash])[later.document.hash].split("\n")
        near = "\n".join(lines[max(later.line - 1 - AROUND, 0) : later.line + AROUND])
        return holds_any(f"{near}\n{later.text}", question.expected_text)


def measure(asker: Asker, question: Question) -> Iterator[tuple[str, float]]:
    """Yield the measures of one question."""
    hits = asker.search(question.query).hits
    files = [hit.document.path for hit in hits]
    found: Callable[[int], float] = partial(_share_of_files, files, question)
    texts: Callable[[int], float] = partial(_share_of_texts, asker, question)
    named = any(asker.names(hit, question) for hit in hits)
    alarm = float(any(hit.continues is not None for hit in hits))
    match question.type:
        case "several":
            yield from (("hits 5", found(5)), ("hits 10", found(10)))
            yield from (("pack 1000", texts(1_000)), ("pack 2000", texts(2_000)))
        case "state":
            yield from (("first", found(1)), ("named", float(named or found(1) > 0)))
        case "none":
            yield from (("first", found(1)), ("hits 5", found(5)), ("pack 1000", texts(1_000)), ("false alarm", alarm))
        case "session":
            yield "offered", float(named)
        case "alone":
            yield "false offer", alarm
        case "list":
            yield "pack 2000", texts(2_000)


def _share_of_files(files: Sequence[str], question: Question, n: int) -> float:
    wanted = set(question.expected_files)
    if len(wanted) == 1:
        return float(any(same_file(file, one) for file in files[:n] for one in (*wanted, *question.same_files)))
    return sum(any(same_file(file, one) for file in files[:n]) for one in wanted) / len(wanted)


def _share_of_texts(asker: Asker, question: Question, tokens: int) -> float:
    shown = asker.packed(question.query, tokens)
    if len(question.expected_text) == 1:
        return float(holds_any(shown, (*question.expected_text, *question.same_text)))
    return average([float(holds_any(shown, (one,))) for one in question.expected_text])


def main(argv: Sequence[str] | None = None) -> int:
    """Ask every question and print a line for each measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", metavar="INDEX=QUESTIONS")
    parser.add_argument("--half", choices=("development", "aside"), default="development")
    parser.add_argument("--types")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--compare", type=Path)
    options = parser.parse_args(argv)
    settings = EngineSettings(models_dir=Path("no-full-tier"), embed="built-in", rerank="built-in")
    engines = load_engines(settings, ("embed", "rerank"))
    measured: dict[str, dict[str, float]] = {}
    for index, _, file in (one.partition("=") for one in options.sets):
        content = json.loads(Path(file).read_text("utf-8"))
        name = Path(file).stem.removeprefix("now-")
        with open_reader(Path(index)) as reader:
            for question in msgspec.convert(content["queries"], list[Question]):
                if question.half != options.half or (options.types and question.type not in options.types.split(",")):
                    continue
                values = dict(measure(Asker(reader, engines), question))
                if options.verbose:
                    print(f"{question.id:20} {values} {question.query}", flush=True)
                for what, value in values.items():
                    for rows in (name, "all"):
                        measured.setdefault(f"{question.type} {what} {rows}", {})[question.id] = value
    report(measured, options.compare, options.save)
    return 0


if __name__ == "__main__":
    sys.exit(main())
