"""Folders of a user of qmd, as a version of it left them, and what is asked of them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
LONG_AGO = 1_700_000_000
"""When all notes were written, so that their times are those that the index holds."""

QUESTIONS = (
    ("search", "oven", "--json"),
    ("search", "rye bread tag:recipes", "--json"),
    ("search", "Mandelhörnchen", "--json"),
    ("vsearch", "what does our bread cost", "--json"),
    ("vsearch", "how a broken machine is mended", "-c", "bakery", "--json"),
    ("query", "when do the new employees begin", "--json"),
    ("query", "price of bread on:2026-03-12", "--json"),
    ("get", "the big oven"),
    ("get", "work/inventory.txt"),
    ("multi-get", "orders/*.md", "--json"),
    ("ls",),
    ("ls", "bakery/orders"),
    ("status", "--json"),
    ("links", "Rye bread", "--json"),
    ("related", "Oven", "--json"),
    ("context", "list"),
    ("collection", "list", "--json"),
    ("vsearch", "the canteen buys pretzels on Fridays", "--json", "--index", "imported"),
    ("status", "--json", "--index", "imported"),
    ("search", "invoices of the mill", "--json"),
    ("search", "invoices of the mill", "-c", "archive", "--json"),
    ("vsearch", "who mends the chimney", "-c", "archive", "--json"),
    ("query", 'debts tag:papers/old author:"Hanna Lindner"', "-c", "archive", "--json"),
    ("get", "Kassenbuch"),
    ("links", "Kassenbuch", "--json"),
    ("ls", "archive"),
    ("status", "--problems", "--json"),
    ("collection", "metadata", "archive", "--json"),
    ("collection", "show", "archive"),
)
"""Commands whose answers are kept."""

IN_PROJECT = (
    ("search", "supermarket", "--json"),
    ("vsearch", "what does our bread cost", "--json"),
    ("ls", "project"),
    ("status", "--json"),
    ("collection", "list", "--json"),
    ("trust", "list"),
)
"""Those that are asked in a project with a `.qmd` of its own."""


def lay_out(root: Path, configurations: Path) -> None:
    """Put the notes below a folder, and the configurations and records that lie in another one."""
    shutil.copytree(HERE / "notes", root / "notes")
    for place in (root / "notes", *(root / "notes").rglob("*")):
        os.utime(place, (LONG_AGO, LONG_AGO))
    (root / "config").mkdir()
    for file in (*configurations.glob("*.yml"), *configurations.glob("trusted.json")):
        text = file.read_text("utf-8").replace("ROOT", str(root))
        (root / "config" / file.name).write_text(text, "utf-8")
    for file in configurations.glob("projects.json"):
        records = root / "cache" / "qmd" / "projects"
        records.mkdir(parents=True)
        for name, place in json.loads(file.read_text("utf-8")).items():
            (records / name).write_text(place.replace("ROOT", str(root)), "utf-8")


def variables(root: Path) -> Iterator[tuple[str, str]]:
    """The environment that makes qmd use these folders."""
    yield "HOME", str(root / "home")
    yield "XDG_CACHE_HOME", str(root / "cache")
    yield "QMD_CONFIG_DIR", str(root / "config")
    yield "TZ", "UTC"
    # No process of an older version may stay, and no network may matter.
    yield "QMD_DAEMON", "0"
    yield "HF_HUB_OFFLINE", "1"
