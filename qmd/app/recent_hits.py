"""Hits of the last search on a terminal, which a person can name by number."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from qmd.errors import NotFoundError
from qmd.files import make_private_folder, open_private
from qmd.records import Hit

if TYPE_CHECKING:
    from qmd.config.paths import Locations


_SEARCH_FIRST = 'search first: qmd query "…"'


def remember_hits(locations: Locations, hits: Sequence[Hit]) -> None:
    """Store the addresses and lines of hits in the order shown; errors of the cache are ignored."""
    places = [(hit.document.uri, hit.passage.line) for hit in hits]
    file = _file(locations)
    with suppress(OSError):
        make_private_folder(file.parent)
        with os.fdopen(open_private(file, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as stream:
            json.dump(places, stream)


def recall_hit(locations: Locations, number: int) -> tuple[str, int]:
    """Return the address and line of the hit that was shown as `number`, from 1.

    Raises:
        NotFoundError: The last search did not show this hit, or there was no search.
    """
    try:
        places: list[tuple[str, int]] = json.loads(_file(locations).read_text("utf-8"))
    except (OSError, ValueError):
        raise NotFoundError(f"no hit {number}: there was no search on a terminal yet", _SEARCH_FIRST) from None
    if not 0 < number <= len(places):
        raise NotFoundError(f"no hit {number}: the last search had {len(places)}", _SEARCH_FIRST)
    uri, line = places[number - 1]
    return uri, line


def _file(locations: Locations) -> Path:
    # The folder of a project's own index may be shared.
    return locations.cache / f"last-hits-{locations.key}.json"
