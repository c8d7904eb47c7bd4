"""Front matter: YAML between `---` lines or TOML between `+++` lines at the start of a text, or page properties.

The code here reads the plain forms of nearly all notes (`key: value`, `key: [a, b]`, `- item`), since a full YAML
parser costs milliseconds per file; the parser reads all other forms.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from qmd.bounded_yaml import MAX_CHARACTERS, UnreadableYamlError, load_yaml
from qmd.ingest.markdown import FrontMatter
from qmd.records import MetadataValue

_PLACEHOLDER = r"\{\{[^{}\n]{1,100}\}\}|<%[^%\n]{1,100}%>"
_YAML_OPEN = re.compile(r"---[ \t]*\r?\n")
_YAML_CLOSE = re.compile(r"\n(?:---|\.\.\.)[ \t]*\r?(?:\n|\Z)")
_TOML_BLOCK = r"(?ms)\+\+\+[ \t]*\r?\n(.*?)^\+\+\+[ \t]*\r?(?:\n|\Z)"
_PROPERTY = r"(?:- |  )?([^\W\d_][\w./-]*)::(?=\s|\Z)(.{0,2000})"
_PROPERTY_PART = r"(?:\[\[[^\[\]]*\]\]|[^,])+"
_REFERENCE = r"#?\[\[([^\[\]]*)\]\]\Z|#([^\s#]+)\Z"
_LISTS = frozenset({"alias", "aliases", "tag", "tags"})
_NEEDS_QUOTES = r"found character (\S+) that cannot start any token\Z"
_ITEM_KEY = re.compile(r"[^\s:\"'\[{][^:]*:(?:\s|\Z)")
_HAS_KEY = re.compile(r"^[^\s:#][^:\n]*:(?:[ \t\r]|$)", re.M)
_ITEM_LINE = re.compile(r"[ \t]*-[ \t]+(.*)\Z")
_FLOW_ITEM = re.compile(r"""\s*(?:"([^"\\]*)"|'((?:[^']|'')*)'|([^\s,"'\[\]{}#&*!|>%@`][^,\[\]{}"]*))\s*(?:,|\Z)""")
_QUOTED_LIST = msgspec.json.Decoder(tuple[str, ...])
_NO_KEY_START = frozenset(" \t:-?[]{}\"'&*!|>%@`,#")
_INTEGER = re.compile(r"[-+]?\d{1,18}\Z")
_FLOAT = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?\Z")
_TOML_KEY_END = r"[\n=,{}\[\]]"
_MAX_KEY_PARTS = 64
"""The TOML parser takes quadratic time in the parts of a dotted key: 16 s for 32,000."""

_MAX_FIELDS = 1_000
_MAX_REASON_CHARACTERS = 120
_MAX_KEY_CHARACTERS = 500
_MAX_INTEGER_BITS = 3_300
"""About a thousand digits; Python refuses to print integers beyond 4,300."""

_CONSTANTS: Mapping[str, MetadataValue | None] = {
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    "null": None, "Null": None, "NULL": None, "~": None, "": None,
}  # fmt: skip


class _NotSimpleError(ValueError):
    """Block that needs a real parser."""


class _UnreadableError(ValueError):
    """Malformed or too large block: a reason of one line, and the line of the file if it is known."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.line = line


def read_front_matter(text: str) -> FrontMatter:
    """Return the front matter: keys lower-case, lists as tuples of strings, dates in ISO form, nested keys dotted.

    A malformed block yields no metadata and a warning, but is no prose; a block without any key is prose.
    """
    if text.startswith("---"):
        opening = _YAML_OPEN.match(text)
        # From the line feed of the opening line on, so that an empty block closes too.
        match = _YAML_CLOSE.search(text, opening.end() - 1) if opening is not None else None
        if opening is None or match is None:
            return FrontMatter()
        block = text[opening.end() : match.start()]
        if block.strip() and not _HAS_KEY.search(block):
            return FrontMatter()
        parse = _parse_yaml
    elif text.startswith("+++"):
        match = re.match(_TOML_BLOCK, text)
        if match is None:
            return FrontMatter()
        block, parse = match[1], _parse_toml
    else:
        return FrontMatter(_page_properties(text))
    try:
        if len(block) > MAX_CHARACTERS:
            raise _UnreadableError(f"it has {len(block):,} characters, more than the limit of {MAX_CHARACTERS:,}")
        metadata = parse(block)
        if len(metadata) > _MAX_FIELDS:
            raise _UnreadableError(f"it has {len(metadata):,} fields, more than the limit of {_MAX_FIELDS:,}")
        return FrontMatter(metadata, match.end())
    except _UnreadableError as exc:
        # A template, which a program completes later, needs no repair.
        if re.search(_PLACEHOLDER, block[:MAX_CHARACTERS]):
            return FrontMatter({}, match.end())
        return FrontMatter({}, match.end(), (f"front matter cannot be read: {exc}",), exc.line)


def _page_properties(text: str) -> dict[str, MetadataValue]:
    """Return the page properties of Logseq at the start of a text, a line `key:: value` each; they stay prose."""
    found: dict[str, MetadataValue] = {}
    for line in text[:MAX_CHARACTERS].split("\n", _MAX_FIELDS):
        match = re.fullmatch(_PROPERTY, line)
        if match is None:
            break
        key, raw = match[1].lower(), match[2].strip()
        parts = [part.strip() for part in re.findall(_PROPERTY_PART, raw) if part.strip()]
        names = [re.sub(_REFERENCE, r"\1\2", part) for part in parts]
        if key in _LISTS or (len(parts) > 1 and all(re.match(_REFERENCE, part) for part in parts)):
            found[key] = tuple(names)
        elif raw:
            found[key] = raw = names[0] if len(parts) == 1 else raw
            with suppress(_NotSimpleError):
                value = _scalar(raw)
                found[key] = raw if value is None else value
    return found


def _parse_yaml(block: str) -> dict[str, MetadataValue]:
    with suppress(_NotSimpleError):
        return _parse_simple(block)
    try:
        loaded = load_yaml(block, allow_duplicate_keys=True)
    except UnreadableYamlError as exc:
        problem = " ".join(str(getattr(exc.__cause__, "problem", None) or exc).split())[:_MAX_REASON_CHARACTERS]
        mark = getattr(exc.__cause__, "problem_mark", None)
        line = mark.line + 2 if mark is not None else None
        raise _UnreadableError(re.sub(_NEEDS_QUOTES, r"\1 needs quotes", problem), line) from exc
    if not isinstance(loaded, dict):
        raise _UnreadableError("expected a list of keys and values")
    return _flatten(loaded)


def _parse_toml(block: str) -> dict[str, MetadataValue]:
    import tomllib

    if any(piece.count(".") > _MAX_KEY_PARTS for piece in re.split(_TOML_KEY_END, block)):
        raise _UnreadableError(f"a key has more than {_MAX_KEY_PARTS} parts")
    try:
        return _flatten(tomllib.loads(block.replace("\r\n", "\n")))
    # The parser also raises the errors of its parts: for an integer of 5,000 digits, for nesting.
    except (ValueError, RecursionError, ArithmeticError, LookupError) as exc:
        raise _UnreadableError(" ".join(str(exc).split())[:_MAX_REASON_CHARACTERS]) from exc


def _flatten(loaded: Mapping[Any, object], prefix: str = "") -> dict[str, MetadataValue]:
    flat: dict[str, MetadataValue] = {}
    for key, value in loaded.items():
        # tobi/qmd expects the fields for filters under this key.
        name = f"{prefix}{key}".lower().removeprefix("qmd.metadata.")
        if len(name) > _MAX_KEY_CHARACTERS:
            raise _UnreadableError(f"a key has more than {_MAX_KEY_CHARACTERS} characters")
        if isinstance(value, Mapping):
            if prefix.count(".") < 4:
                flat.update(_flatten(value, name + "."))
        elif value is not None:
            flat[name] = _typed(value)
    return flat


def _typed(value: object) -> MetadataValue:
    if isinstance(value, int) and value.bit_length() > _MAX_INTEGER_BITS:
        raise _UnreadableError("a number has more than a thousand digits")
    if isinstance(value, float):
        return _finite(value, str(value))
    if isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (list, tuple, set)):
        return tuple(_as_string(item) for item in value if item is not None)
    return _as_string(value)


def _finite(value: float, text: str) -> float | str:
    """Return `value`, or its text if JSON has no number for it."""
    return value if math.isfinite(value) else text


def _as_string(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (list, dict)):
        import json

        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _parse_simple(block: str) -> dict[str, MetadataValue]:
    """Return the metadata of a block in the plain forms.

    Raises:
        _NotSimpleError: If a line has another form.
    """
    metadata: dict[str, MetadataValue | list[str]] = {}
    open_key: str | None = None
    items: list[str] = []
    for line in block.splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] == "#":
            continue
        item = _ITEM_LINE.match(line) if open_key is not None else None
        if open_key is not None and item is not None:
            value = _scalar(item[1].strip(), is_item=True)
            if value is not None:
                items.append(_as_string(value))
                metadata[open_key] = items
            continue
        key, raw = _key_and_rest(line)
        open_key, items = (None if raw else key), []
        if raw:
            value = _flow_list(raw) if raw[0] == "[" else _scalar(raw)
            if value is not None:
                metadata[key] = value
    return {key: tuple(value) if isinstance(value, list) else value for key, value in metadata.items()}


def _key_and_rest(line: str) -> tuple[str, str]:
    # The parser reads keys with a tab after the colon, quoted keys and indented (nested) lines.
    name, colon, raw = (line.rstrip() + " ").partition(": ")
    if not (colon and name) or name[0] in _NO_KEY_START or "\t" in name:
        raise _NotSimpleError
    return name.rstrip().lower(), raw.strip()


def _scalar(raw: str, *, is_item: bool = False) -> MetadataValue | None:
    """Return the typed value of a scalar on one line; None for null."""
    if raw[:1] in ("'", '"'):
        return _quoted(raw)
    if (raw and raw[0] in "[]{}&*!|>%@`") or raw[:2] in ("- ", "? ") or (is_item and _ITEM_KEY.match(raw)):
        raise _NotSimpleError
    if " #" in raw:
        raw = raw[: raw.index(" #")].rstrip()
    if raw in _CONSTANTS:
        return _CONSTANTS[raw]
    if raw[0] in "-+.0123456789":
        if _INTEGER.match(raw):
            # A leading zero is an identifier or a zip code more often than a number.
            return raw if len(raw) > 1 and raw[0] == "0" else int(raw)
        if _FLOAT.match(raw):
            return _finite(float(raw), raw)
    return raw


def _quoted(raw: str) -> str:
    mark, inner = raw[0], raw[1:-1]
    if len(raw) < 2 or raw[-1] != mark:
        raise _NotSimpleError
    plain = inner if mark == '"' else inner.replace("''", "")
    if mark in plain or (mark == '"' and "\\" in raw):
        raise _NotSimpleError
    return inner if mark == '"' else inner.replace("''", "'")


def _flow_list(raw: str) -> tuple[str, ...]:
    if raw[-1] != "]":
        raise _NotSimpleError
    if raw[1:2] == '"' and "\\" not in raw:
        # A fully quoted list is JSON, whose parser is in C.
        with suppress(ValueError):
            return _QUOTED_LIST.decode(raw)
    inner = raw[1:-1].strip()
    items: list[str] = []
    position = 0
    while position < len(inner):
        match = _FLOW_ITEM.match(inner, position)
        if match is None or match.end() == position:
            raise _NotSimpleError
        double, single, plain = match.groups()
        items.append(single.replace("''", "'") if single is not None else (double or plain or "").strip())
        position = match.end()
    return tuple(items)
