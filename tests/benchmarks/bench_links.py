"""Links of a vault that lead to a note, reasons of the others, and counts of its notes.

    python -m tests.benchmarks.bench_links FOLDER… [--list]

Words are indexed into a temporary file. Links that should lead to a note are found without the program's rules, by the
names of files and their titles and aliases: a link with any other name leads nowhere in any program. --list adds each
link that leads nowhere with its reason, the number of times it occurs in the vault, the most frequent first, and a note
that contains it.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from qmd.indexing.update import update_collection
from qmd.records import Collection, Link, StoredDocument
from qmd.store.opening import open_writer

SHOULD = "should lead to a note"
_NAMED = re.compile(r"(?mi)^(?:- )?(?:title|alias|aliases)::?[ \t]+(.+)$")


def main() -> None:
    """Index each folder and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--list", action="store_true", help="show the links that lead nowhere")
    arguments = parser.parse_args()
    for folder in arguments.folders:
        with tempfile.TemporaryDirectory() as place:
            measure(folder.resolve(), Path(place) / "index.sqlite", lists=arguments.list)


def measure(folder: Path, database: Path, *, lists: bool) -> None:
    """Print the figures of one folder."""
    n_links, parts, reasons = 0, Counter[str](), Counter[str]()
    broken: Counter[tuple[str, str]] = Counter()
    places: dict[tuple[str, str], str] = {}
    notes, others = names_in(folder)
    with open_writer(database) as writer:
        writer.mirror_config([Collection("vault", folder)], None, "bench")
        update_collection(writer, Collection("vault", folder))
        for document in writer.iter_documents():
            parts.update(count_parts(document))
            for one in writer.links_from(document):
                n_links += 1
                if one.target is None:
                    entry = (reason := reason_of(one.link, notes, others)), f"{one.link.target} | {one.link.text}"
                    reasons[reason] += 1
                    broken[entry] += 1
                    places.setdefault(entry, f"{document.path}:{one.link.line}")
    n_found = n_links - reasons.total()
    share = 100 * n_found / max(n_found + reasons[SHOULD], 1)
    sys.stdout.write(
        f"{folder.name}: {', '.join(f'{n:,} {what}' for what, n in parts.items())}\n"
        f"  {n_links:,} links; {n_found:,} lead to a note, {share:.2f} % of those that should\n"
        + "".join(f"  {n:7,}  {reason}\n" for reason, n in reasons.most_common())
    )
    for (reason, written), n_times in broken.most_common() if lists else ():
        sys.stdout.write(f"{n_times:5,}  {reason}: {written}   ({places[reason, written]})\n")


def count_parts(document: StoredDocument) -> Iterator[str]:
    """Count the parts of a note."""
    yield "notes"
    yield from (f"with {key}" for key in ("title", "alias", "aliases", "tags") if key in document.metadata)
    if document.date is not None:
        yield "with a date"


def names_in(folder: Path) -> tuple[set[str], set[str]]:
    """Return names, titles and aliases of markdown files, and names of other files, in lower case."""
    notes, others = set[str](), set[str]()
    for file in folder.rglob("*"):
        if file.suffix != ".md":
            others.update((file.name.lower(), file.stem.lower()))
        elif file.is_file():
            text = file.read_text("utf-8", "replace")
            names = {part for value in _NAMED.findall(text) for part in (value, *value.split(","))}
            names = {unquote(file.stem).replace("___", "/"), file.stem, *names}
            notes.update(name.strip(" \t\"'[]").lower() for name in names)
    return notes, others


def reason_of(link: Link, notes: set[str], others: set[str]) -> str:
    """Return the reason why a link leads nowhere, as far as files show it."""
    target = link.target.lower()
    name = target.rpartition("/")[2]
    if "{{" in target or "<%" in target or target.startswith("<"):
        return "a blank that a template leaves"
    if {target, name.removesuffix(".md")} & notes:
        return SHOULD
    if name in others:
        return "a file that is no markdown"
    return "nothing has that name"


if __name__ == "__main__":
    main()
