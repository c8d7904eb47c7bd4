"""`Scope` → a condition on `documents`, so that every search applies it before its cut.

Front matter is compared by `facts`, a list of each document's values. Conditions that neither this list nor LanceDB can
compare are evaluated beforehand and become a list of ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import msgspec

from qmd.conditions import Condition, folded
from qmd.plugins.lance.tables import Tables, both, is_in, literal
from qmd.records import MetadataValue, Scope
from qmd.store.filters import ScopeWriter

UNFOLDED = (
    "[\u00b5\u00df\u0149\u017f\u01f0\u0345\u0390\u03b0\u03c2\u03d0-\u03f5\u0587\u13f8-\u13fd\u1c80-\u1c88"
    "\u1e96-\u1fff\uab70-\uabbf\ufb00-\ufb17]"
)
"""Lower-case letters that case folding changes, such as ß, and their neighbours: LanceDB only knows lower case."""


def facts_of(metadata: Mapping[str, MetadataValue]) -> list[str]:
    """Return a document's front matter, each value as a key, a mark of its type and the value.

    A tag comes with every tag that contains it, so that `work` finds `work/strategy`.
    """
    facts: dict[str, None] = {}
    for key, value in metadata.items():
        for one in value if isinstance(value, list | tuple) else (value,):
            facts[_fact(key, one)] = None
            if key in ("tag", "tags"):
                parts = folded(one).lstrip("#").split("/")
                facts |= {_tag_fact("/".join(parts[: n + 1])): None for n in range(len(parts))}
    return list(facts)


def scope_condition(tables: Tables, scope: Scope) -> str:
    return both(*LanceScope(tables).scope(scope))


class LanceScope(ScopeWriter):
    """Conditions in LanceDB's syntax."""

    def __init__(self, tables: Tables) -> None:
        super().__init__()
        self._tables = tables

    def value(self, value: object) -> str:
        return literal(value)

    def begins(self, column: str, text: str) -> str:
        return f"starts_with({column}, {literal(text)})"

    def contains(self, column: str, text: str) -> str:
        return f"contains({column}, {literal(text)})"

    def contains_folded(self, column: str, text: str) -> str:
        lower = f"lower({column})"
        others = self._look_up(column, self._matches(lower, UNFOLDED), lambda found: text in found.casefold())
        return f"({self.contains(lower, text)} OR {others})"

    def matches(self, column: str, mask: str) -> str:
        parts = re.findall(r"\[\^?\]?[^\]]*\]|.", mask, re.DOTALL)
        made = [one if len(one) > 1 else {"*": ".*", "?": "."}.get(one, re.escape(one)) for one in parts]
        return self._matches(column, f"(?s)^{''.join(made)}$")

    def tagged(self, tag: str) -> str:
        return _has_fact([_tag_fact(tag)])

    def metadata_clause(self, condition: Condition) -> str:
        if condition.operator == "eq" and condition.case_insensitive and isinstance(condition.value, str):
            return _has_fact([_fact(next(condition.fields()), condition.value)])
        return self._look_up("metadata", "true", lambda one: condition.holds(msgspec.json.decode(one)))

    def _matches(self, text: str, pattern: str) -> str:
        return f"regexp_like({text}, {literal(pattern)})"

    def _look_up(self, column: str, where: str, holds: Callable[[str], bool]) -> str:
        rows = self._tables.select("documents", ("id", column), both(*self.parts, where))
        return is_in("id", [row["id"] for row in rows if holds(row[column])])


def _has_fact(facts: Iterable[str]) -> str:
    return f"array_has_any(facts, [{', '.join(map(literal, facts))}])"


def _fact(key: str, value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{key}\nn{float(value)!r}"
    return f"{key}\nt{folded(value)}"


def _tag_fact(tag: str) -> str:
    return f"\n{tag}"
