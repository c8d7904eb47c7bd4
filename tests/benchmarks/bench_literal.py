"""Share of typed words and phrases that are found, each of one note of a vault.

    python -m tests.benchmarks.bench_literal INDEX… [--words 200] [--phrases 60] [--seed 1] [--modes lexical,hybrid]

Words of four letters or more that occur in exactly one note as typed (folded for case, accents and width), in
its text, its title or its path; phrases of four words in a line of one note alone, typed in quotes. For each index and
mode: the share whose note is first, the share whose note is among five that are shown (a list whose verdict is `none`
shows two), and the share of right firsts that are called weak.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from qmd.analysis.scripts import has_unspaced
from qmd.inference.base import Engines
from qmd.inference.loader import load_engines
from qmd.inference.settings import EngineSettings
from qmd.records import StoredDocument
from qmd.retrieval.calibration import GOOD
from qmd.retrieval.matching import fold
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import parse_query
from qmd.retrieval.request import Mode, SearchRequest
from qmd.store.base import IndexReader
from qmd.store.opening import open_reader

_TOKEN = re.compile(r"[^\W_]{4,30}")
_LINE = re.compile(r"[A-Za-z][a-z]+(?: [a-z]+){3}")
_SHOWN, _SHOWN_OF_NONE = 5, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Ask every index and print a line for each mode and kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("indexes", nargs="+", type=Path)
    parser.add_argument("--words", type=int, default=200)
    parser.add_argument("--phrases", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--modes", default="lexical,hybrid")
    parser.add_argument("--misses", action="store_true", help="print what was not first")
    options = parser.parse_args(argv)
    settings = EngineSettings(models_dir=Path("no-full-tier"), embed="built-in", rerank="built-in")
    engines = load_engines(settings, ("embed", "rerank"))
    for path in options.indexes:
        with open_reader(path) as reader:
            texts = texts_of(reader)
            asked = {
                "words": words_of_one_note(texts, options.words, options.seed),
                "phrases": phrases_of_one_note(texts, options.phrases, options.seed),
            }
            for mode in options.modes.split(","):
                for kind, queries in asked.items():
                    print(f"{path.stem:14} {mode:8} {kind:8} {measure(reader, engines, queries, mode, options.misses)}")
                    sys.stdout.flush()
    return 0


def texts_of(reader: IndexReader) -> dict[int, str]:
    """Return the text with names of each document by id, folded; of equal texts the first."""
    documents: dict[str, StoredDocument] = {}
    for document in reader.iter_documents():
        documents.setdefault(document.hash, document)
    texts = reader.texts(list(documents))
    return {one.id: fold(f"{one.path}\n{one.title}\n{texts.get(key, '')}") for key, one in documents.items()}


def words_of_one_note(texts: Mapping[int, str], limit: int, seed: int) -> dict[str, int]:
    """Return word → the only document that contains it."""
    holders: dict[str, int] = {}
    counts: Counter[str] = Counter()
    for number, text in texts.items():
        for word in {token for token in _TOKEN.findall(text) if token.isalpha() and not has_unspaced(token)}:
            counts[word] += 1
            holders[word] = number
    alone = sorted(word for word, count in counts.items() if count == 1)
    return {word: holders[word] for word in random.Random(seed).sample(alone, min(limit, len(alone)))}


def phrases_of_one_note(texts: Mapping[int, str], limit: int, seed: int) -> dict[str, int]:
    """Return quoted phrase → the only document that contains it."""
    dice = random.Random(seed)
    found: dict[str, int] = {}
    numbers = sorted(texts)
    while len(found) < limit:
        number = dice.choice(numbers)
        phrases = _LINE.findall(texts[number])
        phrase = dice.choice(phrases) if phrases else ""
        if phrase and sum(phrase in text for text in texts.values()) == 1:
            found[f'"{phrase}"'] = number
    return found


def measure(
    reader: IndexReader, engines: Engines, queries: Mapping[str, int], mode: Mode, shows_misses: bool = False
) -> str:
    """Return the shares of one list of queries."""
    first = shown = weak = 0
    for text, wanted in queries.items():
        response = search(reader, engines, parse_query(text), SearchRequest(mode=mode, limit=10, expand=False))
        ids = [hit.document.id for hit in response.hits]
        n_shown = _SHOWN if response.verdict != "none" else _SHOWN_OF_NONE
        is_first = ids[:1] == [wanted]
        first += is_first
        shown += wanted in ids[:n_shown]
        weak += is_first and response.hits[0].relevance < GOOD
        if shows_misses and not is_first:
            place = ids.index(wanted) + 1 if wanted in ids else None
            print(f"  {text}: {place}, {response.verdict}; first {response.hits[0].document.path if ids else None}")
    n = len(queries)
    return f"first {first / n:.3f}  shown {shown / n:.3f}  weak of firsts {weak / max(first, 1):.3f}  ({n})"


if __name__ == "__main__":
    sys.exit(main())
