"""What to say of a document that was asked for by name and is not in the index."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qmd.config.paths import expand_home
from qmd.errors import MissingDocumentError, NotFoundError
from qmd.names import places_on_disk, split_address, to_disk, without_scheme
from qmd.retrieval.lookup import parse_line_range

if TYPE_CHECKING:
    from qmd.records import Collection
    from qmd.store.base import IndexReader


def explain_missing(error: MissingDocumentError, reference: str, reader: IndexReader, cwd: Path) -> NotFoundError:
    """`error` in the words that scripts know, or where the file exists on disk the reason why it is not indexed."""
    from qmd.ingest.exclusion import find_exclusion

    for collection, path in _places(reference, reader.collections(), cwd):
        exclusion = find_exclusion(collection, path)
        if exclusion is None:
            left_out = {(one.collection, one.path): one.reason for one in reader.status(None).left_out}
            reason = left_out.get((collection.name, path))
            if reason is not None:
                return NotFoundError(f"Document not found: {reference} (left out: {reason})", "see: qmd status")
            known = f"Document not found: {reference} (the file exists, but is not indexed)"
            return NotFoundError(known, "run: qmd update")
        return NotFoundError(
            f"Document is excluded by ignore rule: {reference}\n  Collection: {collection.name}\n"
            f"  Matched path: {path}\n  Ignore rule: {exclusion.rule} ({exclusion.source})",
            "change the rule, then run: qmd update",
        )
    return NotFoundError(f"Document not found: {reference}", error.hint)


def _places(reference: str, collections: Sequence[Collection], cwd: Path) -> Iterator[tuple[Collection, str]]:
    """(collection, path in it) of each file on disk that the reference can mean."""
    name = parse_line_range(reference).name
    address = without_scheme(name)
    named = split_address(name if address is None else address, [one.name for one in collections])
    meant = [(one, named[1]) for one in collections if named is not None and one.name == named[0]]
    if address is None:
        meant += [(one, name.removeprefix("./")) for one in collections if not Path(name).is_absolute()]
        meant += places_on_disk(cwd / expand_home(name), collections)
    for collection, path in meant:
        # `..` in a reference must not lead to a verdict on a file outside the collection.
        if path and ".." not in path.split("/") and os.path.isfile(collection.path / to_disk(path)):  # noqa: PTH113 - Path.is_file raises for long names
            yield collection, path
