"""What keeps the house in order and no other tool checks."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

_ROOT = Path(__file__).parent.parent


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _imported_modules() -> set[str]:
    """Top-level names of everything that the program imports, wherever the import stands."""
    names: set[str] = set()
    for file in (_ROOT / "qmd").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names.add(node.module.partition(".")[0])
    return names - set(sys.stdlib_module_names) - {"qmd"}


def _declared_distributions() -> set[str]:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    optional = [requirement for extra in project["optional-dependencies"].values() for requirement in extra]
    return {_canonical(re.split(r"[\s<>=!~;\[]", one, maxsplit=1)[0]) for one in [*project["dependencies"], *optional]}


def test_whatever_is_imported_is_declared() -> None:
    known = packages_distributions()
    declared = _declared_distributions()
    undeclared = {
        name
        for name in _imported_modules()
        if not {_canonical(distribution) for distribution in known.get(name, [name])} & declared
    }
    assert undeclared == set()
