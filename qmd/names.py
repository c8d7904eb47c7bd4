r"""Names of files: as text, whatever bytes they are made of; what they call a note; and addresses that hold them.

A file system takes any bytes; the index, YAML, JSON and every protocol take text. A `Path` here is what the system
knows, with Python's surrogates for bytes that are no UTF-8; a `str` is text, in which such a byte is written `\xE9`.
Practically all names are the same in both. Everything that turns one into the other calls this module.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

# Patterns are kept as text: `re` compiles one when a name first asks, and most names ask for none.
_BYTE = "[\udc80-\udcff]"
_HALF_CHARACTER = "[\ud800-\udfff]"
_ESCAPE = r"\\x([89A-F][0-9A-F]|5C)"
_AMBIGUOUS = r"\\(?=x(?:[89A-F][0-9A-F]|5C))"
"""A backslash of the name itself that would be taken for the beginning of an escape."""


def to_text(name: str | Path) -> str:
    """A name as the system gives it, as text; `to_disk` turns it back."""
    name = str(name)
    if "\\" in name and os.sep != "\\":
        name = re.sub(_AMBIGUOUS, r"\\x5C", name)
    return escape_bytes(name)


def to_disk(name: str) -> str:
    """The system's name of what `to_text` calls `name`."""
    # Where a backslash parts folders no name needs escapes: there names are text already.
    if "\\" not in name or os.sep == "\\":
        return name
    return re.sub(_ESCAPE, lambda match: "\\" if match[1] == "5C" else chr(0xDC00 + int(match[1], 16)), name)


def escape_bytes(text: str, start: str = "\\x") -> str:
    """`text` with its undecodable bytes written out behind `start`, and nothing else changed."""
    return text if text.isascii() else re.sub(_BYTE, lambda match: f"{start}{ord(match[0]) - 0xDC00:02X}", text)


def storable(text: str) -> str:
    """`text` from outside, in which nothing is left that no index or protocol can hold."""
    return text if text.isascii() else re.sub(_HALF_CHARACTER, "\ufffd", escape_bytes(text))


def typed_text(argument: str) -> str:
    """An argument of the command line as text; one with undecodable bytes is a name as the system has it."""
    is_text = argument.isascii() or re.search(_HALF_CHARACTER, argument) is None
    return argument if is_text else storable(to_text(argument))


def typed_path(path: str | Path) -> Path:
    """The file that a person means: a name as a shell completes it wins over what it may stand for."""
    literal = str(path)
    disk = to_disk(literal)
    return Path(literal if disk == literal or os.path.lexists(literal) else disk)


# --- what a name calls a note ---------------------------------------------------------------------

MAX_ALIASES = 50
MAX_ALIAS_CHARACTERS = 200
_WORD = r"[^\W\d_]{3}|[^\W\d_A-Za-z]"
_DATE = r"(?<!\d)(?:19|20)\d\d[-_.]?(?:0[1-9]|1[0-2]|[Ww]\d\d|Q[1-4])(?!\d)|(?<!\d)(?:19|20)\d{6}(?!\d)"
_CODE = r"(?=[^\W_]*\d)[0-9a-fA-F]{8,}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_JOURNAL = r"(\d{4})_(0[1-9]|1[0-2])_([0-3]\d)"
_NUMBER = r"[0-9]{10,17}(?=[ _-])"
"""The moment at which a note was begun, by which a Zettelkasten links to it."""
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
OF_THE_FOLDER = frozenset({"index", "_index", "readme", "__init__"})
_OF_EVERYBODY = frozenset({"notes", "note", "untitled", "📝 notes"})
"""File names and headings that say what a text is and not what it is about."""


def file_name(path: str) -> str:
    """The name of a file without its folder and its ending: what a wiki link calls the note."""
    name = path.rpartition("/")[2]
    stem, dot, _ = name.rpartition(".")
    return stem if dot and stem else name


def suffix_of(path: str) -> str:
    """The ending of a file's name with its dot, lower case; empty without one."""
    _, dot, ending = path.rpartition(".")
    return f".{ending.lower()}" if dot and ending.isascii() and ending.isalnum() else ""


def page_path(path: str) -> str:
    """A path with the namespaces in a file's name as folders: `pages/a/b?.md` for Logseq's `pages/a___b%3F.md`."""
    if "___" not in path and "%" not in path:
        return path
    from urllib.parse import unquote

    return unquote(path.replace("___", "/"))


def page_aliases(path: str) -> Iterator[str]:
    """What programs call the note of a file beside its name: a page without its namespace, a journal, a number."""
    name = file_name(path)
    if (page := page_path(name)) != name:
        yield from (page, page.rpartition("/")[2])
    elif (number := re.match(_NUMBER, name)) is not None:
        yield number[0]
    elif (day := re.fullmatch(_JOURNAL, name)) is not None:
        k = int(day[3])
        ending = "th" if k in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(k % 10, "th")
        yield f"{_MONTHS[int(day[2]) - 1]} {k}{ending}, {day[1]}"


def is_descriptive(name: str) -> bool:
    """Whether a file's name says what the note is about: it holds a word or a date, and is no code or common word."""
    if name.casefold() in OF_THE_FOLDER or is_common(name) or re.fullmatch(_CODE, name):
        return False
    return re.search(_WORD, name) is not None or re.search(_DATE, name) is not None


def aliases_of(metadata: Mapping[str, object]) -> tuple[str, ...]:
    """The other names that a note's front matter gives it (`aliases`, `alias`), each once."""
    found: dict[str, None] = {}
    for key in ("aliases", "alias"):
        value = metadata.get(key)
        for alias in value if isinstance(value, tuple) else () if value is None else (str(value),):
            found[" ".join(alias.split())[:MAX_ALIAS_CHARACTERS]] = None
    found.pop("", None)
    return tuple(found)[:MAX_ALIASES]


def is_common(name: str) -> bool:
    """Whether a name or a heading is one that anything may have (`Notes`)."""
    return name.casefold() in _OF_EVERYBODY


# --- addresses ------------------------------------------------------------------------------------

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
