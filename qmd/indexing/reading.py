"""Read the files of a scan into documents ready to be written."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Self

import msgspec
from msgspec import Struct
from msgspec.structs import astuple, replace

from qmd.analysis.index import analyze_document
from qmd.analysis.note_names import name_kinds
from qmd.errors import GrammarError, UnindexableFileError
from qmd.escapes import message_line
from qmd.file_names import suffix_of
from qmd.ingest.document import read_document
from qmd.ingest.outline import UNKNOWN, kind_of
from qmd.plugins import Kind, hooks
from qmd.records import Document, FileEntry, Heading
from qmd.status import BINARY
from qmd.store.records import NewDocument, pack_links, pack_text
from qmd.times import UNKNOWN_TIME_NS, file_time_text, settled_time

if TYPE_CHECKING:
    from qmd.chunking.split import Declaration


class FileReading(Struct, frozen=True):
    """A file after it was read: its document, or the reason why there is none."""

    entry: FileEntry
    document: NewDocument | None = None
    failure: str | None = None
    """Code of `UnindexableFileError` if the file cannot be indexed; the one warning is its message."""
    mtime_ns: int = UNKNOWN_TIME_NS
    """Time by which the next update may recognise an unchanged file."""
    is_plain: bool = False
    """True for source code whose declarations are unknown, because the grammar is missing."""
    warnings: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    """Parts of the document that could not be read."""
    unread_line: int | None = None

    def pack(self) -> bytes:
        """Encode all but `entry`, for another process."""
        return msgspec.msgpack.encode(astuple(self)[1:])

    @classmethod
    def unpack(cls, entry: FileEntry, packed: bytes) -> Self:
        """Return the reading that `pack` encoded, given its `entry`."""
        return cls(entry, *_DECODER.decode(packed))


_Words = tuple[str, ...]
_DECODER = msgspec.msgpack.Decoder(tuple[NewDocument | None, str | None, int, bool, _Words, _Words, int | None])


def read_files(entries: Sequence[FileEntry]) -> list[FileReading]:
    """Return the files read, parsed and analysed, in order; a warning explains each that cannot be indexed here."""
    return [read_file(entry, kind_of(entry.path), runs_in_subprocess=False) for entry in entries]


def read_file(entry: FileEntry, kind: Kind, *, runs_in_subprocess: bool = True) -> FileReading:
    """Read, parse and analyse a file; an error in it fails this file alone."""
    read_at_ns = time.time_ns()
    mtime_ns = settled_time(entry.mtime_ns, read_at_ns)
    # A row of this ending, or a grammar, may be installed later.
    warnings, is_plain = list[str](), kind is UNKNOWN
    try:
        if kind.is_converted and not runs_in_subprocess:
            raise UnindexableFileError(f"'{entry.path}' needs a process of its own: none can be started", "unreadable")
        document = read_document(entry, kind)
        try:
            document = with_declarations(document, kind)
        except GrammarError as exc:
            warnings.append(f"{exc.message}; {exc.hint}")
            is_plain = True
        new = stored_form(document, entry.size_bytes, mtime_ns, read_at_ns, entry.mtime_ns)
        # Text that the index cannot store must fail here, where it concerns this file alone.
        "".join((new.title, new.metadata_json, new.terms.headings, new.terms.extra)).encode()
        losses, line = document.warnings, document.unread_line
        return FileReading(entry, new, None, mtime_ns, is_plain, tuple(warnings), losses, line)
    except UnindexableFileError as exc:
        # Files of unknown endings may be anything.
        is_guess = kind is UNKNOWN or not suffix_of(entry.path)
        message, code = BINARY if is_guess and exc.code in ("binary", "too_large") else exc.message, exc.code
    except MemoryError:
        message, code = f"'{entry.path}' needs more memory than one file may use", "failed"
    # A parser can raise any exception; this clause keeps the rest of the run.
    except Exception as exc:
        message, code = failure_line(entry.path, "cannot be parsed", exc), "failed"
    return FileReading(entry, failure=code, mtime_ns=mtime_ns, warnings=(message,))


def failure_line(path: str, outcome: str, error: Exception) -> str:
    """Return the message for a file and an unforeseen error, on one line of bounded length."""
    return message_line(f"'{path}' {outcome}: {type(error).__name__}: {error}")


def with_declarations(document: Document, kind: Kind) -> Document:
    """Return a source file with its declared names as headings, and any other file as it is.

    Raises:
        GrammarError: The grammar of its language is missing.
    """
    headings = tuple(declared_headings(find_declarations(document.path, kind, document.text)))
    return replace(document, headings=headings) if headings else document


def find_declarations(path: str, kind: Kind, text: str) -> tuple[Declaration, ...]:
    """Return the outermost declarations of a text, with those inside them; of source code alone.

    Raises:
        GrammarError: The grammar of its language is missing.
    """
    return hooks.find_declarations(path, text) if kind.is_source else ()


def declared_headings(declarations: Iterable[Declaration], level: int = 1) -> Iterator[Heading]:
    """Yield declarations as headings, in the order of the text, outermost at level 1."""
    for declaration in declarations:
        yield Heading(level, declaration.name, declaration.start)
        yield from declared_headings(declaration.children, min(level + 1, 6))


def stored_form(
    document: Document, size_bytes: int, known_mtime_ns: int, created_ns: int, modified_ns: int
) -> NewDocument:
    """Return a parsed file as the index stores it.

    Args:
        document: The file.
        size_bytes: Its size.
        known_mtime_ns: Time by which the next update may recognise it.
        created_ns: Time of the first read.
        modified_ns: Time of the last change.
    """
    return NewDocument(
        path=document.path,
        title=document.title,
        hash=document.hash,
        n_chars=len(document.text),
        created_at=file_time_text(created_ns),
        modified_at=file_time_text(modified_ns),
        doc=pack_text(document.text),
        links=pack_links(document.links) if document.links else None,
        terms=analyze_document(document),
        names=name_kinds(document),
        metadata_json=msgspec.json.encode(document.metadata).decode() if document.metadata else "{}",
        size_bytes=size_bytes,
        mtime_ns=known_mtime_ns,
        heading=document.title if document.title_source == "heading" else None,
        date=document.date,
    )
