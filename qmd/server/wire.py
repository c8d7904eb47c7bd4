"""Records as JSON and back, without pickle: what the warm worker and its clients exchange."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar, Union, cast, get_args, get_origin

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]
T = TypeVar("T")


class WireError(ValueError):
    """A message does not have the shape its record asks for."""


def to_wire(value: object) -> JsonValue:
    """JSON form of a record: fields by name, tuples and sets as lists, paths as strings.

    Raises:
        WireError: If a value has no JSON form.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_wire(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): to_wire(item) for key, item in value.items()}
    if isinstance(value, (frozenset, set)):
        return [to_wire(item) for item in sorted(value)]
    if isinstance(value, Sequence):
        return [to_wire(item) for item in value]
    raise WireError(f"{type(value).__name__} has no JSON form")


def from_wire(kind: type[T], value: JsonValue) -> T:
    """The record of type `kind` that `to_wire` made `value` from.

    Unknown fields are an error rather than dropped: both ends run the same version, so one means a mix-up.

    Raises:
        WireError: If `value` does not fit `kind`.
    """
    return cast("T", _decode(kind, value))


@functools.cache
def _field_types(kind: type) -> dict[str, object]:
    return typing.get_type_hints(kind)


def _decode(kind: object, value: JsonValue) -> object:
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _decode_record(kind, value)
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _decode_union(get_args(kind), value)
    if origin is typing.Literal:
        if value not in get_args(kind):
            raise WireError(f"{value!r} is none of {get_args(kind)}")
        return value
    if origin is not None:
        return _decode_container(origin, get_args(kind), value)
    return _decode_plain(kind, value)


def _decode_plain(kind: object, value: JsonValue) -> object:
    if kind in (object, typing.Any):
        return value
    if kind is type(None) and value is None:
        return None
    if kind is Path and isinstance(value, str):
        return Path(value)
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if kind in (str, int, bool) and type(value) is kind:
        return value
    raise WireError(f"expected {getattr(kind, '__name__', kind)}, not {type(value).__name__}")


def _decode_record(kind: type, value: JsonValue) -> object:
    if not isinstance(value, dict):
        raise WireError(f"expected the fields of {kind.__name__}, not {type(value).__name__}")
    hints = _field_types(kind)
    fields = {field.name for field in dataclasses.fields(kind)}
    unknown = value.keys() - fields
    if unknown:
        raise WireError(f"{kind.__name__} has no field {sorted(unknown)[0]!r}")
    try:
        return kind(**{name: _decode(hints[name], item) for name, item in value.items()})
    except TypeError as exc:
        raise WireError(f"incomplete {kind.__name__}: {exc}") from exc


def _decode_union(members: tuple[object, ...], value: JsonValue) -> object:
    # Exact matches first, so that 1 stays an int in `int | float` and True a bool in `int | bool`.
    exact = [member for member in members if isinstance(member, type) and type(value) is member]
    for member in [*exact, *members]:
        try:
            return _decode(member, value)
        except WireError:
            continue
    raise WireError(f"{type(value).__name__} fits no member of {members}")


def _decode_container(origin: object, args: tuple[object, ...], value: JsonValue) -> object:
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise WireError(f"expected a mapping, not {type(value).__name__}")
        return {key: _decode(args[1], item) for key, item in value.items()}
    if not isinstance(value, list):
        raise WireError(f"expected a list, not {type(value).__name__}")
    if origin is tuple and not (len(args) == 2 and args[1] is Ellipsis):
        if len(args) != len(value):
            raise WireError(f"expected {len(args)} items, not {len(value)}")
        return tuple(_decode(arg, item) for arg, item in zip(args, value, strict=True))
    items = [_decode(args[0], item) for item in value]
    if origin is frozenset:
        return frozenset(items)
    return items if origin is list else tuple(items)
