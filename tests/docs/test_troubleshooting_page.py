"""docs/troubleshooting.md explains only messages that the program prints."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_HEADINGS = re.findall(r"^### (.*)$", (_ROOT / "docs" / "troubleshooting.md").read_text("utf-8"), re.MULTILINE)
_MESSAGES = [message for heading in _HEADINGS for message in re.findall(r"`([^`]+)`", heading)]


def _texts(node: ast.AST) -> Iterator[str]:
    """Return the texts in a file, with `…` for computed parts."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for child in ast.iter_child_nodes(node):
        yield from _texts(child)


@cache
def _said() -> str:
    files = sorted((_ROOT / "qmd").rglob("*.py"))
    return "\n".join(text.replace("\n", " ") for file in files for text in _texts(ast.parse(file.read_text("utf-8"))))


@pytest.mark.parametrize("message", _MESSAGES)
def test_a_message_that_is_explained_is_one_of_the_program(message: str) -> None:
    pieces = [piece.strip() for piece in re.split(r" ?…", message) if piece.strip(" :'")]
    assert re.search(".*?".join(map(re.escape, pieces)), _said())
