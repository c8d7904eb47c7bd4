"""Saving of text below a collection's folder, as a new file or at the end of an existing one.

The sender may be an agent that reads untrusted pages. So every name is checked, no link below the folder is followed,
and existing text is never changed.
"""

from __future__ import annotations

import errno
import json
import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

from msgspec import Struct

from qmd.addresses import split_address, without_scheme
from qmd.app.index import Index
from qmd.errors import BusyError, NotFoundError, QmdError, UsageError, collection_not_found
from qmd.external_files import append, open_below
from qmd.file_names import storable
from qmd.files import read_up_to
from qmd.foreign import is_name, short
from qmd.ingest.exclusion import find_exclusion
from qmd.records import Collection, SubQuery
from qmd.retrieval.request import SearchRequest
from qmd.times import utc_now

MAX_BYTES = 256 * 1024
_DUPLICATE_SHARE, _PIECE_CHARS, _COMPARED_CHARS = 0.8, 8, 1 << 20
"""A note is a duplicate if its first MiB contains this share of a text's pieces of so many letters. Of the garden's
1,179 notes, eleven duplicate another one; with every twentieth word replaced, 92 % are still recognized."""
_WORDS, _NEAREST = 24, 5
"""A search for this many of the longest words finds the notes to compare: of 250 it missed none."""
_OBEYED = re.compile(
    r"(?i:(agents?|claude|codebuddy|copilot-instructions|crush|gemini|iflow|opencode|qwen|skill|warp)\..*"
    r"|.*\.instructions\..*|[^.]{1,6}~\d+\..*)"
    r"|(?P<word>BOOTSTRAP|CONVENTIONS|HEARTBEAT|IDENTITY|MEMORY|SOUL|TOOLS|USER)\..*"
)
"""Names of files whose text programs follow as instructions, and short names by which Windows opens such a file; words
only in capitals, as `tools.md` is a note."""
_MOST_FOLDERS, _TITLE_CHARS, _NAME_BYTES, _TRIES = 8, 200, 100, 9


class NewNote(Struct, frozen=True):
    """Text to save; `to` is a collection, a folder, or a note to append to, `daily` appends to the note of today."""

    text: str
    title: str = ""
    tags: Sequence[str] = ()
    to: str = ""
    daily: bool = False
    source: str = ""
    force: bool = False


class AddedNote(Struct, frozen=True):
    """Result of saving a text; `docid` is None until the note is indexed."""

    status: str
    file: str
    docid: str | None
    warnings: tuple[str, ...]


def add_for_agent(index: Index, asked: Mapping[str, Any]) -> AddedNote:
    """Save a note where the user's own configuration lets agents write; see `add_note`."""
    collections = index.agents_may_write()
    if not collections:
        hint = "set `agents_may_write: true` for one in the user's own index.yml; a project's cannot allow it"
        raise QmdError("agents may write to no collection", hint)
    source = ", ".join(("agent", *filter(None, [asked["source"]])))
    note = NewNote(**{key: value for key, value in asked.items() if value} | {"source": source})
    try:
        return add_note(index, note, collections)
    except NotFoundError as error:
        raise UsageError(f"agents may not write to '{short(note.to)}'", error.hint) from error


def add_note(index: Index, note: NewNote, collections: Sequence[Collection]) -> AddedNote:
    """Save a note in one of these collections, and index it.

    Raises:
        UsageError: The text is empty or too large, or the target is not allowed.
        NotFoundError: There is no such collection.
        QmdError: A note with the same text exists, or the file cannot be written.
    """
    text = re.sub(r"\r\n?", "\n", note.text).strip("\n").rstrip()
    if not text or "\0" in text or storable(text) != text:
        raise UsageError("the text is empty, or not UTF-8", "qmd add 'what to keep'")
    collection, path = _resolve_target(index, note, collections)
    try:
        status, path = _write_note(index, collection, path, note, text)
    except OSError as exc:
        message = f"cannot write to '{short(f'{collection.name}/{path}')}': {exc.strerror}"
        reason = "links are not followed" if exc.errno in (errno.ELOOP, errno.ENOTDIR) else "nothing was written"
        raise QmdError(message, f"{reason}; name another place with --to") from exc
    file = f"qmd://{collection.name}/{path}"
    try:
        with index.updating((collection.name,)) as update:
            warnings = update.run(update.collections[0], below=path).warnings
        docid = next((one.docid for one in index.documents(collection.name, path)), None)
    except QmdError as error:
        return AddedNote(status, file, None, (f"the note is not indexed yet: {error.message}",))
    return AddedNote(status, file, docid, warnings)


def _resolve_target(index: Index, note: NewNote, collections: Sequence[Collection]) -> tuple[Collection, str]:
    """Return the collection, and the path of a folder or file in it; empty for its root."""
    names = [one.name for one in collections]
    likely = collections if len(collections) == 1 else index.agents_may_write()
    to = note.to or "".join(one.name for one in likely if len(likely) == 1)
    if not to:
        raise UsageError("no collection given", f"--to with one of: {', '.join(names) or 'none yet'}")
    found = split_address(unquote(without_scheme(to) or "") or to, names)
    if found is None:
        raise collection_not_found(short(to), names)
    parts = PurePosixPath(found[1].strip("/")).parts
    if len(parts) > _MOST_FOLDERS or not all(map(is_name, parts)):
        raise UsageError(f"'{short(found[1])}' is not a path below the collection", "put plain names between slashes")
    return next(one for one in collections if one.name == found[0]), "/".join(parts)


def _write_note(index: Index, collection: Collection, path: str, note: NewNote, text: str) -> tuple[str, str]:
    """Write the file; return `added` or `appended`, and its path."""
    now, is_file = utc_now().astimezone(), path.lower().endswith((".md", ".markdown", ".txt"))
    title, source, entry = _to_one_line(note.title), _to_one_line(note.source), f"{text}\n"
    tags = [*filter(None, ("/".join(filter(None, map(_slug, tag.split("/")))) for tag in note.tags))]
    if appends := note.daily or is_file:
        head = ("##", now.strftime("%Y-%m-%d %H:%M" if is_file else "%H:%M"), title, source and f"({source})")
        parts = (" ".join(filter(None, head)), text, " ".join(f"#{tag}" for tag in tags))
        entry = "\n\n".join(filter(None, parts)) + "\n"
        paths = [path if is_file else f"{path}/{now.date()}.md"] * _TRIES
    else:
        _refuse_duplicate(index, collection, note)
        paths = _list_new_paths(collection, path, (title, *text.split("\n")))
    fields = {"title": title, "source": source or "qmd add", "tags": tags}
    # JSON is one-line YAML. Every new file gets front matter, so that no text becomes front matter.
    front = "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in fields.items() if value)
    whole = f"---\ncreated: {now.isoformat(timespec='seconds')}\n{front}---\n\n{entry}".encode()
    for file in (one.lstrip("/") for one in paths):
        _check_target(collection, file, len(whole))
        with suppress(FileExistsError):
            with open_below(collection.path, file, is_new=True) as handle:
                append(handle, whole)
            return "added", file
        with suppress(FileNotFoundError):
            if appends and _append(collection, file, entry, note):
                return "appended", file
    raise BusyError(f"another program always creates '{file}' first", "try again, or choose another title")


def _list_new_paths(collection: Collection, folder: str, lines: Sequence[str]) -> list[str]:
    """Return possible paths of a new file, named after its first line; few even if many notes share a title."""
    stem = next(filter(None, map(_slug, lines)), "note")
    stem = stem if is_name(f"{stem}.md") and not _is_obeyed(collection, f"{stem}.md") else f"note-{stem}"
    numbers = (*range(2, _TRIES), int.from_bytes(os.urandom(5)), int.from_bytes(os.urandom(5)))
    return [f"{folder}/{stem}{end}.md" for end in ("", *(f"-{number}" for number in numbers))]


def _append(collection: Collection, path: str, entry: str, note: NewNote) -> bool:
    """Append an entry to a file; return False if an editor has replaced the file meanwhile."""
    with open_below(collection.path, path, is_new=False) as handle:
        existing = read_up_to(handle, MAX_BYTES + 1)
        _refuse_similar(note, existing.decode(errors="replace"), f"qmd://{collection.name}/{path}")
        if b"\0" in existing:
            raise UsageError(f"'{path}' is not UTF-8", "choose another note")
        added = b"\n" * (2 - existing.endswith(b"\n")) + entry.encode()
        _check_target(collection, path, len(existing) + len(added))
        append(handle, added)
        return os.path.samestat(os.fstat(handle), os.lstat(collection.path / path))


def _check_target(collection: Collection, path: str, size_bytes: int) -> None:
    """Check that a file of this size is allowed there, and that a search would find it."""
    if size_bytes > MAX_BYTES:
        raise UsageError(f"the note would exceed {MAX_BYTES:,} bytes", "shorten it, or add it in parts")
    if _is_obeyed(collection, path):
        raise UsageError(f"programs follow instructions in '{path}'", "choose another name")
    if exclusion := find_exclusion(collection, path):
        reason = f"'{exclusion.rule}', {exclusion.source}"
        raise UsageError(f"'{path}' is excluded from searches: {reason}", "choose another place with --to")


def _is_obeyed(collection: Collection, path: str) -> bool:
    """Return whether programs follow a file's text as instructions; if its name is a word, the mask may name it."""
    name, other_case = path.rpartition("/")[2], collection.path.name.swapcase()
    # Where the file system ignores case, a program that asks for `TOOLS.md` gets `tools.md`.
    ignores_case = other_case != collection.path.name and (collection.path.parent / other_case).exists()
    found = _OBEYED.fullmatch(name.upper() if ignores_case else name)
    return bool(found and not (found["word"] and path in re.split(" *, *", collection.pattern)))


def _slug(title: str) -> str:
    """Return the letters and digits of a line, in lower case, with dashes between the words."""
    letters = unicodedata.normalize("NFC", title[:_TITLE_CHARS]).lower()
    kept = "".join(one if one.isalnum() or unicodedata.category(one)[0] == "M" else " " for one in letters)
    return "-".join(kept.split()).encode()[:_NAME_BYTES].decode(errors="ignore").strip("-")


def _to_one_line(words: str) -> str:
    """Return words as one line without control characters."""
    return " ".join("".join(one if one.isprintable() else " " for one in words).split())[:_TITLE_CHARS]


def _refuse_duplicate(index: Index, collection: Collection, note: NewNote) -> None:
    """Raise if a note of the collection has nearly the same text."""
    words = {word[:40] for word in re.findall(r"\w+", note.text.casefold())}
    query = (SubQuery("lex", " ".join(sorted(words, key=lambda one: (-len(one), one))[:_WORDS])),)
    request = SearchRequest(None, query, "lexical", (collection.name,), limit=_NEAREST, full_body=True)
    with suppress(NotFoundError):  # nothing is indexed yet
        for hit in index.search(request).hits if words and not note.force else ():
            _refuse_similar(note, hit.body or "", hit.document.uri)


def _refuse_similar(note: NewNote, other: str, uri: str) -> None:
    letters = ("".join(filter(str.isalnum, one[:_COMPARED_CHARS].casefold())) for one in (note.text, other))
    mine, theirs = ({one[i : i + _PIECE_CHARS] for i in range(max(1, len(one) - _PIECE_CHARS + 1))} for one in letters)
    if len(mine & theirs) >= _DUPLICATE_SHARE * len(mine) and not note.force:
        raise QmdError(
            f"'{uri}' has nearly the same text, so nothing was written", "to keep both: force (qmd add --force)"
        )
