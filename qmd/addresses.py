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
    """What stands behind `qmd://`, `qmd:` or `//`, without `?index=NAME`; None for what has no scheme."""
    scheme = re.match(_SCHEME, address)
    return re.sub(_INDEX, "", address[scheme.end() :]) if scheme is not None else None


def split_address(address: str, names: Iterable[str]) -> tuple[str, str] | None:
    """(collection, path in it) of `collection/path`, the path empty for a collection alone; None for no known one.

    Names may hold a `/`: of two that fit the longer one is meant.
    """
    name = max((name for name in names if address == name or address.startswith(f"{name}/")), key=len, default=None)
    return None if name is None else (name, address[len(name) + 1 :])


def is_below(path: str, folder: str) -> bool:
    """Whether a collection-relative path is `folder`, or in it; everything is in the empty one."""
    return not folder or path == folder or path.startswith(f"{folder}/")


class _HasPath(Protocol):
    """What lies in a folder, or is a file: a `Collection`."""

    @property
    def path(self) -> Path: ...


P = TypeVar("P", bound=_HasPath)


def places_on_disk(path: Path, collections: Iterable[P]) -> Iterator[tuple[P, str]]:
    """(collection, path in it, empty for its folder) of each collection that holds an absolute path, innermost first.

    As the path is written, then with its links resolved: the folder may itself be named through a link.
    """
    # Programs can send what no file system holds.
    if "\0" in str(path):
        return
    roots = [(root, one) for one in collections for root in dict.fromkeys((one.path, one.path.resolve()))]
    roots.sort(key=lambda entry: -len(entry[0].parts))
    for candidate in dict.fromkeys((Path(os.path.normpath(path)), path.resolve())):
        for root, collection in roots:
            if candidate.is_relative_to(root):
                relative = to_text(candidate.relative_to(root).as_posix())
                yield collection, "" if relative == "." else relative
