"""Records as JSON and back, for the warm process and the commands that ask it.

Both ends run one version of the program, so a record travels as the values of its fields, in order, under the name of
its class: `{"SubQuery": ["lex", "rust", 1]}`. Lists are tuples of records, and there is no other object in the JSON.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from qmd import records
from qmd.app.searching import SearchRequest

_MAPPING = "mapping"


class Failure(Struct, frozen=True):
    """A `QmdError`: the name of its class in `qmd.errors`, and its two lines."""

    kind: str
    message: str
    hint: str | None


def to_json(record: object) -> bytes:
    """A record, or plain text, as one line.

    Raises:
        TypeError: It holds something that is neither a record nor plain JSON.
    """
    return json.dumps(record, default=_to_object, separators=(",", ":")).encode() + b"\n"


def from_json(line: bytes) -> object:
    """What `to_json` made the line from.

    Raises:
        ValueError: It is no such line.
    """
    try:
        return json.loads(line, object_hook=_from_object)
    except (LookupError, TypeError, RecursionError) as exc:
        raise ValueError(f"not a message of this version: {exc}") from exc


def _to_object(record: object) -> dict[str, list[object]]:
    names = getattr(type(record), "__match_args__", None)
    if names is None:
        raise TypeError(f"a {type(record).__name__} has no JSON form")
    values = (getattr(record, name) for name in names)
    # Their keys are the user's own, and must not pass for the names of records.
    return {
        type(record).__name__: [
            {_MAPPING: list(value.items())} if isinstance(value, Mapping) else value for value in values
        ]
    }


def _from_object(found: dict[str, Any]) -> object:
    ((name, values),) = found.items()
    if name == _MAPPING:
        return {key: _as_tuple(value) for key, value in values}
    return _kinds()[name](*map(_as_tuple, values))


def _as_tuple(value: object) -> object:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value


@functools.cache
def _kinds() -> Mapping[str, Callable[..., object]]:
    known = {name: kind for name, kind in vars(records).items() if hasattr(kind, "__match_args__")}
    return {**known, "SearchRequest": SearchRequest, "Failure": Failure}
