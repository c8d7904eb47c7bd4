"""Ratio of the token estimate to o200k: never too low for answers, at most 15 % too high for nearly all.

    pip install bpe-openai
    python -m tests.benchmarks.bench_token_estimate FOLDER… [--samples 400] [--seed 1]

From each folder `--samples` pieces of files, of 40 to 40,000 characters, a third of them as JSON, a fifth numbered by
line, as answers have them. Printed are quantiles of estimate / o200k for pieces of more than 150 tokens and for all.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from bpe_openai import get_encoding

from qmd.analysis.tokens import count_tokens

SIZES = (40, 100, 200, 400, 1_000, 3_000, 10_000, 40_000)
SUFFIXES = (".md", ".markdown", ".py", ".txt", ".json", ".jsonl")
ANSWER_TOKENS = 150


def sample(folder: Path, count: int, rng: random.Random) -> list[str]:
    """Return pieces of files, each from its own file, in the shapes of answers."""
    files = sorted(file for file in folder.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    rng.shuffle(files)
    pieces = []
    for file in files[:count]:
        text, size = file.read_text("utf-8", errors="ignore"), rng.choice(SIZES)
        start = rng.randrange(max(1, len(text) - size))
        piece, shape = text[start : start + size], rng.random()
        if shape < 0.33:
            piece = json.dumps({"snippet": piece}, ensure_ascii=False)
        elif shape < 0.53:
            piece = "".join(f"{number}: {line}\n" for number, line in enumerate(piece.splitlines(), 7))
        pieces.append(piece)
    return [piece for piece in pieces if piece]


def main() -> None:
    """Print the quantiles of each folder and of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng, encoding = random.Random(options.seed), get_encoding("o200k_base")
    found: dict[str, list[tuple[int, int]]] = {}
    for folder in options.folders:
        pieces = sample(folder, options.samples, rng)
        exact = (len(encoding.encode(piece, disallowed_special=())) for piece in pieces)
        found[folder.name] = list(zip(map(count_tokens, pieces), exact, strict=True))
    found["all"] = [pair for pairs in list(found.values()) for pair in pairs]
    for name, pairs in found.items():
        for label, least in (("answers", ANSWER_TOKENS), ("every piece", 1)):
            ratios = sorted(estimate / exact for estimate, exact in pairs if exact >= least)
            if ratios:
                shown = " ".join(f"{ratios[int(share * (len(ratios) - 1))]:.3f}" for share in (0, 0.01, 0.5, 0.99, 1))
                print(f"{name:16} {label:12} {len(ratios):5}  {shown}  too low: {sum(one < 1 for one in ratios)}")


if __name__ == "__main__":
    main()
