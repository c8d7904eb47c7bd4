"""Where indexed documents lie on disk, as `--full-path` and terminal links show them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from qmd.names import to_disk
from qmd.records import Collection, StoredDocument


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


def link_to(path: str, *, is_in_vault: bool | None = None) -> str:
    """The address that opens a file on disk: in Obsidian where it lies in a vault, else in the desktop's program.

    Args:
        path: Absolute.
        is_in_vault: Where that is known; None looks at the folders above.
    """
    if vault_of(path) is not None if is_in_vault is None else is_in_vault:
        from urllib.parse import quote

        return f"obsidian://open?path={quote(path, safe='', errors='surrogateescape')}"
    return Path(path).as_uri()


def vault_of(path: str) -> Path | None:
    """The Obsidian vault that a file lies in, the nearest folder above with a `.obsidian` in it; None outside."""
    return next((folder for folder in Path(path).parents if (folder / ".obsidian").is_dir()), None)


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
