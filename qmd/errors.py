"""The exception tree. Everything a user can cause derives from `QmdError`.

QmdError                 exit 1
├── UsageError           exit 2   wrong arguments, empty query, malformed query document
├── NotFoundError        exit 3   no index, collection, document
│   └── MissingDocumentError      no document of a name
├── ModelError           exit 4   model or runtime unavailable, broken model file
├── BusyError            exit 5   another process uses the index
│   ├── AlreadyEmbeddingError     another process is embedding
│   └── BusyModelError            another process works on the files of a model
├── DeadlineError        exit 1   a server stopped a request because it took too long
├── StoreError           exit 1   the index is damaged, read-only or out of space
│   └── UnknownOriginError        the index of a project was not made here
├── UnindexableFileError exit 1   one file of a collection is not text, too large or unreadable
└── ConfigError          exit 1   index.yml cannot be read
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from qmd.escapes import message_line

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_NOT_FOUND = 3
EXIT_MODEL = 4
EXIT_BUSY = 5
EXIT_INTERRUPTED = 130


class QmdError(Exception):
    """An expected failure: one line of message, optionally the command to run next.

    Message and hint may quote any foreign words: `message_line` makes each of them one line of bounded length.

    Args:
        message: Lower-case start, no full stop, offending value quoted.
        hint: The next command or remedy, without the word "hint".
        details: Further lines of the message, for sentences that programs parse.

    Attributes:
        code: Stable machine-readable name.
        exit_code: Process exit status.
    """

    code = "failure"
    exit_code = EXIT_FAILURE

    def __init__(self, message: str, hint: str | None = None, *, details: Sequence[str] = ()) -> None:
        self.message = "\n".join(map(message_line, (message, *details)))
        self.hint = None if hint is None else message_line(hint)
        super().__init__(self.message)


class UsageError(QmdError):
    """Wrong arguments or a malformed query."""

    code = "usage"
    exit_code = EXIT_USAGE


class NotFoundError(QmdError):
    """No such index, collection or document."""

    code = "not_found"
    exit_code = EXIT_NOT_FOUND


class MissingDocumentError(NotFoundError):
    """No document has the name; an unindexed file may have it, and the paths `similar` resemble it."""

    def __init__(self, message: str, hint: str | None = None, similar: Sequence[str] = ()) -> None:
        super().__init__(message, hint)
        self.similar = similar


class ModelError(QmdError):
    """A model file or its runtime is missing, damaged or unusable."""

    code = "model_unavailable"
    exit_code = EXIT_MODEL


class BusyError(QmdError):
    """Another process uses the index."""

    code = "busy"
    exit_code = EXIT_BUSY


class AlreadyEmbeddingError(BusyError):
    """Another process is embedding the documents of the index."""


class BusyModelError(BusyError):
    """Another process works on the files of a model."""


class GrammarError(QmdError):
    """The grammar of a language is missing or unusable, so its declarations cannot be found."""

    code = "grammar"


class DeadlineError(QmdError):
    """A server stopped a request because it took too long."""

    code = "deadline"


class StoreError(QmdError):
    """The index file is damaged, not writable, or its disk is full."""

    code = "store"


class UnknownOriginError(StoreError):
    """The index of a project came with its folder or contains objects that qmd did not create."""

    code = "strange_index"

    def __init__(self, path: Path) -> None:
        hint = "build one from your files, which sets this one aside: qmd index"
        super().__init__(f"index '{path}' came with its folder and was not made here", hint)
        self.path = path


class ConfigError(QmdError):
    """`index.yml` cannot be read or contains something qmd does not understand."""

    code = "config"


def nearest_name(name: str, known: Iterable[str], least: float = 0.6) -> str | None:
    """Return the known name most similar to `name`, for a hint; None if none is near.

    Letter case, `-` and `_` make no difference. `least` is the required similarity, in [0, 1].
    """
    from difflib import get_close_matches

    folded = {_fold(one): one for one in known}
    near = get_close_matches(_fold(name), folded, n=1, cutoff=least)
    return folded[near[0]] if near else None


def collection_not_found(name: str, known: Sequence[str]) -> NotFoundError:
    """Return the error for an unknown collection; its hint names the nearest."""
    near = nearest_name(name, known)
    if near is not None:
        hint = f"did you mean '{near}'? see: qmd collection list"
    elif known:
        hint = f"known: {', '.join(known)}; see: qmd collection list"
    else:
        hint = "add one: qmd index ~/notes"
    return NotFoundError(f"Collection not found: {name}", hint)


def refuse_unknown(names: Iterable[str], known: Iterable[str]) -> None:
    """Check that every name is a known collection.

    Raises:
        NotFoundError: A name is unknown; the hint names the nearest.
    """
    known = [*known]
    for name in names:
        if name not in known:
            raise collection_not_found(name, known)


def _fold(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "")


UnindexableReason = Literal["binary", "too_large", "unreadable", "no_prose", "failed", "slow", "crash"]


class UnindexableFileError(QmdError):
    """A file that is in the collection but cannot be indexed; the rest of the collection can.

    Attributes:
        code: The reason: `binary`, `too_large`, `unreadable`, `no_prose`; `failed` (a parser raised), `slow` (it took
            too long), `crash` (it ended its process).
    """

    code: str

    def __init__(self, message: str, reason: UnindexableReason, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.code = reason
