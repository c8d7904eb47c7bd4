"""What callers may ask: the arguments of every tool, their JSON schema, and their validation into records.

One table per tool feeds both the published schema and the checks, so the two cannot drift apart. Unknown names are
refused, because dropping them answers another question than the one asked (`collection` instead of `collections`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from qmd.app.records import DEFAULT_MAX_BYTES
from qmd.app.searching import SearchRequest
from qmd.errors import UsageError, nearest_name
from qmd.records import SubQuery
from qmd.retrieval.query import Mode

MAX_SEARCHES = 10
MAX_LIMIT = 1000
PASSAGE_CHARS = 300
"""Longest passage in an answer to a program, as in the original."""

ToolArgumentKind = Literal["string", "integer", "number", "boolean", "strings", "searches"]


class ToolArgument(Struct, frozen=True):
    """One argument of a tool. `minimum` and `maximum` are inclusive."""

    name: str
    kind: ToolArgumentKind
    description: str
    required: bool = False
    default: str | int | float | bool | None = None
    minimum: float | None = None
    maximum: float | None = None


QUERY_ARGUMENTS = (
    ToolArgument("query", "string", "Plain question or keywords. Give this or 'searches', not both."),
    ToolArgument(
        "searches",
        "searches",
        'Typed sub-queries, most important first: lex (keywords, "phrases", -exclusions), '
        "vec (a question in plain words), hyde (a made-up answer passage).",
    ),
    ToolArgument("limit", "integer", "Most results to return.", default=10, minimum=1, maximum=MAX_LIMIT),
    ToolArgument("minScore", "number", "Drop results below this score.", default=0, minimum=0, maximum=1),
    ToolArgument("candidateLimit", "integer", "Most candidates to rerank.", minimum=1, maximum=MAX_LIMIT),
    ToolArgument("collections", "strings", "Search only these collections (see the status tool)."),
    ToolArgument("intent", "string", "What the answer is needed for; helps with ambiguous words."),
    ToolArgument("sort", "string", "Order of the results: relevance, date (newest first) or -date."),
    ToolArgument("rerank", "boolean", "Rerank the best candidates with a model; false is faster.", default=True),
)
GET_ARGUMENTS = (
    ToolArgument(
        "file",
        "string",
        "Path, note name, [[Note#Heading]], qmd:// address or #docid; may end in :LINE or :LINE:COUNT.",
        True,
    ),
    ToolArgument("fromLine", "integer", "First line to return, from 1.", minimum=1),
    ToolArgument("maxLines", "integer", "Most lines to return.", minimum=1),
    ToolArgument("lineNumbers", "boolean", "Put 'N: ' before every line.", default=True),
)
MULTI_GET_ARGUMENTS = (
    ToolArgument(
        "pattern", "string", "Glob such as 'journals/2025-*.md', or paths and #docids joined by commas.", True
    ),
    ToolArgument("maxLines", "integer", "Most lines of each document.", minimum=1),
    ToolArgument("maxBytes", "integer", "Skip documents larger than this.", default=DEFAULT_MAX_BYTES, minimum=1),
    ToolArgument("lineNumbers", "boolean", "Put 'N: ' before every line.", default=True),
)
LINKS_ARGUMENTS = (ToolArgument("file", "string", "Name, path, qmd:// address or #docid of a note.", True),)
RELATED_ARGUMENTS = (
    *LINKS_ARGUMENTS,
    ToolArgument("limit", "integer", "Most notes to return.", default=10, minimum=1, maximum=MAX_LIMIT),
    ToolArgument("collections", "strings", "Only notes of these collections."),
)
# The tools of version 1, for clients that still call them.
LEGACY_ARGUMENTS = (
    ToolArgument("query", "string", "Query text.", True),
    ToolArgument("limit", "integer", "Most results to return.", default=10, minimum=1, maximum=MAX_LIMIT),
    ToolArgument("minScore", "number", "Drop results below this score.", default=0, minimum=0, maximum=1),
    ToolArgument("collection", "string", "Search only this collection."),
    ToolArgument("collections", "strings", "Search only these collections."),
)

_LEGACY_MODES: Mapping[str, Mode] = {"search": "lexical", "vector_search": "dense", "deep_search": "hybrid"}


def input_schema(arguments: Sequence[ToolArgument]) -> dict[str, Any]:
    """JSON schema of a tool's arguments."""
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
    if argument.kind == "strings":
        return {"type": "array", "items": {"type": "string"}, "description": argument.description}
    if argument.kind == "searches":
        item = {
            "type": "object",
            "properties": {"type": {"type": "string", "enum": ["lex", "vec", "hyde"]}, "query": {"type": "string"}},
            "required": ["type", "query"],
            "additionalProperties": False,
        }
        return {"type": "array", "items": item, "maxItems": MAX_SEARCHES, "description": argument.description}
    schema: dict[str, Any] = {"type": argument.kind, "description": argument.description}
    if argument.default is not None:
        schema["default"] = argument.default
    if argument.minimum is not None:
        schema["minimum"] = argument.minimum
    if argument.maximum is not None:
        schema["maximum"] = argument.maximum
    return schema


def check_arguments(arguments: Sequence[ToolArgument], given: Mapping[str, object]) -> dict[str, Any]:
    """The values of every argument, defaults filled in; null counts as absent.

    Raises:
        UsageError: Naming the first argument that is unknown, missing or of the wrong type.
    """
    names = [argument.name for argument in arguments]
    for name in given:
        _check_string("name of an argument", name)
        if name not in names:
            nearest = nearest_name(name, names)
            expected = f"did you mean '{nearest}'?" if nearest else f"expected one of: {', '.join(names)}"
            raise UsageError(f"unknown argument '{name}', {expected}")
    return {argument.name: _check_value(argument, given.get(argument.name)) for argument in arguments}


def _check_value(argument: ToolArgument, value: object) -> object:
    if value is None:
        if argument.required:
            raise UsageError(f"{argument.name}: required")
        return argument.default
    if argument.kind == "strings":
        return _check_strings(argument.name, value)
    if argument.kind == "searches":
        return _check_searches(argument.name, value)
    if argument.kind == "string":
        return _check_string(argument.name, value)
    if argument.kind == "boolean":
        if not isinstance(value, bool):
            raise UsageError(f"{argument.name}: expected true or false, not {_kind_of(value)}")
        return value
    return _check_number(argument, value)


def _check_number(argument: ToolArgument, value: object) -> int | float:
    whole = argument.kind == "integer"
    expected = "a whole number" if whole else "a number"
    if isinstance(value, bool) or not isinstance(value, (int, float)) or (whole and value != value // 1):
        raise UsageError(f"{argument.name}: expected {expected}, not {_kind_of(value)}")
    if argument.minimum is not None and not value >= argument.minimum:
        raise UsageError(f"{argument.name}: expected at least {argument.minimum:g}, not {value}")
    if argument.maximum is not None and not value <= argument.maximum:
        raise UsageError(f"{argument.name}: expected at most {argument.maximum:g}, not {value}")
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
    if not isinstance(value, list):
        raise UsageError(f"{name}: expected a list of strings, not {_kind_of(value)}")
    if len(value) > MAX_LIMIT:
        raise UsageError(f"{name}: expected at most {MAX_LIMIT} strings, not {len(value)}")
    return tuple(_check_string(f"{name}.{index}", item) for index, item in enumerate(value))


def _check_searches(name: str, value: object) -> tuple[SubQuery, ...]:
    if not isinstance(value, list):
        raise UsageError(f"{name}: expected a list of {{type, query}}, not {_kind_of(value)}")
    if len(value) > MAX_SEARCHES:
        raise UsageError(f"{name}: expected at most {MAX_SEARCHES} sub-queries, not {len(value)}")
    return tuple(_check_search(f"{name}.{index}", item, index + 1) for index, item in enumerate(value))


def _check_search(name: str, value: object, line: int) -> SubQuery:
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
    if isinstance(value, bool):
        return "a boolean"
    if value is None:
        return "null"
    names = {str: "a string", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)


def parse_query(given: Mapping[str, object]) -> SearchRequest:
    """The search that the arguments of `query` ask for.

    Raises:
        UsageError: For wrong arguments.
    """
    values = check_arguments(QUERY_ARGUMENTS, given)
    text, searches = values["query"], values["searches"]
    if text is None and not searches:
        raise UsageError("provide either 'query' (plain text) or 'searches' (typed sub-queries)")
    if text is not None and searches:
        raise UsageError("'query' and 'searches' are mutually exclusive; provide only one")
    return SearchRequest(
        text=text,
        searches=searches or (),
        limit=values["limit"],
        min_relevance=values["minScore"],
        candidate_limit=values["candidateLimit"],
        collections=values["collections"] or (),
        intent=values["intent"] or None,
        rerank=values["rerank"],
        sort=values["sort"],
        snippet_chars=PASSAGE_CHARS,
    )


def parse_legacy_query(tool: str, given: Mapping[str, object]) -> SearchRequest:
    """The search that a version 1 tool (`search`, `vector_search`, `deep_search`) asks for.

    Raises:
        UsageError: For wrong arguments.
    """
    values = check_arguments(LEGACY_ARGUMENTS, given)
    collections = values["collections"]
    if collections is None and values["collection"]:
        collections = (values["collection"],)
    return SearchRequest(
        text=values["query"],
        mode=_LEGACY_MODES[tool],
        limit=values["limit"],
        min_relevance=values["minScore"],
        collections=collections or (),
        snippet_chars=PASSAGE_CHARS,
    )
