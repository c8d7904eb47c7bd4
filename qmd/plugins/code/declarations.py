"""Source text → its tree of declarations, each with the comments and decorators before it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from qmd.chunking.split import Declaration
from qmd.errors import GrammarError
from qmd.plugins.code.languages import CPP, Language, language_of

if TYPE_CHECKING:
    from tree_sitter import Node, Tree

MAX_CODE_BYTES = 500_000
"""Longer sources are generated or bundled: no one searches for their declarations."""

_MAX_MEAN_LINE_BYTES = 250
"""Longer lines on average mean minified or encoded text, over which the parser may take most of a minute."""

_SMALL_BYTES = 20_000
"""Up to this size any text is parsed quickly, whatever its lines are."""

_MAX_NESTING = 40
"""Depth of nested blocks that are searched; real code has less, and each level takes a stack frame."""

_LONG_CALLABLE_BYTES = 2_000
"""Length from which a function may be cut at its inner declarations: about 60 lines."""

_MAX_DEPTH = 6
"""Levels of nested declarations, as many as headings have."""

_MAX_NAME_CHARS = 80
_FUNCTION_VALUES = frozenset({"arrow_function", "function_expression", "generator_function", "class"})
_JS_VARIABLES = frozenset({"lexical_declaration", "variable_declaration"})
_JS_FIELDS = frozenset({"public_field_definition", "field_definition"})
_BODIED_SPECIFIERS = frozenset({"struct_specifier", "union_specifier", "enum_specifier", "class_specifier"})
_WRAPPED = frozenset({"decorated_definition", "template_declaration", "expression_statement"})
_CPP_LINE = re.compile(rb"^[ \t]*(?:namespace|class|template|using|public:)\b", re.M)
_LINE_REST = re.compile(rb"[ \t]*[;,)]*[ \t]*(?:(?://|#)[^\n]*|/\*[^\n]*\*/[ \t]*)?\r?\n?")


class _Source(Struct, frozen=True):
    """Bytes and language of a source during the walk."""

    raw: bytes
    language: Language


def find_declarations(path: str, text: str) -> tuple[Declaration, ...]:
    """Return the outermost declarations of a source file, ascending and apart, with their inner ones.

    The language follows from the suffix of `path`. Empty for prose, for sources without declarations and for those that
    are too long to be written by hand. Broken sources give their readable declarations.

    Raises:
        GrammarError: The language is known, but its grammar cannot be loaded or fails.
    """
    language = language_of(path)
    if language is None or not text:
        return ()
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) > MAX_CODE_BYTES or (len(raw) > _SMALL_BYTES and len(raw) > _MAX_MEAN_LINE_BYTES * raw.count(b"\n")):
        return ()
    if path.lower().endswith(".h") and _CPP_LINE.search(raw):
        language = CPP
    source = _Source(raw, language)
    tree = _parse(source)  # named, so that it outlives the nodes that point into it
    found = _collect(source, tree.root_node, len(raw), 1, 0)
    return found if text.isascii() else _in_code_points(raw, found)


def _parse(source: _Source) -> Tree:
    language = source.language
    try:
        from importlib import import_module

        import tree_sitter

        grammar = tree_sitter.Language(getattr(import_module(language.module), language.function)())
        return tree_sitter.Parser(grammar).parse(source.raw)
    except ImportError as exc:
        from qmd.installation import install_command

        remedy = install_command("code") if language.is_extra else f"pip install {language.package}"
        message = f"{language.name} files are cut as plain text: package '{language.package}' is not installed"
        raise GrammarError(message, remedy) from exc
    except (AttributeError, OSError, TypeError, ValueError) as exc:
        # A grammar built for another version of the parser; an error in a source raises nothing here.
        message = f"{language.name} files are cut as plain text: package '{language.package}' does not work: {exc}"
        raise GrammarError(message, f"pip install --upgrade tree-sitter {language.package}") from exc


def _collect(source: _Source, container: Node, limit: int, depth: int, nesting: int) -> tuple[Declaration, ...]:
    """Return the declarations directly in `container`, which ends at byte `limit` at the latest."""
    if nesting > _MAX_NESTING:
        return ()
    found: list[Declaration] = []
    lead: tuple[int, int] | None = None
    before = container.start_byte
    for node in container.named_children:
        if node.type in source.language.leading:
            # A comment after other code on its line belongs to that code.
            if source.raw.find(b"\n", before, node.start_byte) < 0 and _starts_inside_line(source.raw, node.start_byte):
                lead = None
            elif lead is not None and _is_adjacent(source.raw, lead[1], node.start_byte):
                lead = (lead[0], node.end_byte)
            else:
                lead = (node.start_byte, node.end_byte)
            before = node.end_byte
            continue
        start = node.start_byte
        if lead is not None and _is_adjacent(source.raw, lead[1], start):
            start = lead[0]
        lead, before = None, node.end_byte
        declared = _read_declaration(source, node)
        if declared is not None:
            name, inner = declared
            start, end = _extend_to_lines(source.raw, start, node.end_byte, limit)
            if found and start < found[-1].end:
                start = min(found[-1].end, node.start_byte)
            found.append(Declaration(name, start, end, _children(source, inner, end, depth, nesting)))
        elif node.type in source.language.bodies:
            found.extend(_collect(source, node, limit, depth, nesting + 1))
    return tuple(found)


def _children(source: _Source, node: Node, limit: int, depth: int, nesting: int) -> tuple[Declaration, ...]:
    language = source.language
    is_short_callable = node.type in language.callables and node.end_byte - node.start_byte < _LONG_CALLABLE_BYTES
    if depth >= _MAX_DEPTH or is_short_callable:
        return ()
    bodies = [child for child in node.named_children if child.type in language.bodies]
    return tuple(found for body in bodies for found in _collect(source, body, limit, depth + 1, nesting + 1))


def _read_declaration(source: _Source, node: Node) -> tuple[str, Node] | None:
    """Return (name, the node to search) of a declaration, wrapped or not; None for any other statement."""
    language = source.language
    if node.type in language.wrappers:
        inner = [child for child in node.named_children if child.type in language.kinds or child.type in _WRAPPED]
        return next(filter(None, (_read_declaration(source, child) for child in inner)), None)
    keyword = language.kinds.get(node.type)
    if keyword is None:
        return None
    if node.type in _JS_VARIABLES or node.type == "assignment_expression" or node.type in _JS_FIELDS:
        return _function_value(node)
    if node.type in _BODIED_SPECIFIERS and node.child_by_field_name("body") is None:
        return None  # only names a type that is declared elsewhere
    name = _declared_name(node)
    return " ".join(filter(None, (keyword, name))) or "default", node


def _function_value(node: Node) -> tuple[str, Node] | None:
    """Return name and value of a variable, field or property set to a function or class: `Store.prototype.open`."""
    holder = node
    if node.type in _JS_VARIABLES:
        declarators = [child for child in node.named_children if child.type == "variable_declarator"]
        if len(declarators) != 1:
            return None
        holder = declarators[0]
    left = next(filter(None, map(holder.child_by_field_name, ("name", "property", "left"))), None)
    value = next(filter(None, map(holder.child_by_field_name, ("value", "right"))), None)
    if left is None or value is None or value.type not in _FUNCTION_VALUES:
        return None
    keyword = _text(node.children[0]) + " " if node.type in _JS_VARIABLES else ""
    return keyword + _text(left), value


def _declared_name(node: Node) -> str:
    if node.type == "impl_item":
        trait, implementor = node.child_by_field_name("trait"), node.child_by_field_name("type")
        return " for ".join(_text(part) for part in (trait, implementor) if part is not None)
    if node.type == "type_declaration":
        specs = [child.child_by_field_name("name") for child in node.named_children]
        return ", ".join(_text(name) for name in specs if name is not None)[:_MAX_NAME_CHARS]
    name = node.child_by_field_name("name")
    receiver = node.child_by_field_name("receiver")
    owner = node.child_by_field_name("object")
    if name is not None and receiver is not None:
        owner_type = re.sub(r"\[.*", "", _text(receiver).strip("()").split(" ")[-1].lstrip("*"))
        return f"{owner_type}.{_text(name)}"  # `Store` of Go's `(s *Store[T])`
    if name is not None:
        return f"{_text(owner)}.{_text(name)}" if owner is not None else _declarator_name(name)
    return _declarator_name(node.child_by_field_name("declarator"))


def _declarator_name(declarator: Node | None) -> str:
    """Return the innermost name of a declarator: C has them in pointers and parameter lists."""
    while declarator is not None and (inner := declarator.child_by_field_name("declarator")) is not None:
        declarator = inner
    return _text(declarator) if declarator is not None else ""


def _text(node: Node) -> str:
    raw = node.text or b""
    text = " ".join(raw.decode("utf-8", "replace").split())
    return text if len(text) <= _MAX_NAME_CHARS else text[: _MAX_NAME_CHARS - 1] + "…"


def _is_adjacent(raw: bytes, end: int, start: int) -> bool:
    """Return whether no blank line and no code is between two places; some grammars count a line break as comment."""
    between = raw[end:start]
    return not between.strip() and between.count(b"\n") + raw.endswith(b"\n", end - 1, end) <= 1


def _starts_inside_line(raw: bytes, start: int) -> bool:
    return bool(raw[raw.rfind(b"\n", 0, start) + 1 : start].strip())


def _extend_to_lines(raw: bytes, start: int, end: int, limit: int) -> tuple[int, int]:
    """Extend the span to its indentation and, if nothing else follows on its last line, the rest of that line."""
    if not _starts_inside_line(raw, start):
        start = raw.rfind(b"\n", 0, start) + 1
    rest = _LINE_REST.match(raw, end, limit)
    if rest is not None and (rest.end() == limit or raw.endswith(b"\n", end, rest.end())):
        end = rest.end()
    return start, end


def _in_code_points(raw: bytes, declarations: Sequence[Declaration]) -> tuple[Declaration, ...]:
    """Return the same declarations with offsets counted in characters."""
    marks = sorted({0} | {offset for one in _flatten(declarations) for offset in (one.start, one.end)})
    counts = {0: 0}
    total = 0
    for i in range(1, len(marks)):
        total += len(raw[marks[i - 1] : marks[i]].decode("utf-8", "surrogatepass"))
        counts[marks[i]] = total

    def convert(one: Declaration) -> Declaration:
        return Declaration(one.name, counts[one.start], counts[one.end], tuple(map(convert, one.children)))

    return tuple(map(convert, declarations))


def _flatten(declarations: Iterable[Declaration]) -> Iterator[Declaration]:
    for declaration in declarations:
        yield declaration
        yield from _flatten(declaration.children)
