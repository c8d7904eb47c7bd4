"""Check that every answer of the MCP tools keeps its token budget (o200k), in each form in which it is sent.

    pip install bpe-openai
    python -m tests.benchmarks.bench_budgets INDEX=QUESTIONS… [--requests 1000] [--seed 5]

Asks `query`, `pack`, `get` and `multi_get` at random for 60 to 4,000 tokens, and prints each answer that is too long.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from pathlib import Path

from bpe_openai import get_encoding

import qmd
from qmd.plugins.bench.fixture import read_fixture
from qmd.plugins.mcp.arguments import check_arguments
from qmd.plugins.mcp.tools import TOOLS
from qmd.retrieval.trace import Listener

BUDGETS = (60, 100, 200, 300, 500, 1_000, 2_000, 4_000)


def main() -> int:
    """Ask at random; return 1 if an answer is too long."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", metavar="INDEX=QUESTIONS")
    parser.add_argument("--requests", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=5)
    options = parser.parse_args()
    rng, encoding = random.Random(options.seed), get_encoding("o200k_base")
    tools = {tool.name: tool for tool in TOOLS}
    n_forms, used, too_long = 0, [], 0
    for path, _, questions in (one.partition("=") for one in options.sets):
        index = qmd.open_index(path)
        asked = [case.query for case in read_fixture(Path(questions)).cases.values()]
        notes = [one.docid for name in index.indexed_collections() for one in index.documents(name.name)]
        for _ in range(options.requests // len(options.sets)):
            most, question = rng.choice(BUDGETS), rng.choice(asked)
            requests: list[tuple[str, dict[str, object]]] = [
                ("query", {"query": question, "limit": rng.choice([1, 5, 10, 30])}),
                ("pack", {"query": question}),
                ("get", {"file": rng.choice(notes)}),
                ("multi_get", {"pattern": ",".join(rng.sample(notes, 5))}),
            ]
            name, given = rng.choice(requests)
            tool = tools[name]
            shown = tool.answer(index, check_arguments(tool.arguments, {**given, "maxTokens": most}), Listener())
            forms = [
                *shown.parts[:1],
                *([json.dumps(shown.structured, ensure_ascii=False)] if shown.structured else []),
            ]
            sizes = [len(encoding.encode(form, disallowed_special=())) for form in forms]
            n_forms += len(forms)
            used.append(max(sizes) / most)
            if max(sizes) > most:
                too_long += 1
                print(f"{name} {given} {max(sizes)} of {most}")
    print(f"{len(used)} requests, {n_forms} forms, {too_long} too long; median use {statistics.median(used):.2f}")
    return int(too_long > 0)


if __name__ == "__main__":
    raise SystemExit(main())
