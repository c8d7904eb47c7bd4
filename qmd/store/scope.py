"""`Scope` → an SQL condition on `documents`, so that every search applies it before its cut."""

from __future__ import annotations

from msgspec import Struct

from qmd.records import MetadataFilter, Scope

_SQL_OPERATORS = {"=": "=", "!=": "=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}

# Front matter may date a note; the file's time is the fallback.
_DATE = "coalesce(json_extract(documents.metadata, '$.date'), documents.modified_at)"


class Condition(Struct, frozen=True):
    """An SQL condition on `documents` with its bindings; `sql` is empty when every document is in scope."""

    sql: str
    bindings: tuple[object, ...]


def scope_condition(scope: Scope) -> Condition:
    """Translate a scope; nothing of it is left to be filtered afterwards."""
    parts: list[str] = []
    bindings: list[object] = []
    if scope.collections is not None:
        marks = ",".join("?" * len(scope.collections))
        parts.append(f"documents.collection IN ({marks})")
        bindings += scope.collections
    if scope.path_prefix:
        parts.append("substr(documents.path, 1, ?) = ?")
        bindings += [len(scope.path_prefix), scope.path_prefix]
    for condition in scope.filters:
        sql, values = _filter_condition(condition)
        parts.append(sql)
        bindings += values
    return Condition(" AND ".join(parts), tuple(bindings))


def _filter_condition(condition: MetadataFilter) -> tuple[str, list[object]]:
    field = condition.field.lower()
    values: list[object]
    match field:
        case "after":
            sql, values = f"{_DATE} >= ?", [condition.value]
        case "before":
            sql, values = f"{_DATE} < ?", [condition.value]
        case "modified" | "modified_at":
            sql, values = f"documents.modified_at {_SQL_OPERATORS[condition.op]} ?", [condition.value]
        case "title":
            sql, values = "instr(casefold(documents.title), ?) > 0", [condition.value.casefold()]
        case "path" if any(mark in condition.value for mark in "*?["):
            sql, values = "documents.path GLOB ?", [condition.value]
        case "path":
            sql, values = "instr(documents.path, ?) > 0", [condition.value]
        case "collection":
            sql, values = "documents.collection = ?", [condition.value]
        case "tag" | "tags":
            tag, one = _value_condition("tag", "=", condition.value.removeprefix("#"))
            tags, other = _value_condition("tags", "=", condition.value.removeprefix("#"))
            sql, values = f"({tag} OR {tags})", [*one, *other]
        case _:
            sql, values = _value_condition(field, condition.op, condition.value)
    # NULL (no date at all) must count as "does not hold" under NOT as well.
    return (f"NOT coalesce({sql}, 0)" if condition.op == "!=" else f"coalesce({sql}, 0)"), values


def _value_condition(key: str, op: str, value: str) -> tuple[str, list[object]]:
    """A front-matter key: true if its value, or any element of its list, compares."""
    operator = _SQL_OPERATORS[op]
    path = '$."' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
    tests = [f"casefold(CASE m.type WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' ELSE m.value END) {operator} ?"]
    values: list[object] = [path, value.casefold()]
    number = _number(value)
    if number is not None:
        # As text "10" sorts before "9", so numbers are compared as numbers, and only with numbers.
        tests = [f"(m.type IN ('integer', 'real') AND m.value {operator} ?)"]
        tests.append(f"(m.type NOT IN ('integer', 'real') AND casefold(m.value) {operator} ?)")
        values = [path, number, value.casefold()]
    return f"EXISTS (SELECT 1 FROM json_each(documents.metadata, ?) AS m WHERE {' OR '.join(tests)})", values


def _number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None
