"""Share of questions answered within the first printed tokens.

    pip install bpe-openai
    python -m tests.benchmarks.bench_tokens INDEX=QUESTIONS… [--modes hybrid,lexical] [--several]
        [--save FILE] [--compare FILE]

A question counts where an expected text of it (fixtures of `bench_answers.py`) is in the
first 300, 1,000 or 3,000 tokens (o200k) of what is printed, verdict and warnings included: through a pipe (`cli`, five
hits), as the text of the MCP tool (`mcp`, ten hits), and as a `pack` that was asked for so many tokens. With --several
all expected texts of a question are needed, over several notes or places (`questions/several-*.json`), and the figure
is the mean share of them. The share of questions whose file is first and the median of all tokens are printed, too.
--compare prints differences to a saved run with 95 % intervals (paired bootstrap).
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from bpe_openai import get_encoding
from msgspec import Struct
from msgspec.structs import replace

from qmd.app.index import Index
from qmd.inference.base import Engines
from qmd.inference.loader import load_engines
from qmd.inference.settings import EngineSettings
from qmd.plugins.bench.fixture import same_file
from qmd.plugins.bench.running import BACKENDS
from qmd.plugins.mcp.presentation import PASSAGE_CHARS
from qmd.plugins.mcp.rows import results_text
from qmd.plugins.pack.packing import pack
from qmd.records import SearchResponse, StoredDocument
from qmd.render.formats import FORMATS, HitOptions, render_hits
from qmd.render.text import VERDICT_NOTES
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import parse_query
from qmd.retrieval.request import SearchRequest
from qmd.retrieval.trace import Listener
from qmd.store.base import IndexReader
from qmd.store.opening import open_reader
from tests.benchmarks.answers import AnswerCase, holds_any, read_cases
from tests.benchmarks.bootstrap import difference
from tests.benchmarks.metrics import average

WITHIN = (300, 1_000, 3_000)
MODES = {"hybrid": "full", "fused": "hybrid", "lexical": "bm25", "dense": "vector"}
"""`fused` is `hybrid` without reranking."""
_NUMBER = r"(?m)^ *\d+[:│] ?"


def main(argv: Sequence[str] | None = None) -> int:
    """Ask every question in every mode and print a line for each form."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", metavar="INDEX=QUESTIONS")
    parser.add_argument("--modes", default="hybrid")
    parser.add_argument("--several", action="store_true")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--compare", type=Path)
    options = parser.parse_args(argv)
    settings = EngineSettings(models_dir=Path("no-full-tier"), embed="built-in", rerank="built-in")
    engines = load_engines(settings, ("embed", "rerank"))
    old = json.loads(options.compare.read_text()) if options.compare else {}
    kept: dict[str, dict[str, float]] = {}
    for index, _, questions in (one.partition("=") for one in options.sets):
        cases = [case for case in read_cases(Path(questions)).values() if case.expected_text]
        with open_reader(Path(index)) as reader:
            for mode in options.modes.split(","):
                for form, found in ask(reader, engines, cases, mode, options.several).items():
                    name = f"{Path(questions).stem} {mode} {form}"
                    kept |= {f"{name} {what}": values for what, values in found.items()}
                    print(line_of(name, found))
                    for what in found:
                        if what != "tokens" and f"{name} {what}" in old:
                            print(f"    {what:>6}: {difference(old[f'{name} {what}'], found[what])}")
                    sys.stdout.flush()
    if options.save:
        options.save.write_text(json.dumps(kept))
    return 0


def ask(
    reader: IndexReader, engines: Engines, cases: Sequence[AnswerCase], mode: str, several: bool = False
) -> dict[str, dict[str, dict[str, float]]]:
    """Return form → measure → question → value."""
    encoding = get_encoding("o200k_base")
    measured: dict[str, dict[str, dict[str, float]]] = {}
    for form in ("cli", "mcp", "pack"):
        limit = FORMATS["cli"].limit if form == "cli" else 10
        options = replace(BACKENDS[MODES[mode]], limit=limit)
        if form == "mcp":
            options = replace(options, snippet_chars=PASSAGE_CHARS)
        for case in cases:
            response = search(reader, engines, parse_query(case.query), options)
            if form == "pack":
                searched = cast(Index, Searched(reader, engines, options))
                request = SearchRequest(case.query)
                packs = {n: encoding.encode(pack(searched, request, Listener(), n, "md")) for n in WITHIN}
                tokens = packs[WITHIN[-1]]
            else:
                tokens = encoding.encode(printed(response, case.query, form))
                packs = {n: tokens[:n] for n in WITHIN}
            needed = [(text,) for text in case.expected_text] if several else [case.expected_text]
            values = {}
            for n in WITHIN:
                shown = re.sub(_NUMBER, "", encoding.decode(packs[n]))
                values[str(n)] = average([float(holds_any(shown, texts)) for texts in needed])
            first = response.hits[0].document.path if response.hits else ""
            values["file"] = float(any(same_file(first, file) for file in case.expected_files))
            values["tokens"] = float(len(tokens))
            for what, value in values.items():
                measured.setdefault(form, {}).setdefault(what, {})[case.id] = value
    return measured


class Searched(Struct):
    """Index for `pack`, answered by the engines of the benchmark."""

    reader: IndexReader
    engines: Engines
    options: SearchRequest

    def search(self, request: SearchRequest, listener: Listener) -> SearchResponse:
        """Return the answer to a request."""
        options = replace(self.options, limit=request.limit, full_body=True, snippet_chars=request.snippet_chars)
        return search(self.reader, self.engines, parse_query(request.label), options, listener)

    def links_between(self, documents: Sequence[StoredDocument]) -> tuple[tuple[StoredDocument, StoredDocument], ...]:
        """Return no links: they contain no expected text."""
        return ()


def printed(response: SearchResponse, query: str, form: str) -> str:
    """Return the text of one form, with all lines around the hits."""
    if form == "mcp":
        return results_text(response, query)
    notes = [f"warning: {warning}\n" for warning in response.warnings]
    notes += [f"{VERDICT_NOTES[response.verdict]}\n"] if response.verdict in VERDICT_NOTES else []
    return "".join(notes) + render_hits(response, "cli", HitOptions())


def line_of(name: str, found: Mapping[str, Mapping[str, float]]) -> str:
    """Return the shares of one form."""
    shares = " / ".join(f"{average(list(found[str(n)].values())):.3f}" for n in WITHIN)
    first = average(list(found["file"].values()))
    tokens = statistics.median(found["tokens"].values())
    return f"{name:32} {shares}   file first {first:.3f}   {tokens:.0f} tokens   ({len(found['file'])})"


if __name__ == "__main__":
    sys.exit(main())
