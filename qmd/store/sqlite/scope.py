"""`Scope` → an SQL condition on `documents`, so that every search applies it before its cut."""

from __future__ import annotations

from msgspec import Struct

from qmd.records import Scope
from qmd.store.filters import ScopeWriter


class Condition(Struct, frozen=True):
    """An SQL condition on `documents` with its bindings; `sql` is empty when every document is in scope."""

    sql: str
    bindings: tuple[object, ...]


def scope_condition(scope: Scope) -> Condition:
    """Translate a scope."""
    writer = SqlScope()
    return Condition(" AND ".join(writer.scope(scope)), tuple(writer.bindings))


class SqlScope(ScopeWriter):
    """Conditions in SQLite's SQL; `bindings` are the values of what was written, in its order."""

    def __init__(self) -> None:
        super().__init__()
        self.bindings: list[object] = []

    def value(self, value: object) -> str:
        self.bindings.append(value)
        return "?"

    def begins(self, column: str, text: str) -> str:
        return f"substr({column}, 1, {len(text)}) = {self.value(text)}"

    def contains(self, column: str, text: str) -> str:
        return f"instr({column}, {self.value(text)}) > 0"

    def contains_folded(self, column: str, text: str) -> str:
        return self.contains(f"casefold({column})", text)

    def matches(self, column: str, mask: str) -> str:
        return f"{column} GLOB {self.value(mask)}"

    def tagged(self, tag: str) -> str:
        found = "ltrim(casefold(m.value), '#')"
        tests = [
            f"EXISTS (SELECT 1 FROM json_each(metadata, '$.{key}') AS m"
            f" WHERE {found} = {self.value(tag)} OR {self.begins(found, f'{tag}/')})"
            for key in ("tag", "tags")
        ]
        return f"({' OR '.join(tests)})"

    def says(self, key: str, op: str, text: str, number: float | None) -> str:
        path = '$."' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
        found = f"SELECT 1 FROM json_each(metadata, {self.value(path)}) AS m"
        test = f"casefold(iif(m.type IN ('true', 'false'), m.type, m.value)) {op} {self.value(text)}"
        if number is not None:
            test = f"iif(m.type NOT IN ('integer', 'real'), {test}, m.value {op} {self.value(number)})"
        return f"EXISTS ({found} WHERE {test})"
