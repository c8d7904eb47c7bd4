"""Share of prompts that the prompt hook answers: orders, questions, and orders whose matter the notes treat.

    python -m tests.benchmarks.bench_hook book=INDEX garden=INDEX fastapi-de=INDEX xquad-de=INDEX
        [--set "held out"] [--modes hybrid lexical] [--show]

Each INDEX is a database of one tree, made by `INDEX_PATH=INDEX qmd index FOLDER` (with --no-embed an index of words
only). The trees are the Rust book, a person's notes (LesleyLai/digital-garden), the German documentation of FastAPI
(docs/de), and the German paragraphs of XQuAD, a file each. Mode `lexical` is what answers while no model is ready. The
prompts are in `hook_prompts.json`; --show prints those on the wrong side.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from qmd.app.reading import ReadingIndex
from qmd.cli.invocation import Invocation
from qmd.plugins.install.prompt_rule import search_of
from qmd.retrieval.request import Mode, SearchRequest

PROMPTS = Path(__file__).with_name("hook_prompts.json")


def main(argv: Sequence[str] | None = None) -> int:
    """Ask every prompt of every tree, and print a line for each tree and mode."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="+", metavar="TREE=INDEX")
    parser.add_argument("--set", default="held out", choices=("held out", "development"))
    parser.add_argument("--modes", nargs="+", default=("hybrid", "lexical"), choices=get_args(Mode))
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args(argv)
    content = json.loads(PROMPTS.read_text(encoding="utf-8"))
    prompts = content[options.set]
    for tree, _, index in (one.partition("=") for one in options.trees):
        sets = {"orders": prompts["orders"][content["languages"][tree]], **prompts[tree]}
        environ = {**os.environ, "INDEX_PATH": str(Path(index).absolute()), "QMD_DAEMON": "0"}
        invocation = Invocation("hook prompt", environ, Path.cwd())
        with invocation.open(invocation.locate(None)) as opened:
            for mode in options.modes:
                cells: list[str] = []
                for kind, asked in sets.items():
                    answered = [one for one in asked if _is_answered(opened, one, mode)]
                    cells.append(f"{kind} {len(answered)} of {len(asked)}")
                    wrong = answered if kind == "orders" else [one for one in asked if one not in answered]
                    cells += [f"\n    {kind}: {one}" for one in wrong if options.show]
                print(f"{tree:12} {mode:8}", *cells, flush=True)
    return 0


def _is_answered(index: ReadingIndex, prompt: str, mode: Mode) -> bool:
    asked = search_of(prompt)
    if asked is None:
        return False
    words, enough = asked
    return bool(index.search(SearchRequest(words, mode=mode, min_relevance=enough, expand=False, limit=1)).hits)


if __name__ == "__main__":
    sys.exit(main())
