"""YAML from untrusted files, read within bounds of size, depth and expansion, so that no file can hang the program.

Front matter and `index.yml` may come from someone else's folders. A few hundred bytes of aliases can expand to more
values than fit in memory, and deeply nested brackets keep the parser busy for seconds.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from qmd.file_names import escape_bytes

MAX_CHARACTERS = 256 * 1024
"""The parser takes up to four seconds for a megabyte of plain lines; handwritten files stay far below this."""

_MAX_WEIGHT = 640 * 1024
_NODE_WEIGHT = 80
"""Each value weighs this plus its characters, once per alias that refers to it: 8,000 values take most of a second."""

_MAX_DEPTH = 64
_MAX_BRACKET_DEPTH = 500
"""For every token the scanner looks at every open bracket before it makes a value: seconds for 3,000."""

_MAX_DIGITS = 1_000
"""Python cannot print integers beyond 4,300 digits and only fails long after reading them."""

_BRACKET = r"[\[\]{}]"
_HALF_CHARACTER = "[\ud800-\udfff]"


class UnreadableYamlError(ValueError):
    """The text is not YAML or exceeds the bounds; the message is one line."""


def load_yaml(text: str, *, allow_duplicate_keys: bool = False) -> object:
    """Parse the single document in `text` into plain values; None for an empty one.

    Raises:
        UnreadableYamlError: If it is malformed or beyond the bounds.
    """
    if len(text) > MAX_CHARACTERS:
        raise UnreadableYamlError(f"it has {len(text):,} characters, more than the limit of {MAX_CHARACTERS:,}")
    if _bracket_depth(text) > _MAX_BRACKET_DEPTH:
        raise UnreadableYamlError(f"values are nested more than {_MAX_DEPTH} deep")
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.allow_duplicate_keys = allow_duplicate_keys
    yaml.Composer = _bounded_composer()
    try:
        loaded: object = yaml.load(text)
    # On unexpected input the parser fails with arbitrary errors; none of them may end the program.
    except Exception as exc:
        raise UnreadableYamlError(" ".join(str(exc).split()) or type(exc).__name__) from exc
    return loaded


def _bracket_depth(text: str) -> int:
    """Return the nesting depth of brackets, including those in quotes and comments."""
    depth = deepest = 0
    for match in re.finditer(_BRACKET, text):
        depth = depth + 1 if match[0] in "[{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    return deepest


@cache
def _bounded_composer() -> Any:
    """Return ruamel's composer (events to nodes) with a running weight; local as the parser loads lazily."""
    from ruamel.yaml.composer import Composer
    from ruamel.yaml.events import AliasEvent, ScalarEvent

    class BoundedComposer(Composer):
        def __init__(self, loader: Any = None) -> None:
            super().__init__(loader)
            self.warn_double_anchors = False
            self._weight = 0
            self._nesting = 0
            self._weights: dict[str, int] = {}
            """Weight of each anchor's value; an anchor whose value is still being read has none."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.parser.peek_event()
            if isinstance(event, AliasEvent):
                if event.anchor in self.anchors and event.anchor not in self._weights:
                    raise UnreadableYamlError(f"the value of '&{event.anchor}' contains itself")
                self._add(self._weights.get(event.anchor, 0), "its aliases stand for too many values")
                return super().compose_node(parent, index)
            if isinstance(event, ScalarEvent):
                event.value = _whole_characters(event.value)
            before = self._weight
            self._weights.pop(event.anchor, None)
            self._add(_NODE_WEIGHT + len(getattr(event, "value", "")), "it contains too many values")
            self._nesting += 1
            if self._nesting > _MAX_DEPTH:
                raise UnreadableYamlError(f"values are nested more than {_MAX_DEPTH} deep")
            node = super().compose_node(parent, index)
            self._nesting -= 1
            if event.anchor is not None:
                self._weights[event.anchor] = self._weight - before
            if str(node.tag).endswith(":int") and len(node.value) > _MAX_DIGITS:
                raise UnreadableYamlError(f"a number has more than {_MAX_DIGITS:,} digits")
            return node

        def _add(self, weight: int, complaint: str) -> None:
            self._weight += weight
            if self._weight > _MAX_WEIGHT:
                raise UnreadableYamlError(complaint)

    return BoundedComposer


def _whole_characters(value: str) -> str:
    r"""Join escaped surrogate pairs in `value` (`\ud83d\ude00`, as JSON writes them).

    Undecodable bytes of file names, which earlier versions wrote as `\udce9`, take the form of `qmd.file_names`.

    Raises:
        UnreadableYamlError: If half a pair or a NUL is left: no file name, index or terminal accepts them.
    """
    if re.search(_HALF_CHARACTER, value) is not None:
        value = escape_bytes(value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass"))
        if re.search(_HALF_CHARACTER, value) is not None:
            raise UnreadableYamlError("an escape means half a character")
    if "\0" in value:
        raise UnreadableYamlError("a value contains a NUL character")
    return value
