"""Cost of a draw: processor time to choose one of Qwen3's 151,936 tokens, by settings.

    python -m tests.benchmarks.bench_sampling [--repeat 8]

Logits are normal noise with forty likely tokens, nineteen of twenty tokens are allowed, forty tokens were written
before. The settings are measured in turn, and the best of all turns is shown.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from msgspec.structs import replace

from qmd.plugins.qwen.sampling import Sampler
from qmd.plugins.qwen.settings import DEFAULT_SAMPLING, SamplingSettings

VOCABULARY, DRAWS = 151_936, 10
EVERYTHING = replace(
    DEFAULT_SAMPLING,
    repetition_penalty=1.1,
    frequency_penalty=0.2,
    penalty_last_n=64,
    dry_multiplier=0.8,
    top_n_sigma=2.0,
    typical_p=0.9,
    min_p=0.02,
    xtc_probability=0.5,
)
CASES = {
    "default": DEFAULT_SAMPLING,
    "default, llama.cpp's order": replace(DEFAULT_SAMPLING, order="llama.cpp"),
    "greedy": replace(DEFAULT_SAMPLING, temperature=0.0),
    "every step, llama.cpp's order": replace(EVERYTHING, order="llama.cpp"),
    "every step": EVERYTHING,
    "without top-k": replace(DEFAULT_SAMPLING, top_k=0),
    "the whole distribution": SamplingSettings(),
}


def main() -> None:
    """Print one line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=8)
    repeat: int = parser.parse_args().repeat
    rng = np.random.default_rng(0)
    logits = (2.5 * rng.standard_normal(VOCABULARY)).astype(np.float32)
    logits[rng.integers(0, VOCABULARY, 40)] += 12
    allowed = rng.random(VOCABULARY) < 0.95
    written = rng.integers(0, VOCABULARY, 40).tolist()
    best = dict.fromkeys(CASES, float("inf"))
    for _ in range(repeat):
        for name, settings in CASES.items():
            sampler = Sampler(settings)
            started = time.process_time()
            for _ in range(DRAWS):
                sampler.choose(logits, written, allowed)
            best[name] = min(best[name], (time.process_time() - started) / DRAWS)
    for name, seconds in best.items():
        print(f"{name:32} {1000 * seconds:6.2f} ms")


if __name__ == "__main__":
    main()
