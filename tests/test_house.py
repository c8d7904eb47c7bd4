"""What keeps the house in order and no other tool checks."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import qmd
from tests import house

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
            elif isinstance(node, ast.Constant) and str(node.value).startswith("tree-sitter-"):
                # A grammar: the table of languages names its distribution, by which it is imported.
                names.add(str(node.value).replace("-", "_"))
    return names - set(sys.stdlib_module_names) - {"qmd"}


def _declared() -> list[Requirement]:
    """What the package asks for, with its extras."""
    pyproject = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))
    extras = [requirement for extra in pyproject["project"]["optional-dependencies"].values() for requirement in extra]
    chosen = pyproject["tool"]["hatch"]["metadata"]["hooks"]["custom"]
    return [Requirement(one) for one in [*chosen["dependencies"], *chosen["gpu"], *extras]]


def _distributions_of(module: str) -> set[str]:
    """The distributions that a top-level name may come from; where none is installed, its own name."""
    return {_canonical(one) for one in _installed().get(module, [module])}


_installed = cache(packages_distributions)


def test_whatever_is_imported_is_declared() -> None:
    declared = {_canonical(one.name) for one in _declared()}
    undeclared = {name for name in _imported_modules() if not _distributions_of(name) & declared}
    assert undeclared == set()


def test_whatever_is_declared_is_imported() -> None:
    declared = {_canonical(one.name) for one in _declared() if one.marker is None or one.marker.evaluate()}
    imported = {distribution for name in _imported_modules() for distribution in _distributions_of(name)}
    # ONNX Runtime loads that one.
    assert declared - imported == {"nvidia-cublas"} & declared


@pytest.mark.parametrize("paper", ["CONTRIBUTING.md", "SECURITY.md", "docs/dev/architecture.md"])
def test_the_files_that_a_paper_names_exist(paper: str) -> None:
    named = re.findall(r"`((?:qmd|tests|docs|models)/[\w/.-]+)`", (_ROOT / paper).read_text("utf-8"))
    linked = re.findall(r"\]\((?!http)([^)#]+)", (_ROOT / paper).read_text("utf-8"))
    missing = [name for name in named if not (_ROOT / name).exists()]
    assert missing + [name for name in linked if not ((_ROOT / paper).parent / name).exists()] == []


def test_the_changelog_has_the_version_and_what_is_not_yet_released() -> None:
    headings = re.findall(r"^## (.+)", (_ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    versions = [heading.partition(" - ")[0] for heading in headings]
    assert qmd.__version__ in versions[: 2 if versions[0] == "Unreleased" else 1]


def test_a_room_grows_only_with_its_budget() -> None:
    sizes = house.rooms()
    assert sizes.keys() == house.BUDGETS.keys()
    assert {room: lines for room, (lines, _) in sizes.items() if lines > house.BUDGETS[room]} == {}


def test_the_core_the_whole_and_the_tests_keep_their_budgets() -> None:
    lines, files = house.core()
    assert lines <= house.MOST_LINES
    assert files <= house.MOST_FILES
    assert sum(lines for lines, _ in house.rooms().values()) <= house.MOST_LINES_OF_ALL
    assert house.lines_of_tests() <= house.MOST_LINES_OF_TESTS


def test_the_table_of_rooms_is_that_of_the_document() -> None:
    assert house.written() == house.PAGE.read_text("utf-8"), "write it anew: python -m tests.house"


def test_modules_and_functions_are_of_a_size_to_read() -> None:
    assert {name for name, file in house.modules().items() if house.n_lines(file) > 400} == set()
    # A limit that is kept again leaves the list; a number that fell falls there as well.
    assert house.beyond_limits() == house.EXCEPTIONS


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert house.circle() == []
