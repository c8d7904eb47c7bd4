"""Conditions on front matter: one rule for all engines, in the JSON grammar of tobi/qmd.

`{"operator": "and", "operands": […]}`, `or`, `{"operator": "not", "operand": …}`, and conditions such as `{"field":
"status", "operator": "eq", "value": "draft"}`. A value is compared with those of its own type, text letter by letter
unless `caseInsensitive`. Any element of a list will do, and text counts as the number that it spells.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, convert, json

from qmd.errors import UsageError

MAX_CONDITIONS = 256
Scalar = str | bool | int | float

_DATE = r"\d{4}-(?:0[1-9]|1[0-2])(?:-(?:0[1-9]|[12]\d|3[01]))?(?!\d)"
_TYPES: Mapping[type, str] = {bool: "boolean", int: "number", float: "number"}
_TESTS: Mapping[str, Callable[..., bool]] = {
    "gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le,
    "contains": operator.contains, "prefix": str.startswith, "suffix": str.endswith,
}  # fmt: skip
ScalarSet = Annotated[tuple[Scalar, ...], Meta(min_length=1, max_length=64)]
_ORDERED = str | int | float
_VALUES: Mapping[str, Any] = {
    "and": None, "or": None, "not": None, "eq": Scalar, "ne": Scalar, "gt": _ORDERED, "gte": _ORDERED, "lt": _ORDERED,
    "lte": _ORDERED, "contains": str, "prefix": str, "suffix": str, "in": ScalarSet, "nin": ScalarSet, "all": ScalarSet,
    "type": Literal["string", "number", "boolean", "date"], "exists": bool,
}  # fmt: skip
"""Operator → the type of its value."""


class Condition(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"):
    """A group of conditions, the negation of one, or a condition on one field."""

    operator: str
    field: str = ""
    value: Scalar | tuple[Scalar, ...] | None = None
    case_insensitive: bool = False
    operands: tuple[Condition, ...] = ()
    operand: Condition | None = None
    key: str = ""  # the first name of `field`

    def __post_init__(self) -> None:
        """Check the rules that the types of the fields do not express."""
        if self.operator not in _VALUES:
            raise ValueError(f"unknown operator '{self.operator}', expected one of {', '.join(_VALUES)}")
        takes = {"and": "operands", "or": "operands", "not": "operand"}.get(self.operator, "field")
        given = {"operands": self.operands, "operand": self.operand, "field": self.field or self.key}
        if [name for name, one in given.items() if one] != [takes]:
            raise ValueError(f"'{self.operator}' takes '{takes}'")
        try:
            convert(self.value, _VALUES[self.operator])
        except ValueError as exc:
            raise ValueError(f"value of '{self.operator}': {exc}") from exc

    def fields(self) -> Iterator[str]:
        """Yield the names of the fields in it."""
        yield from (name.lower() for name in (self.field, self.key) if name)
        for one in (*self.operands, *filter(None, (self.operand,))):
            yield from one.fields()

    def holds(self, metadata: Mapping[str, object]) -> bool:
        """Return whether front matter meets the condition."""
        if self.operands:
            return (all if self.operator == "and" else any)(one.holds(metadata) for one in self.operands)
        if self.operand is not None:
            return not self.operand.holds(metadata)
        found = values_of(metadata, (self.field or self.key).lower())
        return bool(found) is self.value if self.operator == "exists" else self._is_met(found)

    def _is_met(self, found: Sequence[object]) -> bool:
        wanted: set[object] = {*self.value} if isinstance(self.value, tuple) else {self.value}
        kind = self.value if self.operator == "type" else _TYPES.get(type(next(iter(wanted))), "string")
        typed: set[object] = {own for one in found if (own := _as(kind, one)) is not None}
        if self.case_insensitive:
            typed, wanted = {folded(own) for own in typed}, {folded(one) for one in wanted}
        if self.operator in _TESTS:
            return any(_TESTS[self.operator](own, one) for own in typed for one in wanted)
        if self.operator == "all":
            return wanted <= typed
        # A field without a value of the type is not different either.
        return bool(typed) and (self.operator == "type" or typed.isdisjoint(wanted) is (self.operator in ("ne", "nin")))


@lru_cache(16)
def read_condition(text: str) -> Condition:
    """Decode a condition from JSON.

    Raises:
        UsageError: It breaks the rules of the grammar; the message names the place.
    """
    # Their number limits the depth of nesting, too.
    if text.count("{") > MAX_CONDITIONS:
        raise UsageError(f"the filter has more than {MAX_CONDITIONS} conditions", "ask for less at once")
    try:
        return json.decode(text, type=Condition)
    except (ValueError, RecursionError) as exc:
        hint = 'for example {"field": "status", "operator": "eq", "value": "draft"}, or as it is typed: status:draft'
        raise UsageError(f"the filter cannot be read: {exc}", hint) from exc


def type_of(value: object) -> str:
    """Return `date` for text that begins with an ISO date or month, else `text`, `number` or `boolean`."""
    return "date" if isinstance(value, str) and re.match(_DATE, value) else _TYPES.get(type(value), "text")


def folded(value: object) -> str:
    """Return a front-matter value as case-folded text."""
    return ("true" if value else "false") if isinstance(value, bool) else str(value).casefold()


def number_in(value: object) -> float | None:
    """Return a value as a number, also one written as text; None if it is not a finite number."""
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def values_of(metadata: Mapping[str, object], name: str) -> Sequence[object]:
    """Return the values of a field; empty if there is no such field."""
    found = metadata.get(name, ())
    return found if isinstance(found, list | tuple) else (found,)


def _as(kind: object, value: object) -> Scalar | None:
    """Return a value as one of a type; None if it has another."""
    if kind == "number":
        return number_in(value)
    if kind == "boolean" and isinstance(value, str):
        return {"true": True, "false": False}.get(value)
    is_one = isinstance(value, str) if kind == "string" else type_of(value) == kind
    return value if is_one and isinstance(value, Scalar) else None
