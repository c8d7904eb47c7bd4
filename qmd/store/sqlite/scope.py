"""`Scope` → an SQL condition on `documents`, so that every search applies it before its cut."""

from __future__ import annotations

from msgspec import Struct

from qmd.records import MetadataFilter, Scope

_SQL_OPERATORS = {"=": "=", "!=": "=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}

# The note's own day or month, else the day on which the file was written, where its reader is.
_DATE = "coalesce(documents.date, date(documents.modified_at, 'localtime'))"
_FIRST_DAY = f"substr({_DATE} || '-01', 1, 10)"
_LAST_DAY = f"substr({_DATE} || '-31', 1, 10)"

_AFTER_ANY_DAY = "~"
"""Behind the start of a date it stands for the end of what that names: `2024-02~` is later than any day of it."""


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


def dated_condition(first: str, last: str, *, by_file_time: bool) -> tuple[str, list[object]]:
    """An SQL condition for notes of their own whose day, or whole month, lies between two days (ISO).

    With `by_file_time` for those alone that have no date, by the day on which the file was written.
    """
    if by_file_time:
        day = "date(documents.modified_at, 'localtime')"
        return f"(documents.date IS NULL AND {day} BETWEEN ? AND ?)", [first, last]
    is_whole = "(length(documents.date) = 10 OR documents.date || '-28' <= ?)"
    return f"(substr(documents.date || '-01', 1, 10) BETWEEN ? AND ? AND {is_whole})", [first, last, last]


def _filter_condition(condition: MetadataFilter) -> tuple[str, list[object]]:
    field = condition.field.lower()
    values: list[object]
    match field:
        case "after":
            sql, values = f"{_LAST_DAY} >= ?", [condition.value]
        case "before":
            sql, values = f"{_FIRST_DAY} < ?", [condition.value]
        case "on":
            first, _, last = condition.value.partition("/")
            # A month that is said without a day lies within its month and not within any day of it.
            sql = f"({_FIRST_DAY} >= ? AND substr({_DATE} || '-28', 1, 10) <= ?)"
            values = [first, (last or first) + _AFTER_ANY_DAY]
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
            tag = condition.value.strip("#/").casefold()
            sql, values = f"({_tag_condition('tag')} OR {_tag_condition('tags')})", [tag, f"{tag}/"] * 2
        case _:
            sql, values = _value_condition(field, condition.op, condition.value)
    # NULL (no date at all) must count as "does not hold" under NOT as well.
    return (f"NOT coalesce({sql}, 0)" if condition.op == "!=" else f"coalesce({sql}, 0)"), values


def _tag_condition(key: str) -> str:
    """A tag, written with `#` or without, or one nested in it: `work` has `work/strategy` and not `workshop`."""
    tag = "ltrim(casefold(m.value), '#')"
    return (
        f"EXISTS (SELECT 1 FROM json_each(documents.metadata, '$.{key}') AS m WHERE {tag} = ? OR instr({tag}, ?) = 1)"
    )


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
