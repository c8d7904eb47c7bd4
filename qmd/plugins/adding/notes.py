"""A text that is to be kept, as a file below a collection's folder: a new one, or the end of one that is there.

Who sends it may be an agent that reads strangers' pages: every name is checked, no link below the folder is followed,
and of a file that is there nothing is changed.
"""

from __future__ import annotations

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
from qmd.app.searching import SearchRequest
from qmd.errors import BusyError, NotFoundError, QmdError, UsageError, collection_not_found
from qmd.file_names import storable
from qmd.files import open_below
from qmd.foreign import is_name, short
from qmd.ingest.exclusion import find_exclusion
from qmd.records import Collection, SubQuery
from qmd.times import utc_now

MAX_BYTES = 256 * 1024
_LIKE, _PIECE, _COMPARED = 0.8, 8, 1 << 20
"""A note says the same if its first MiB holds so much of a text's pieces, of so many letters each. Of the garden's
1,179 notes eleven are held so by another one; with every twentieth word another one, 92 % are still known."""
_WORDS, _NEAREST = 24, 5
"""The notes to compare are found by so many of the longest words: of 250 none was missed."""
_INSTRUCTIONS = frozenset({"agents", "claude", "claude.local", "gemini", "skill"})
"""Programs obey files of these names."""
_MOST_FOLDERS, _TITLE_CHARS, _NAME_BYTES, _TRIES = 8, 200, 100, 9


class NewNote(Struct, frozen=True):
    """A text to keep, `to` a collection, a folder of one, or the end of a note of one, or of that of the day."""

    text: str
    title: str = ""
    tags: Sequence[str] = ()
    to: str = ""
    daily: bool = False
    source: str = ""
    force: bool = False


class AddedNote(Struct, frozen=True):
    """What became of it; `docid` is None until it is indexed."""

    status: str
    file: str
    docid: str | None
    warnings: tuple[str, ...]


def add_for_agent(index: Index, asked: Mapping[str, Any]) -> AddedNote:
    """`add_note` where the user's own configuration lets agents write."""
    collections = index.agents_may_write()
    if not collections:
        hint = "the user's own index.yml must have `agents_may_write: true` for one; a project's is not heard"
        raise QmdError("agents may write to no collection", hint)
    source = ", ".join(("agent", *filter(None, [asked["source"]])))
    note = NewNote(**{key: value for key, value in asked.items() if value} | {"source": source})
    try:
        return add_note(index, note, collections)
    except NotFoundError as error:
        raise UsageError(f"agents may not write to '{short(note.to)}'", error.hint) from error


def add_note(index: Index, note: NewNote, collections: Sequence[Collection]) -> AddedNote:
    """Write a note into one of some collections, and index it.

    Raises:
        UsageError: It is empty or too large, or no note can be where it is to go.
        NotFoundError: There is no such collection.
        QmdError: A note says the same, or the file cannot be written.
    """
    text = re.sub(r"\r\n?", "\n", note.text).strip("\n").rstrip()
    if not text or "\0" in text or storable(text) != text:
        raise UsageError("there is no text to add, or it is no UTF-8", "qmd add 'what to keep'")
    collection, path = _destination(index, note, collections)
    try:
        status, path = _write(index, collection, path, note, text)
    except OSError as exc:
        message = f"cannot write to '{short(f'{collection.name}/{path}')}': {exc.strerror}"
        raise QmdError(message, "links are not followed; name another place with --to") from exc
    file = f"qmd://{collection.name}/{path}"
    try:
        with index.updating((collection.name,)) as update:
            warnings = update.run(update.collections[0], below=path).warnings
        docid = next((one.docid for one in index.documents(collection.name, path)), None)
    except QmdError as error:
        return AddedNote(status, file, None, (f"it is not indexed yet: {error.message}",))
    return AddedNote(status, file, docid, warnings)


def _destination(index: Index, note: NewNote, collections: Sequence[Collection]) -> tuple[Collection, str]:
    """The collection, and in it the folder or file, empty for its own folder."""
    names = [one.name for one in collections]
    likely = collections if len(collections) == 1 else index.agents_may_write()
    to = note.to or "".join(one.name for one in likely if len(likely) == 1)
    if not to:
        raise UsageError("no collection is named", f"--to with one of: {', '.join(names) or 'none yet'}")
    found = split_address(unquote(without_scheme(to) or "") or to, names)
    if found is None:
        raise collection_not_found(short(to), names)
    parts = PurePosixPath(found[1].strip("/")).parts
    if len(parts) > _MOST_FOLDERS or not all(map(is_name, parts)):
        raise UsageError(f"'{short(found[1])}' is no path below a folder", "put plain names between slashes")
    return next(one for one in collections if one.name == found[0]), "/".join(parts)


def _write(index: Index, collection: Collection, path: str, note: NewNote, text: str) -> tuple[str, str]:
    """Write the file; what was done, and its path."""
    now, is_file = utc_now().astimezone(), path.lower().endswith((".md", ".markdown", ".txt"))
    title, source, entry = _line(note.title), _line(note.source), f"{text}\n"
    tags = [*filter(None, ("/".join(filter(None, map(_slug, tag.split("/")))) for tag in note.tags))]
    if appends := note.daily or is_file:
        head = ("##", now.strftime("%Y-%m-%d %H:%M" if is_file else "%H:%M"), title, source and f"({source})")
        parts = (" ".join(filter(None, head)), text, " ".join(f"#{tag}" for tag in tags))
        entry = "\n\n".join(filter(None, parts)) + "\n"
        paths = [path if is_file else f"{path}/{now.date()}.md"] * _TRIES
    else:
        _refuse_known(index, collection, note)
        paths = _new_paths(path, (title, *text.split("\n")))
    fields = {"title": title, "source": source or "qmd add", "tags": tags}
    # JSON is YAML on one line. It stands before any text, so that no text becomes front matter.
    front = "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in fields.items() if value)
    whole = f"---\ncreated: {now.isoformat(timespec='seconds')}\n{front}---\n\n{entry}".encode()
    for file in (one.lstrip("/") for one in paths):
        _check_place(collection, file, len(whole))
        with suppress(FileExistsError), open_below(collection.path, file, is_new=True) as stream:
            stream.write(whole)
            return "added", file
        with suppress(FileNotFoundError):
            if appends and _append(collection, file, entry, note):
                return "appended", file
    raise BusyError(f"'{file}' is always taken by another program", "try again, or choose another title")


def _new_paths(folder: str, lines: Sequence[str]) -> list[str]:
    """What a new file may be called after the first line of words: few, however many notes have one title."""
    stem = next(filter(None, map(_slug, lines)), "note")
    stem = stem if is_name(f"{stem}.md") and stem not in _INSTRUCTIONS else f"note-{stem}"
    numbers = (*range(2, _TRIES), int.from_bytes(os.urandom(5)), int.from_bytes(os.urandom(5)))
    return [f"{folder}/{stem}{end}.md" for end in ("", *(f"-{number}" for number in numbers))]


def _append(collection: Collection, path: str, entry: str, note: NewNote) -> bool:
    """Put an entry at the end of a file; False where an editor has put another file in its place meanwhile."""
    with open_below(collection.path, path, is_new=False) as stream:
        stream.seek(0)
        held = stream.read(MAX_BYTES + 1)
        _refuse_same(note, held.decode(errors="replace"), f"qmd://{collection.name}/{path}")
        if b"\0" in held:
            raise UsageError(f"'{path}' is no UTF-8", "name another note")
        added = b"\n" * (2 - held.endswith(b"\n")) + entry.encode()
        _check_place(collection, path, len(held) + len(added))
        stream.write(added)
        stream.flush()
        return os.path.samestat(os.fstat(stream.fileno()), os.lstat(collection.path / path))


def _check_place(collection: Collection, path: str, size_bytes: int) -> None:
    """Make sure that a file may lie there and would be found."""
    if size_bytes > MAX_BYTES:
        raise UsageError(f"a note has at most {MAX_BYTES:,} bytes", "cut it, or add it in parts")
    if path.rpartition("/")[2].rpartition(".")[0].casefold() in _INSTRUCTIONS:
        raise UsageError(f"'{path}' is obeyed by programs that find it", "choose another name")
    if exclusion := find_exclusion(collection, path):
        reason = f"'{exclusion.rule}', {exclusion.source}"
        raise UsageError(f"'{path}' would not be found: {reason}", "choose another place with --to")


def _slug(title: str) -> str:
    """The letters and digits of a line, in lower case, with dashes between the words."""
    letters = unicodedata.normalize("NFC", title[:_TITLE_CHARS]).lower()
    kept = "".join(one if one.isalnum() or unicodedata.category(one)[0] == "M" else " " for one in letters)
    return "-".join(kept.split()).encode()[:_NAME_BYTES].decode(errors="ignore").strip("-")


def _line(words: str) -> str:
    """Words as one line without control characters."""
    return " ".join("".join(one if one.isprintable() else " " for one in words).split())[:_TITLE_CHARS]


def _refuse_known(index: Index, collection: Collection, note: NewNote) -> None:
    """Raise where a note of the collection says the same."""
    words = {word[:40] for word in re.findall(r"\w+", note.text.casefold())}
    query = (SubQuery("lex", " ".join(sorted(words, key=lambda one: (-len(one), one))[:_WORDS])),)
    request = SearchRequest(None, query, "lexical", (collection.name,), limit=_NEAREST, full_body=True)
    with suppress(NotFoundError):  # nothing is indexed yet
        for hit in index.search(request).hits if words and not note.force else ():
            _refuse_same(note, hit.body or "", hit.document.uri)


def _refuse_same(note: NewNote, other: str, uri: str) -> None:
    letters = ("".join(filter(str.isalnum, one[:_COMPARED].casefold())) for one in (note.text, other))
    mine, others = ({one[i : i + _PIECE] for i in range(max(1, len(one) - _PIECE + 1))} for one in letters)
    if len(mine & others) >= _LIKE * len(mine) and not note.force:
        raise QmdError(f"'{uri}' says nearly the same, so nothing was written", "to keep both: force (qmd add --force)")
