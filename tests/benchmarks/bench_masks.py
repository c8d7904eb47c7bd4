"""Time of the worst of many generated masks on names of 255 characters, the longest in file systems.

Masks may come from strangers, so none may delay a scan. Half of them are stars, groups and folders at random, half one
piece repeated, which makes backtracking matchers slow.

    python -m tests.benchmarks.bench_masks [number of masks] [seed]

10,000 masks, seed 1, two shared cores, 2026-11-23: worst 8.2 ms, .99 quantile .60 ms, 1,599 refused (too long, too many
groups), each with a message.
"""

from __future__ import annotations

import random
import sys
import time

from qmd.errors import UsageError
from qmd.ingest.globs import compile_globs, split_mask

LONGEST = 255
GOAL_MS = 10.0
PIECES = ("a", "b", "ab", ".", "*", "*", "**/", "?", "[ab]", "[!a]", "/", "*a", "a*", "**/a/", "*a*/", "\\*", "{a,b}")


def random_mask(pick: random.Random, depth: int = 0) -> str:
    """Return a mask of a few pieces; some are groups of further ones."""
    found = ""
    for _ in range(pick.randint(1, 8 if depth == 0 else 3)):
        if depth < 4 and pick.random() < 0.3:
            inner = "|".join(random_mask(pick, depth + 1) for _ in range(pick.randint(1, 3)))
            found += f"{pick.choice('@?*+!' if depth == 0 else '@?*+')}({inner})"
        else:
            found += pick.choice(PIECES)
    return found


def hostile_mask(pick: random.Random) -> str:
    """Return a small mask repeated up to the length of a name, with an end that no name has."""
    piece = random_mask(pick, depth=pick.randint(1, 3))
    return piece * pick.randint(1, max(1, min(40, LONGEST // len(piece)))) + pick.choice(("b", "c", ".md", ""))


def random_names(pick: random.Random) -> list[str]:
    """Return names of the full length: one letter, two, and short and long folders."""
    folders = ("/".join(["a" * length] * LONGEST)[:LONGEST] for length in (1, 3, 60))
    return ["a" * LONGEST, "".join(pick.choices("ab", k=LONGEST)), "".join(pick.choices("ab./", k=LONGEST)), *folders]


def main() -> None:
    """Time every mask on every name and print the worst."""
    n_masks, seed = (int(one) for one in [*sys.argv[1:], "10000", "1"][:2])
    pick = random.Random(seed)
    names = random_names(pick)
    taken: list[tuple[float, str]] = []
    n_refused = 0
    for number in range(n_masks):
        mask = random_mask(pick) if number % 2 else hostile_mask(pick)
        try:
            matcher = compile_globs(split_mask(mask))
        except UsageError:
            n_refused += 1
            continue
        for name in names:
            begun = time.process_time()
            matcher.fullmatch(name)
            taken.append((1000 * (time.process_time() - begun), mask))
    taken.sort()
    print(f"{n_masks} masks, {n_refused} refused, {len(names)} names of {LONGEST} characters each")
    print(f".99 quantile {taken[len(taken) * 99 // 100][0]:.2f} ms, worst (goal {GOAL_MS:g} ms):")
    for ms, mask in reversed(taken[-3:]):
        print(f"  {ms:.2f} ms  {mask[:100]}")


if __name__ == "__main__":
    main()
