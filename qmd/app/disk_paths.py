"""Paths of documents on disk, and links that open them."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path, PurePath

from qmd.file_names import suffix_of, to_disk
from qmd.records import Collection, StoredDocument

Linker = Callable[[str, int], str]
"""Path on disk and line → the address that opens the file at the line; empty where that might run it."""

_NOTES = re.compile(
    r".*\.(?:md|markdown|mdown|mkd|mkdn|mdwn|mdx|txt|text|org|rst|adoc|asciidoc|textile)", re.A | re.I | re.S
)
"""Names of files that desktops display. They run many others, and RStudio runs the `.Rprofile` next to an `.Rmd`."""

_DOCUMENTS = {".pdf": b"%PDF-", **dict.fromkeys((".docx", ".pptx", ".xlsx"), b"PK\3\4")}

_DOCUMENTS |= {".png": b"\x89PNG", ".gif": b"GIF8", ".webp": b"RIFF", ".jpg": b"\xff\xd8\xff", ".jpeg": b"\xff\xd8\xff"}
"""Endings of other safe files, with their first bytes. Files with macros have other endings."""

_NO_FILE = re.compile(r"(?!file:)[a-z][a-z0-9+.-]+:", re.IGNORECASE)
"""Scheme of an address that has a program of its own; one letter is a drive of Windows."""


def disk_paths(
    documents: Sequence[StoredDocument], collections: Sequence[Collection], cwd: Path | None
) -> Mapping[str, str]:
    """Return address → path of each document whose file still exists.

    Args:
        documents: In any order.
        collections: Those of the index.
        cwd: Paths below it become `./relative`; None leaves all absolute, and so does the root, where services start.
    """
    here = cwd.resolve() if cwd and cwd != cwd.parent else None
    roots = {collection.name: collection.path for collection in collections}
    found: dict[str, str] = {}
    for document in documents:
        root = roots.get(document.collection)
        if root is None:
            continue
        file = root if root.is_file() else root / to_disk(document.path)
        if file.is_file():
            file = file.resolve()
            below = file.relative_to(here) if here and file.is_relative_to(here) else None
            found[document.uri] = f".{os.sep}{below}" if below else str(file)
    return found


def linker(template: str | None, platform: str = sys.platform) -> Linker:
    """Return the function that makes a link: by the template, else to Obsidian for its own files, else to the file.

    Desktops and Obsidian run executable files, so a file that is not a note gets no link, unless the template names a
    program. Every link to a file is made here.
    """
    # Thousands of files are in few folders.
    known = cache(is_in_vault)

    def link(path: str, line: int) -> str:
        from urllib.parse import quote

        if not (template and _NO_FILE.match(template)) and not _is_note(path, platform):
            return ""
        if not template:
            whole = quote(path, safe="", errors="surrogateescape")
            return f"obsidian://open?path={whole}" if known(Path(path).parent) else Path(path).as_uri()
        target = template.replace("{path}", quote(path, safe="/:~!*'()", errors="surrogateescape"))
        for placeholder, value in (("{line}", max(1, line)), ("{column}", 1), ("{col}", 1)):
            target = target.replace(placeholder, str(value))
        return target

    return link


def _is_note(path: str, platform: str) -> bool:
    """Return whether a file has the ending of a note and no system runs it; a link may have another name."""
    name = PurePath(path).name
    begins = _DOCUMENTS.get(suffix_of(name), b"")
    # After a colon, Windows reads a hidden stream of the file.
    if not (begins or _NOTES.fullmatch(name)) or (platform == "win32" and ":" in name):
        return False
    try:
        mode = os.lstat(path).st_mode
        if not (stat.S_ISREG(mode) and (begins or mode & 0o111)):
            return stat.S_ISREG(mode)
        # On disks of other systems every file is executable; macOS runs any such file.
        with Path(path).open("rb") as file:
            found = file.read(5)
        return found.startswith(begins) and not (mode & 0o111 and (platform == "darwin" or found[:2] == b"#!"))
    except (OSError, ValueError):
        return False


def is_in_vault(folder: Path) -> bool:
    """Return whether a folder is an Obsidian vault, or inside one."""
    return any((one / ".obsidian").is_dir() for one in (folder, *folder.parents))
