"""Limits of size, import cycles, declared packages and documents, which no other tool checks."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import qmd
from tests import structure

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


def test_a_recipe_finds_each_symbol_in_the_file_that_it_names() -> None:
    text = (_ROOT / "CONTRIBUTING.md").read_text("utf-8")
    named = re.findall(r"((?:`\w+`(?:,| and|) )+)(?:in|of)\s`((?:qmd|tests|docs)/[\w/.-]+)`", text.replace("\n", " "))
    symbols = [(symbol, path) for group, path in named for symbol in re.findall(r"`(\w+)`", group)]
    assert len(symbols) > 15
    missing = {
        f"{symbol} in {path}"
        for symbol, path in symbols
        if not re.search(rf"^ *(?:def |class )?{symbol}\b *[:(=]", (_ROOT / path).read_text("utf-8"), re.MULTILINE)
    }
    assert missing == set()


def test_the_changelog_has_the_version_and_what_is_not_yet_released() -> None:
    headings = re.findall(r"^## (.+)", (_ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    versions = [heading.partition(" - ")[0] for heading in headings]
    assert qmd.__version__ in versions[: 2 if versions[0] == "Unreleased" else 1]


def _sizes() -> tuple[int, ...]:
    total = structure.totals(structure.sizes())
    return tuple(total[name]["lines"] for name in ("qmd", "core", "tests"))


def test_qmd_its_core_and_the_tests_keep_to_their_sizes() -> None:
    limits = (structure.MOST_LINES_OF_QMD, structure.MOST_LINES_OF_CORE, structure.MOST_LINES_OF_TESTS)
    assert [f"{n:,} lines, {most:,} allowed" for n, most in zip(_sizes(), limits, strict=True) if n > most] == []


def test_a_limit_of_size_is_raised_only_with_a_line_in_the_changelog() -> None:
    line = re.search(
        r"Size limits: qmd/ ([\d,]+) lines, its core ([\d,]+), tests ([\d,]+)\.",
        (_ROOT / "CHANGELOG.md").read_text("utf-8"),
    )
    assert line, "the changelog has no line of this form"
    limits = (structure.MOST_LINES_OF_QMD, structure.MOST_LINES_OF_CORE, structure.MOST_LINES_OF_TESTS)
    assert tuple(int(number.replace(",", "")) for number in line.groups()) == limits


def test_modules_and_functions_are_of_a_size_to_read() -> None:
    assert {name for name, file in structure.modules().items() if structure.n_lines(file) > 400} == set()
    # A function that is back within a limit leaves the list; a number that fell falls there as well.
    assert structure.beyond_limits() == structure.EXCEPTIONS


def test_modules_do_not_import_each_other_in_a_cycle() -> None:
    assert structure.import_cycle() == []


def test_growth_is_counted_by_package_since_the_last_tag(tmp_path: Path) -> None:
    def write(path: str, n: int) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("pass\n" * n, "utf-8")

    def git(*arguments: str) -> None:
        subprocess.run(("git", "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments), cwd=tmp_path, check=True)

    write("qmd/store/base.py", 10)
    write("qmd/plugins/old/part/row.py", 3)
    write("tests/benchmarks/bench.py", 4)
    assert "since" not in structure.growth(tmp_path), "no clone"
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "First")
    assert "since" not in structure.growth(tmp_path), "no tag"
    git("tag", "v1")
    write("qmd/store/base.py", 1200)
    write("qmd/status.py", 2)
    (tmp_path / "qmd/plugins/old/part/row.py").unlink()
    assert [line.split() for line in structure.growth(tmp_path).splitlines()[1:]] == [
        ["store", "1,200", "1", "+1,190", "+0"],
        ["(root)", "2", "1", "+2", "+1"],
        ["core", "1,202", "2", "+1,192", "+1"],
        ["qmd", "1,202", "2", "+1,189", "+0"],
        ["long", "tests", "4", "1", "+0", "+0"],
        ["plugins/old", "0", "0", "-3", "-1"],
    ]
