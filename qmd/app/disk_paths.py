"""Where indexed documents lie on disk, as `--full-path` and terminal links show them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

from qmd.names import to_disk
from qmd.records import Collection, StoredDocument

Linker = Callable[[str, int], str]
"""Path on disk and line → the address that opens the file there."""


def disk_paths(
    documents: Sequence[StoredDocument], collections: Sequence[Collection], cwd: Path | None
) -> Mapping[str, str]:
    """Address → path of each document whose file still exists.

    Args:
        documents: In any order.
        collections: Those of the index.
        cwd: Paths below it become `./relative`; None leaves all absolute.
    """
    roots = {collection.name: collection.path for collection in collections}
    found: dict[str, str] = {}
    for document in documents:
        root = roots.get(document.collection)
        if root is None:
            continue
        file = root if root.is_file() else root / to_disk(document.path)
        if file.is_file():
            found[document.uri] = _shown(file.resolve(), cwd)
    return found


def linker(template: str | None) -> Linker:
    """What makes a link of a path and a line: the template, else Obsidian for its own files, else the file itself."""
    if template:
        return partial(_editor_link, template)
    # Thousands of files lie in few folders.
    known = cache(is_in_vault)
    return lambda path, line: _obsidian_link(path) if known(Path(path).parent) else Path(path).as_uri()


def is_in_vault(folder: Path) -> bool:
    """Whether a folder is an Obsidian vault, or lies in one."""
    return any((one / ".obsidian").is_dir() for one in (folder, *folder.parents))


def _obsidian_link(path: str) -> str:
    from urllib.parse import quote

    return f"obsidian://open?path={quote(path, safe='', errors='surrogateescape')}"


def _editor_link(template: str, path: str, line: int) -> str:
    from urllib.parse import quote

    target = template.replace("{path}", quote(path, safe="/:~!*'()", errors="surrogateescape"))
    for placeholder, value in (("{line}", max(1, line)), ("{column}", 1), ("{col}", 1)):
        target = target.replace(placeholder, str(value))
    return target


def missing_warning(n_missing: int, n_all: int) -> str:
    """What to say about files that are gone."""
    which = "the file" if n_all == 1 else f"{n_missing} of {n_all} results"
    return (
        f"--full-path could not resolve {which} on disk (moved or deleted since indexing); "
        "showing qmd:// + docid instead. Run 'qmd update' to refresh the index."
    )


def _shown(file: Path, cwd: Path | None) -> str:
    if cwd is not None:
        here = cwd.resolve()
        if file.is_relative_to(here):
            return f".{os.sep}{file.relative_to(here)}"
    return str(file)
