"""No cleaning of an index beside a run that computes its vectors."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING

from qmd.errors import BusyError
from qmd.store.runs import embed_lock

if TYPE_CHECKING:
    from qmd.config.paths import Locations
    from qmd.store.base import IndexWriter

_CLEANUP_WAIT_S = 2.0
"""Longer than a commit of `watch` between two of its slices, shorter than anybody waits without a word."""


def clean_index(writer: IndexWriter, locations: Locations, *, dry_run: bool = False) -> Mapping[str, int]:
    """Drop what nothing uses, while nobody embeds: new vectors are stored before any chunk refers to them.

    Args:
        writer: The index.
        locations: Where it lies.
        dry_run: Only count.

    Raises:
        BusyError: Another process is embedding.
    """
    with nullcontext(True) if dry_run else embed_lock(locations.database, _CLEANUP_WAIT_S) as is_ours:
        if not is_ours:
            message = f"another process is computing vectors for index '{locations.place}'"
            raise BusyError(message, "wait until it has ended, then run: qmd cleanup")
        return writer.cleanup(dry_run=dry_run)
