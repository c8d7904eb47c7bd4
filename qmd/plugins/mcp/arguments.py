"""Arguments of tools: one table defines both the published JSON schema and the checks, so they cannot drift apart.

Unknown names are errors, because ignoring an argument would answer another question. Clients put JSON into strings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from msgspec import Struct

from qmd.errors import UsageError, nearest_name
from qmd.records import SubQuery

MAX_SEARCHES = 10
MAX_LIMIT = 1000
MAX_ECHO, MOST_IGNORED = 40, 5
"""Characters of a wrong name in an error, and the number of ignored names that are reported."""

ALIASES: Mapping[str, str] = {
    "query": "q question text search", "searches": "queries subqueries", "seen": "exclude skip",
    "file": "docid id uri path filename filepath note", "fromLine": "line startline start offset",
    "pattern": "patterns files file paths path glob docids ids uris", "maxLines": "lines numlines linecount",
    "limit": "maxresults n k topk count numresults", "minScore": "threshold", "collections": "collection",
    "maxTokens": "tokens budget tokenbudget", "filter": "filters where metadata", "sort": "sortby order orderby",
    "text": "content body markdown", "tags": "tag", "to": "collection folder",
}  # fmt: skip
"""Argument → names that models guess for it, in lower case without `_` and `-`; schemas do not have them."""

ToolArgumentKind = Literal["string", "names", "integer", "number", "boolean", "strings", "searches", "filter"]


class ToolArgument(Struct, frozen=True):
    """Argument of a tool. `minimum` and `maximum` are inclusive."""

    name: str
    kind: ToolArgumentKind
    description: str
    """Empty if the name is clear."""
    required: bool = False
    default: str | int | float | bool | None = None
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    """Allowed strings; empty allows all."""


def input_schema(arguments: Sequence[ToolArgument]) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {argument.name: _argument_schema(argument) for argument in arguments},
        "additionalProperties": False,
    }
    required = [argument.name for argument in arguments if argument.required]
    if required:
        schema["required"] = required
    return schema


def _argument_schema(argument: ToolArgument) -> dict[str, Any]:
    described = {"description": argument.description} if argument.description else {}
    if argument.kind == "strings":
        return {"type": "array", "items": {"type": "string"}} | described
    if argument.kind == "searches":
        item = {
            "type": "object",
            "properties": {"type": {"type": "string", "enum": ["lex", "vec", "hyde"]}, "query": {"type": "string"}},
            "required": ["type", "query"],
            "additionalProperties": False,
        }
        return {"type": "array", "items": item, "maxItems": MAX_SEARCHES} | described
    schema: dict[str, Any] = {"type": "string" if argument.kind in ("filter", "names") else argument.kind} | described
    if argument.choices:
        schema["enum"] = list(argument.choices)
    if argument.default:
        schema["default"] = argument.default
    if argument.minimum is not None:
        schema["minimum"] = argument.minimum
    if argument.maximum is not None:
        schema["maximum"] = argument.maximum
    return schema


def check_arguments(
    arguments: Sequence[ToolArgument], given: Mapping[str, object], ignored: list[str] | None = None
) -> dict[str, Any]:
    """Return the value of every argument, with defaults; null counts as absent.

    Raises:
        UsageError: An argument is missing, unknown, of the wrong type, or given twice with different values. With
            `ignored`, a line about each of the first unknown arguments is added there instead.
    """
    names = [argument.name for argument in arguments]
    known = {_folded(other): one for one in arguments for other in (*ALIASES.get(one.name, "").split(), one.name)}
    values: dict[str, object] = {}
    for name, value in given.items():
        _check_string("name of an argument", name)
        if argument := known.get(_folded(name)):
            checked = _check_value(argument, _unpack(argument.kind, value))
            if checked is not None and values.setdefault(argument.name, checked) != checked:
                raise UsageError(f"{argument.name}: given under two names, with different values")
        elif ignored is None:
            raise UsageError(f"unknown argument {_unknown(name, names)}")
        elif len(ignored) < MOST_IGNORED:
            ignored.append(f"ignored unknown field {_unknown(name, names)}")
    if missing := [argument.name for argument in arguments if argument.required and argument.name not in values]:
        raise UsageError(f"{missing[0]}: required")
    return {argument.name: values.get(argument.name, argument.default) for argument in arguments}


def _folded(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _unknown(name: str, names: Sequence[str]) -> str:
    name = name[:MAX_ECHO]
    nearest = nearest_name(name, names)
    every = f"expected one of: {', '.join(names)}" if names else "it takes none"
    return f"'{name}', " + (f"did you mean '{nearest}'?" if nearest else every)


def _check_value(argument: ToolArgument, value: object) -> object:
    if value is None:
        return None
    if argument.kind == "names" and isinstance(value, list):
        # In brackets, a name keeps its comma.
        value = ",".join(f"[[{one}]]" if "," in one else one for one in _check_strings(argument.name, value))
    if argument.kind == "strings":
        return _check_strings(argument.name, value)
    if argument.kind == "searches":
        return _check_searches(argument.name, value)
    if argument.kind in ("string", "names", "filter"):
        is_json = argument.kind == "filter" and isinstance(value, dict)
        text = json.dumps(value) if is_json else _check_string(argument.name, value)
        if argument.choices and text not in argument.choices:
            raise UsageError(f"{argument.name}: expected {' or '.join(argument.choices)}, not '{text[:MAX_ECHO]}'")
        return text
    if argument.kind == "boolean":
        if not isinstance(value, bool):
            raise UsageError(f"{argument.name}: expected true or false, not {_kind_of(value)}")
        return value
    return _check_number(argument, value)


def _unpack(kind: ToolArgumentKind, value: object) -> object:
    """Return the value of JSON in a string, unless the kind is text; other strings stay, also `[[2025]]`, a note."""
    if not isinstance(value, str) or kind in ("string", "names") or value.startswith("[["):
        return value
    if value.strip() in ("", "null"):
        return None
    with suppress(ValueError, RecursionError):
        read = json.loads(value.lower() if kind == "boolean" else value)
        return read if kind != "filter" and (kind != "strings" or isinstance(read, list)) else value
    return value


def _check_number(argument: ToolArgument, value: object) -> int | float:
    whole = argument.kind == "integer"
    expected = "a whole number" if whole else "a number"
    if isinstance(value, bool) or not isinstance(value, (int, float)) or (whole and value != value // 1):
        raise UsageError(f"{argument.name}: expected {expected}, not {_kind_of(value)}")
    if argument.minimum is not None and not value >= argument.minimum:
        raise UsageError(f"{argument.name}: expected at least {argument.minimum:g}, not {str(value)[:MAX_ECHO]}")
    if argument.maximum is not None and not value <= argument.maximum:
        raise UsageError(f"{argument.name}: expected at most {argument.maximum:g}, not {str(value)[:MAX_ECHO]}")
    return int(value) if whole else float(value)


def _check_string(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name}: expected a string, not {_kind_of(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as exc:
        raise UsageError(f"{name}: not valid Unicode") from exc
    return value


def _check_strings(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        raise UsageError(f"{name}: expected a list of strings, not {_kind_of(value)}")
    if len(value) > MAX_LIMIT:
        raise UsageError(f"{name}: expected at most {MAX_LIMIT} strings, not {len(value)}")
    return tuple(_check_string(f"{name}.{index}", item) for index, item in enumerate(value))


def _check_searches(name: str, value: object) -> tuple[SubQuery, ...]:
    value = [value] if isinstance(value, dict) else value
    if not isinstance(value, list):
        raise UsageError(f"{name}: expected a list of {{type, query}}, not {_kind_of(value)}")
    if len(value) > MAX_SEARCHES:
        raise UsageError(f"{name}: expected at most {MAX_SEARCHES} sub-queries, not {len(value)}")
    return tuple(_check_search(f"{name}.{index}", item, index + 1) for index, item in enumerate(value))


def _check_search(name: str, value: object, line: int) -> SubQuery:
    value = _unpack("searches", value)
    if not isinstance(value, dict):
        raise UsageError(f"{name}: expected {{type, query}}, not {_kind_of(value)}")
    for key in value:
        _check_string(f"{name}, name of a field", key)
        if key not in ("type", "query"):
            raise UsageError(f"{name}: unknown field '{key}', expected 'type' and 'query'")
    kind = value.get("type")
    if kind not in ("lex", "vec", "hyde"):
        raise UsageError(f"{name}.type: expected 'lex', 'vec' or 'hyde', not {kind!r}")
    text = _check_string(f"{name}.query", value.get("query"))
    if not text.strip():
        raise UsageError(f"{name}.query: must not be empty")
    return SubQuery(kind=kind, text=text, line=line)


def _kind_of(value: object) -> str:
    names = {bool: "a boolean", str: "a string", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return "null" if value is None else names.get(type(value), type(value).__name__)
