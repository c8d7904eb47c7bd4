"""No field of a record becomes text for a reader without the functions that keep it on its line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

import qmd
from qmd import records, status
from qmd.app import records as app_records

PACKAGES = ("mcp", "pack", "install")
SAFE = {"one_line", "message_line", "address_line", "error_line", "visible", "number_lines", "quote", "json_text"}
SAFE |= {"_head", "_context_line"}
"""Functions that make text safe, and those that are checked themselves."""
_MADE = (
    "date day docid hash modified_at updated_at cursor next fts stage source kind column relation label key who state"
)
MADE_HERE = {*f"{_MADE} started_at by program work fingerprint mark warnings problems reason message".split()}
"""Fields with values that qmd makes itself; warnings and errors are made as one line each."""
OWN = {"tool", "argument", "client", "entry", "entry.client", "here", "change", "path", "policy.key", "request.url"}
OWN |= {"signal.Signals(number)"}
"""Records of qmd's own tables, of the system and of the user's settings, whose fields are called as those of notes."""
RAW = {"file_of", "_lines", "_new_contexts"}
"""Functions that return exact values for JSON: the text of a call is foreign."""
EXACT = RAW | {"answer_object", "_whole_object", "resource_text", "_row", "_complete_paths", "difference", "find_item"}
"""Functions that fill JSON, raw resources and passages, or show a user's own settings."""
COMPARED = {"_read_notes", "_select", "_grow", "_grow_one", "_folded"}
"""Functions that join texts to search in them or to compare them."""
NO_TEXT = {"len", "count_tokens", "isinstance", "sum", "any", "all", "range", "find_occurrences", "round", "count"}
"""Functions whose results contain no text of their arguments."""


def foreign_fields() -> set[str]:
    """Return the names of fields and properties of records that contain text or paths."""
    found = set[str]()
    for module in (records, app_records, status):
        for record in vars(module).values():
            if isinstance(record, type) and issubclass(record, Struct):
                types = dict(record.__annotations__)
                made = {name: one.fget for name, one in vars(record).items() if isinstance(one, property)}
                types |= {name: getter.__annotations__["return"] for name, getter in made.items() if getter}
                found |= {name for name, kind in types.items() if re.search(r"\b(str|Path|MetadataValue)\b", str(kind))}
    return found - MADE_HERE


FOREIGN = foreign_fields()


def is_safe(node: ast.AST) -> bool:
    """Return whether an expression is a call of a function that makes text safe, also for each of several texts."""
    if not isinstance(node, ast.Call):
        return False
    called = getattr(node.func, "id", getattr(node.func, "attr", ""))
    return called in SAFE or (called == "map" and getattr(node.args[0], "id", "") in SAFE)


def outside_of_safe_calls(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that are in no argument of such a call."""
    if not is_safe(node):
        yield node
        for one in ast.iter_child_nodes(node):
            yield from outside_of_safe_calls(one)


class Lint:
    """Search of one function: names that get foreign text, and places where it becomes a part of other text."""

    def __init__(self, function: ast.AST) -> None:
        self.function = function
        self.tainted: set[str] = set()
        size = -1
        while size != len(self.tainted):
            size = len(self.tainted)
            for target, value in self._assigned():
                if self.is_foreign(value):
                    self.tainted |= {one.id for one in ast.walk(target) if isinstance(one, ast.Name)}

    def _assigned(self) -> Iterator[tuple[ast.AST, ast.AST]]:
        for node in ast.walk(self.function):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    match target, node.value:
                        case ast.Tuple(elts=names), ast.Tuple(elts=values) if len(names) == len(values):
                            yield from zip(names, values, strict=True)
                        case _:
                            yield target, node.value
            elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
                yield node.target, node.value
            elif isinstance(node, ast.For | ast.comprehension):
                yield node.target, node.iter

    def is_foreign(self, node: ast.AST) -> bool:
        """Return whether the value of an expression may contain a foreign field as it is."""
        match node:
            case ast.Attribute(value=value, attr=attr):
                return attr in FOREIGN and ast.unparse(value) not in OWN
            case ast.Name(id=name):
                return name in self.tainted
            case ast.Call(func=func, args=args):
                name = getattr(func, "id", getattr(func, "attr", ""))
                first = getattr(args[0], "id", "") if name == "map" and args else ""
                if is_safe(node) or name in NO_TEXT:
                    return False
                method = isinstance(func, ast.Attribute) and self.is_foreign(func.value)
                return name in RAW or first in RAW or method or any(map(self.is_foreign, args))
            case ast.Compare() | ast.Lambda():
                return False
            case ast.IfExp(body=body, orelse=orelse):
                return self.is_foreign(body) or self.is_foreign(orelse)
            case ast.Subscript(value=value) | ast.FormattedValue(value=value):
                return self.is_foreign(value)
            case ast.DictComp(value=value):
                return self.is_foreign(value)
            case ast.comprehension():
                return False
            case _:
                return any(map(self.is_foreign, ast.iter_child_nodes(node)))

    def findings(self) -> Iterator[str]:
        for node in outside_of_safe_calls(self.function):
            parts: list[ast.expr] = []
            if isinstance(node, ast.FormattedValue):
                parts = [node.value]
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
                parts = [one for one in (node.left, node.right) if not isinstance(one, ast.List | ast.Tuple)]
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("join", "format"):
                parts = [*node.args, *(one.value for one in node.keywords)]
            yield from (f"{one.lineno}: {ast.unparse(one)}" for one in parts if self.is_foreign(one))


def findings_in(source: str) -> list[str]:
    """Return each place of a module where a foreign field becomes a part of a text as it is."""
    functions = [one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    inner = {id(one) for outer in functions for one in ast.walk(outer) if one is not outer}
    chosen = [one for one in functions if id(one) not in inner and one.name not in EXACT | COMPARED]
    return sorted({finding for one in chosen for finding in Lint(one).findings()})


def test_every_field_of_a_record_is_one_line_in_answers() -> None:
    folder = Path(qmd.__file__).parent / "plugins"
    found = {
        f"{path.relative_to(folder)}:{finding}"
        for package in PACKAGES
        for path in sorted((folder / package).glob("*.py"))
        for finding in findings_in(path.read_text(encoding="utf-8"))
    }
    assert sorted(found) == []


def test_the_check_sees_a_field_on_every_way_into_a_text() -> None:
    assert {
        "title",
        "path",
        "name",
        "heading_trail",
        "context",
        "text",
        "body",
        "collection",
        "pattern",
        "tags",
    } < FOREIGN
    forgeries = """
        return f"{hit.document.title}"
        return "Context: " + hit.context
        return ", ".join(document.tags)
        return "{}".format(hit.context)
        return "%s" % collection.pattern
        words = hit.body.strip(); return f"{words}"
        return "".join(f"- {one}" for one in passage.heading_trail)
        return f"{file_of(document)}"
        lines = []; lines += [hit.body]; return "\\n".join(lines)
        return f"{one_line(hit.context)} {(name := document.path)}"
    """
    for line in filter(None, map(str.strip, forgeries.splitlines())):
        assert findings_in(f"def show(hit, document): {line}"), line
    for line in (
        'return f"{one_line(hit.body)}"',
        'return "".join(map(one_line, document.tags))',
        'f"{len(hit.body)}"',
    ):
        assert not findings_in(f"def show(hit, document): {line}"), line
