"""Paired bootstrap: test whether one run is better than another."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from tests.benchmarks.metrics import average

RESAMPLES = 10_000


class Comparison(Struct, frozen=True):
    """Mean difference (new minus old) over shared queries with its 95 % interval and two-sided p-value."""

    queries: int
    old: float
    new: float
    difference: float
    low: float
    high: float
    p_value: float
    better: int
    worse: int


def compare_runs(old: Mapping[str, float], new: Mapping[str, float], seed: int = 0) -> Comparison:
    """Compare a metric per query by paired bootstrap over the queries that both have.

    The p-value is twice the smaller share of resampled means on either side of 0. Deterministic for a seed.

    Raises:
        ValueError: The two share no query.

    Source: Sakai, SIGIR 2006; Efron, Tibshirani, An Introduction to the Bootstrap, 1993.
    """
    shared = sorted(old.keys() & new.keys())
    if not shared:
        raise ValueError("the runs share no query")
    differences = [new[name] - old[name] for name in shared]
    generator = random.Random(seed)
    means = sorted(average(generator.choices(differences, k=len(differences))) for _ in range(RESAMPLES))
    below = sum(mean <= 0 for mean in means) / RESAMPLES
    above = sum(mean >= 0 for mean in means) / RESAMPLES
    return Comparison(
        queries=len(shared),
        old=average([old[name] for name in shared]),
        new=average([new[name] for name in shared]),
        difference=average(differences),
        low=means[int(0.025 * RESAMPLES)],
        high=means[int(0.975 * RESAMPLES) - 1],
        p_value=min(1.0, 2 * min(below, above)),
        better=sum(difference > 0 for difference in differences),
        worse=sum(difference < 0 for difference in differences),
    )


def difference(old: Mapping[str, float], new: Mapping[str, float]) -> str:
    """Return the change of one measure, with its interval."""
    c = compare_runs(old, new)
    return f"{c.difference:+.4f} [{c.low:+.4f}, {c.high:+.4f}] p={c.p_value:.3f}, {c.better} better, {c.worse} worse"


def report(measured: Mapping[str, Mapping[str, float]], compared: Path | None, saved: Path | None) -> None:
    """Print the mean of each measure and its change since the run in `compared`, and write this run to `saved`.

    `measured` is measure → question → value.
    """
    old = json.loads(compared.read_text("utf-8")) if compared else {}
    for name, values in sorted(measured.items()):
        change = f"   {difference(old[name], values)}" if name in old else ""
        print(f"{name:40} {average(list(values.values())):.3f}   ({sum(values.values()):g} of {len(values)}){change}")
    if saved:
        saved.write_text(json.dumps(measured), "utf-8")
