"""Addresses of documents: `qmd://collection/path`, `collection/path` and paths on disk."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from qmd.file_names import to_text

_SCHEME = r"(?i:qmd:/*|//)(?=[^/])"


_INDEX = r"\?index=[^/?]*\Z"


def without_scheme(address: str) -> str | None:
    """Return the part after `qmd://`, `qmd:` or `//` without `?index=NAME`; None without a scheme."""
    scheme = re.match(_SCHEME, address)
    return re.sub(_INDEX, "", address[scheme.end() :]) if scheme is not None else None


def split_address(address: str, names: Iterable[str]) -> tuple[str, str] | None:
    """Split `collection/path` into both, the path empty for a collection alone; None if the collection is unknown.

    Names may contain a `/`: the longest match wins.
    """
    name = max((name for name in names if address == name or address.startswith(f"{name}/")), key=len, default=None)
    return None if name is None else (name, address[len(name) + 1 :])


def is_below(path: str, folder: str) -> bool:
    """Return whether a collection-relative path is `folder` or in it; everything is in the empty folder."""
    return not folder or path == folder or path.startswith(f"{folder}/")


class _HasPath(Protocol):
    """A file or folder, such as a `Collection`."""

    @property
    def path(self) -> Path: ...


P = TypeVar("P", bound=_HasPath)


def places_on_disk(path: Path, collections: Iterable[P]) -> Iterator[tuple[P, str]]:
    """Yield (collection, path in it, empty for its folder) for each collection that contains the path, innermost first.

    Try the absolute path as written, then with its links resolved: the folder itself may be named through a link.
    """
    # Programs can send paths that no file system accepts.
    if "\0" in str(path):
        return
    roots = [(root, one) for one in collections for root in dict.fromkeys((one.path, one.path.resolve()))]
    roots.sort(key=lambda entry: -len(entry[0].parts))
    for candidate in dict.fromkeys((Path(os.path.normpath(path)), path.resolve())):
        for root, collection in roots:
            if candidate.is_relative_to(root):
                relative = to_text(candidate.relative_to(root).as_posix())
                yield collection, "" if relative == "." else relative
