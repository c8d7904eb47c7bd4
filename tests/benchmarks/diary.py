"""Write the diary of one year (2025) of a person who runs a small bakery and a household.

    python tests/benchmarks/diary.py FOLDER        # about 250 files such as FOLDER/2025/2025-03-04.md

`questions/diary-facts.json` has all that it states. A row of `facts` is one fact: who or what, which matter of it, and
its entries in the order of their dates: value, day (month-day) and the sentence of that day. An entry with another
value than the one before it revises the fact; with the same value it only mentions it again. A fact of a set ("a repair
of the oven") has a row for each member. `fillers` are everyday sentences that state none of these matters. The output
is the same in every run.
"""

from __future__ import annotations

import json
import random
import re
import sys
from datetime import date, timedelta
from pathlib import Path

_TABLES = json.loads((Path(__file__).parent / "questions/diary-facts.json").read_text("utf-8"))
FACTS: dict[str, list[tuple[str, str, list[tuple[str, str, str]]]]] = _TABLES["facts"]
SLOTS: dict[str, list[str]] = _TABLES["slots"]
"""A filler's `{slot}` takes one of its values, `{one|other}` one of those named."""

FILLERS: dict[str, list[str]] = _TABLES["fillers"]
HEADINGS = {
    "Bakery": ["Bakery", "Bakery", "Shop"],
    "Home": ["Home", "Home", "House"],
    "Reading": ["Reading", "Reading", "Books"],
}


def filler(rng: random.Random, template: str) -> str:
    """Fill a template's slots, and write it a little carelessly now and then."""
    text = template
    while "{" in text:  # innermost first
        text = re.sub(r"\{([^{}]+)\}", lambda slot: rng.choice(SLOTS.get(slot[1]) or slot[1].split("|")), text)
    text = re.sub(r"(^|[.!] )([a-z])", lambda start: start[1] + start[2].upper(), text)
    text = text.replace(" and ", " & ") if rng.random() < 0.15 else text
    return text[0].lower() + text[1:] if rng.random() < 0.08 else text


def is_open(day: date) -> bool:
    """Return whether the shop sells on this day by `FACTS`; else there are no fillers about the bakery."""
    rest = 0 if day < date(2025, 9, 8) else 2
    broken = date(2025, 8, 4) <= day <= date(2025, 8, 17) or day >= date(2025, 12, 25)
    return day.weekday() != rest and not broken and not (day.weekday() == 6 and day > date(2025, 11, 9))


def day_text(day: date, stated: list[tuple[str, str]]) -> str:
    """Return the file of a day: the stated sentences (section, sentence) among fillers."""
    rng = random.Random(f"diary {day}")
    sections: dict[str, list[str]] = {name: [text for where, text in stated if where == name] for name in FACTS}
    names = ["Bakery", "Home"] + (["Reading"] if sections["Reading"] or rng.random() < 0.5 else [])
    unused = [(name, text) for name in names for text in FILLERS[name] if name != "Bakery" or is_open(day)]
    rng.shuffle(unused)
    length, wanted = sum(len(text.split()) for _, text in stated), rng.randint(75, 200)
    while length < wanted:
        name, template = unused.pop()
        text = filler(rng, template)
        sections[name].insert(rng.randint(0, len(sections[name])), text)
        length += len(text.split())
    parts = (
        [f"---\ndate: {day}\n" + rng.choice(["", "tags: [diary]\n", "mood: ok\n"]) + "---"]
        if rng.random() < 0.4
        else []
    )
    parts += rng.choice([[f"# {day:%A} {day.day} {day:%B}"], [f"# {day.day}.{day.month}."], [], []])
    headed = rng.random() < 0.65
    for name in names if rng.random() < 0.75 else names[::-1]:
        rest = sections[name]
        parts += [f"## {rng.choice(HEADINGS[name])}"] if headed and rest else []
        if rest and rng.random() < 0.35:
            parts.append("\n".join(f"- {text}" for text in rest))
            continue
        while rest:
            size = rng.randint(2, 5)
            parts.append(" ".join(rest[:size]))
            rest = rest[size:]
    return "\n\n".join(parts) + "\n"


def main(folder: Path) -> None:
    """Write the year: each day that states something, and a few others."""
    stated: dict[date, list[tuple[str, str]]] = {}
    for name, facts in FACTS.items():
        for _, _, entries in facts:
            for _, when, text in entries:
                stated.setdefault(date.fromisoformat(f"2025-{when}"), []).append((name, text))
    others = [day for n in range(365) if (day := date(2025, 1, 1) + timedelta(n)) not in stated]
    chosen = random.Random(2025).sample(others, 8)
    (folder / "2025").mkdir(parents=True, exist_ok=True)
    for day in sorted([*stated, *chosen]):
        (folder / "2025" / f"{day}.md").write_text(day_text(day, stated.get(day, [])), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
