"""Check that nonsense scores low on a real index, and that questions keep their answers at the same threshold.

    python tests/benchmarks/check_nonsense.py DATABASE QUESTIONS [--nonsense N]

DATABASE is an embedded index; QUESTIONS has one answerable question per line. Headings of the index are
queries as well. Prints for each mode the 95th percentile of the first relevance of nonsense (random words, keyboard
noise, other languages), and the shares of questions and of headings that keep a result at relevance 0.2.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from qmd.inference.base import Engines
from qmd.inference.loader import load_engines
from qmd.inference.settings import EngineSettings
from qmd.retrieval.calibration import WEAK
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import parse_query
from qmd.retrieval.request import Mode, SearchRequest
from qmd.store.base import IndexReader
from qmd.store.opening import open_reader
from tests.benchmarks.known_items import known_item_queries
from tests.benchmarks.relevance_evidence import nonsense_queries

MODES: tuple[Mode, ...] = ("lexical", "dense", "hybrid")


def main(argv: Sequence[str] | None = None) -> int:
    """Ask everything in every mode and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("database", type=Path)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--nonsense", type=int, default=200)
    parser.add_argument(
        "--show", type=int, default=0, help="print the best-scored nonsense and the worst-scored questions"
    )
    options = parser.parse_args(argv)
    engines = load_engines(EngineSettings(models_dir=Path("no-full-tier"), embed="built-in"), ["embed"])
    reader = open_reader(options.database)
    documents = list(reader.iter_documents())
    own = " ".join(reader.texts([document.hash for document in documents]).values())
    asked = {
        "nonsense": nonsense_queries(own, options.nonsense),
        "questions": [
            line.strip() for line in options.questions.read_text(encoding="utf-8").splitlines() if line.strip()
        ],
        "headings": list(known_item_queries(reader, limit=100).queries.values()),
    }
    print(f"{len(documents)} documents; " + ", ".join(f"{len(texts)} {name}" for name, texts in asked.items()))
    for mode in MODES:
        tops = {name: [top_relevance(reader, engines, text, mode) for text in texts] for name, texts in asked.items()}
        kept = {name: float(np.mean([value >= WEAK for value in tops[name]])) for name in ("questions", "headings")}
        p95 = float(np.percentile(tops["nonsense"], 95))
        print(f"  {mode:8} nonsense p95 {p95:.3f}  " + "  ".join(f"{name} kept {kept[name]:.3f}" for name in kept))
        ranked = sorted(zip(tops["nonsense"], asked["nonsense"], strict=True), reverse=True)
        worst = sorted(zip(tops["questions"], asked["questions"], strict=True))
        for value, text in [*ranked[: options.show], *worst[: options.show]]:
            print(f"      {value:.3f} {text}")
    return 0


def top_relevance(reader: IndexReader, engines: Engines, text: str, mode: Mode) -> float:
    """Return the relevance of the first hit; 0 without one."""
    answer = search(reader, engines, parse_query(text), SearchRequest(mode=mode, limit=1, rerank=False, expand=False))
    return answer.hits[0].relevance if answer.hits else 0.0


if __name__ == "__main__":
    sys.exit(main())
