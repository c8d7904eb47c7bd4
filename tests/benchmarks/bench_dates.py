"""Share of questions with a date that find the notes of that day, by words alone, in eight spellings.

    qmd index --no-embed FOLDER && python tests/benchmarks/bench_dates.py FOLDER [--qmd PROGRAM] [--files 30] [--json]

Dated files are drawn from a tree (seeded) by the dates in their paths, without the measured program. Any
file of the day counts. Another PROGRAM is asked under its own settings (`HOME`, `XDG_CACHE_HOME`, …).
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
from datetime import date
from pathlib import Path

ENGLISH, FRENCH, GERMAN = map(
    str.split,
    (
        "January February March April May June July August September October November December",
        "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
        "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    ),
)
WAYS = (
    "meeting of {d.day} {english} {d.year}",
    "{english} {d.day}, {d.year} meeting",
    "{d.day:02}.{d.month:02}.{d.year}",
    "{d.month:02}/{d.day:02}/{d.year}",
    "{d:%Y-%m-%d} notes",
    "{short} {d.day}{ordinal} {d.year}",
    "{local}",
    "{d.year}年{d.month}月{d.day}日",
)


def main() -> None:
    """Ask, and print the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--qmd", default=str(Path(sys.executable).with_name("qmd")))
    parser.add_argument("--files", type=int, default=30)
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    days = dated_files(arguments.folder)
    drawn = random.Random(arguments.seed).sample(sorted(days), min(arguments.files, len(days)))
    first, top = [0] * len(WAYS), [0] * len(WAYS)
    for number, path in enumerate(drawn):
        same_day = {other for other, day in days.items() if day == days[path]}
        for way, pattern in enumerate(WAYS):
            found = ask(arguments.qmd, phrase(pattern, days[path], is_french=number % 2 == 0))
            first[way] += found[:1] != [] and found[0] in same_day
            top[way] += any(one in same_day for one in found[:3])
    report(drawn, first, top, as_json=arguments.json)


def dated_files(folder: Path) -> dict[str, date]:
    """Return files below `folder` with the day in their paths: 2018-10-17 x.md, 2018-10/oct-17.md."""
    numbers = {name[:3].lower(): number for number, name in enumerate(ENGLISH, start=1)}
    days = {}
    for file in folder.rglob("*.md"):
        path = file.relative_to(folder).as_posix()
        whole = re.search(r"(?<!\d)((?:19|20)\d\d)-(\d\d)-(\d\d)(?!\d)", file.stem)
        if whole:
            days[path] = date(*map(int, whole.groups()))
            continue
        year = re.search(r"(?<!\d)((?:19|20)\d\d)-\d\d/[^/]*\Z", path)
        named = re.match(r"([a-z]{3})[a-z]*-(\d{1,2})\Z", file.stem)
        if year and named and named[1] in numbers:
            days[path] = date(int(year[1]), numbers[named[1]], int(named[2]))
    return days


def phrase(pattern: str, day: date, *, is_french: bool) -> str:
    """Return a day in one of the spellings; the foreign one is French or German in turn."""
    french = f"réunion du {day.day} {FRENCH[day.month - 1]} {day.year}"
    german = f"Besprechung vom {day.day}. {GERMAN[day.month - 1]} {day.year}"
    ordinal = {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th") if day.day not in (11, 12, 13) else "th"
    english = ENGLISH[day.month - 1]
    local = french if is_french else german
    return pattern.format(d=day, english=english, short=english[:3], ordinal=ordinal, local=local)


def ask(program: str, query: str) -> list[str]:
    """Return the paths of the first three results."""
    command = [program, "search", "--json", "-n", "3", "--", query]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    return [row["path"] for row in json.loads(done.stdout)]


def report(drawn: list[str], first: list[int], top: list[int], *, as_json: bool) -> None:
    """Print the shares per spelling and in total."""
    if as_json:
        shares = {"first": dict(zip(WAYS, first, strict=True)), "top 3": dict(zip(WAYS, top, strict=True))}
        print(json.dumps({"files": drawn, **shares}, indent=1))
        return
    n_files = len(drawn)
    print(f"{'way to write it':44} first  top 3   of {n_files}")
    for way, one, three in zip(WAYS, first, top, strict=True):
        print(f"{way:44} {one:5} {three:6}")
    total = n_files * len(WAYS)
    print(f"{'all':44} {sum(first) / total:5.2f} {sum(top) / total:6.2f}")


if __name__ == "__main__":
    main()
