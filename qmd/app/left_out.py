"""What a person is told of the files in a folder that the index does not take, and of the option that takes them."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from qmd.errors import NotFoundError
from qmd.ingest.exclusion import UNREADABLE, count_kinds, selected_files
from qmd.names import to_disk, to_text
from qmd.records import DEFAULT_PATTERN, Collection

_NAMES_SHOWN = 3
_KINDS_SHOWN = 4


def git_ignored_line(collection: Collection, git_ignored: Sequence[str]) -> str | None:
    """`notes: 6 left out by .gitignore (MEMORY.md, …): --no-ignore takes them`; None where that is nothing of interest.

    Args:
        collection: Whose mask tells what is of interest.
        git_ignored: Files and folders that git ignores, see `ScanResult`.
    """
    files = _files(collection, git_ignored)
    return f"{collection.name}: {_git_ignored(files)}: --no-ignore takes them" if files else None


def nothing_to_index(collection: Collection, git_ignored: Sequence[str], below: str = "") -> NotFoundError:
    """Why a collection, or a folder in it, holds nothing, and the command that takes what is there.

    Args:
        collection: Its name is empty before it is made.
        git_ignored: What git ignores in it, see `ScanResult`.
        below: Only this folder of it.
    """
    if below:
        collection = replace(collection, name="", path=collection.path / to_disk(below))
        git_ignored = [path.removeprefix(f"{below}/") for path in git_ignored]
    folder, pattern = to_text(collection.path), collection.pattern
    nothing = f"no file in '{folder}' to index"
    command = f"qmd index {shlex.quote(folder)}"
    ignored = _files(collection, git_ignored)
    if ignored:
        mask = "" if pattern == DEFAULT_PATTERN else f" --glob {shlex.quote(pattern)}"
        return NotFoundError(f"{nothing}: {_git_ignored(ignored)}", f"{command}{mask} --no-ignore")
    selected = selected_files(collection)
    if selected:
        reason = f"an ignore rule leaves out all that matches {pattern} ({_some(selected)})"
        return NotFoundError(f"{nothing}: {reason}", "see .qmdignore, and 'ignore' in index.yml")
    kinds = count_kinds(collection.path)
    is_one = kinds.total() == 1
    there = f"there {'is' if is_one else 'are'} {_counted(kinds)}" if kinds else "the folder is empty"
    readable = [suffix for suffix, _ in kinds.most_common() if suffix.lower() not in UNREADABLE]
    if readable:
        instead = f"qmd collection remove {shlex.quote(collection.name)} && " if collection.name else ""
        hint = f"{instead}{command} --glob {shlex.quote(f'**/*{readable[0]}')}"
    elif kinds:
        hint = "convert them to markdown or plain text"
    elif collection.name:
        hint = "write notes there, then run: qmd index"
    else:
        hint = f"to add it all the same: qmd collection add {shlex.quote(folder)}"
    return NotFoundError(f"no file in '{folder}' matches {pattern}; {there}", hint)


def _files(collection: Collection, git_ignored: Sequence[str]) -> list[str]:
    folders = [path for path in git_ignored if path.endswith("/")]
    return [path for path in git_ignored if not path.endswith("/")] + selected_files(collection, folders)


def _git_ignored(files: Sequence[str]) -> str:
    return f"{len(files):,} left out by .gitignore ({_some(files)})"


def _some(files: Sequence[str]) -> str:
    return ", ".join([*files[:_NAMES_SHOWN], *(["…"] if len(files) > _NAMES_SHOWN else [])])


def _counted(kinds: Counter[str]) -> str:
    """`12 .txt, 3 .docx, which qmd cannot read`."""
    shown = kinds.most_common(_KINDS_SHOWN)
    counts = [f"{n_files:,} {suffix or 'without an ending'}" for suffix, n_files in shown]
    unreadable = [suffix for suffix, _ in shown if suffix.lower() in UNREADABLE]
    if len(kinds) > _KINDS_SHOWN:
        counts.append("…")
    note = f" (qmd does not read {', '.join(unreadable)})" if unreadable else ""
    return ", ".join(counts) + note
