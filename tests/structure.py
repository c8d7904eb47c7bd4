"""Size of packages, modules and functions, and import cycles.

`python -m tests.structure` prints lines and files of each package and the change since the last tag.
"""

import ast
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

MOST_LINES_OF_QMD = 57_190
MOST_LINES_OF_CORE = 34_480
"""Of all packages but plug-ins."""

MOST_LINES_OF_TESTS = 49_350
"""Without benchmarks and robustness, whose programs run for minutes or hours."""

SUMS = ("core", "qmd", "tests", "long tests")

LIMITS = {"lines": 60, "parameters": 12, "complexity": 15}
"""Of one function: lines of its body without the docstring, parameters, branches plus one (McCabe 1976)."""

EXCEPTIONS: dict[str, int] = {}
"""`module:function measure` -> its limit. The list only shrinks: a number that is no longer needed goes down."""

_BRANCHES = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.IfExp,
    ast.Assert,
    ast.comprehension,
    ast.match_case,
)


@cache
def modules() -> dict[str, Path]:
    """Return the file of each module of `qmd` by its dotted name."""
    files = sorted((ROOT / "qmd").rglob("*.py"))
    names = (".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in files)
    return dict(zip(names, files, strict=True))


@cache
def tree(module: str) -> ast.Module:
    """Parse a module."""
    return ast.parse(modules()[module].read_text("utf-8"))


def n_lines(file: Path) -> int:
    """Count the lines of a file."""
    return len(file.read_text("utf-8").splitlines())


def groups_of(path: str) -> list[str]:
    """Return the package that a file counts for (of a plug-in `plugins/NAME`), and the sums of `SUMS`."""
    top, *folders, _ = path.split("/")
    if top == "tests":
        return ["long tests" if folders[:1] in (["benchmarks"], ["robustness"]) else "tests"]
    package = "/".join(folders[: 2 if folders[:1] == ["plugins"] else 1]) or "(root)"
    return [package, "qmd"] if folders[:1] == ["plugins"] else [package, "core", "qmd"]


def sizes(root: Path = ROOT) -> dict[str, int]:
    """Count the lines of each Python file of `qmd/` and `tests/`."""
    files = (file for folder in ("qmd", "tests") for file in (root / folder).rglob("*.py"))
    return {file.relative_to(root).as_posix(): n_lines(file) for file in files}


def sizes_at(revision: str, root: Path = ROOT) -> dict[str, int]:
    """Count the lines of each Python file of `qmd/` and `tests/` as of a git revision."""
    lines = _git(root, "grep", "-c", "", revision, "--", "qmd/*.py", "tests/*.py").splitlines()
    counts = (line.removeprefix(f"{revision}:").rpartition(":") for line in lines)
    return {path: int(n) for path, _, n in counts}


def last_tag(root: Path = ROOT) -> str:
    """Return the last tag before HEAD; "" in a clone without tags and outside a clone."""
    return _git(root, "describe", "--tags", "--abbrev=0").strip()


def _git(root: Path, *arguments: str) -> str:
    try:
        return subprocess.run(("git", *arguments), cwd=root, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return ""


def totals(files: dict[str, int]) -> dict[str, Counter[str]]:
    """Return lines and files of each package, the largest first, then the sums."""
    packages: dict[str, Counter[str]] = defaultdict(Counter)
    for path, lines in files.items():
        for group in groups_of(path):
            packages[group].update(lines=lines, files=1)
    return dict(sorted(packages.items(), key=lambda item: (item[0] in SUMS, -item[1]["lines"])))


def growth(root: Path = ROOT) -> str:
    """Write a table of lines and files of each package, with the change since the last tag if there is one."""
    now, tag = totals(sizes(root)), last_tag(root)
    before = totals(sizes_at(tag, root)) if tag else {}
    rows = [f"{'package':<20}{'lines':>8}{'files':>7}" + (f"   lines and files since {tag}" if tag else "")]
    for package in [*now, *(before.keys() - now.keys())]:
        size, old = now.get(package, Counter()), before.get(package, Counter())
        change = f"{size['lines'] - old['lines']:>+10,}{size['files'] - old['files']:>+6}" if tag else ""
        rows.append(f"{package:<20}{size['lines']:>8,}{size['files']:>7}{change}")
    return "\n".join(rows)


def beyond_limits() -> dict[str, int]:
    """Return `module:function measure` and the value for every function beyond one of `LIMITS`."""
    return {
        f"{module.removeprefix('qmd.')}:{function.name} {measure}": value
        for module in modules()
        for function in ast.walk(tree(module))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for measure, value in _measures(function).items()
        if value > LIMITS[measure]
    }


def _measures(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, int]:
    body = function.body[1:] if ast.get_docstring(function) and len(function.body) > 1 else function.body
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    nodes = list(ast.walk(function))
    branches = sum(isinstance(node, _BRANCHES) for node in nodes)
    conditions = sum(len(node.ifs) for node in nodes if isinstance(node, ast.comprehension))
    operands = sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    return {
        "lines": (body[-1].end_lineno or 0) - body[0].lineno + 1,
        "parameters": sum(one.arg not in ("self", "cls") for one in arguments),
        "complexity": 1 + branches + conditions + operands,
    }


def import_cycle() -> list[str]:
    """Find modules that import each other in a cycle, at any place in the file; empty if there is none."""
    try:
        TopologicalSorter({module: _imported(module) for module in modules()}).prepare()
    except CycleError as exc:
        return [str(module) for module in exc.args[1]]
    return []


def _imported(module: str) -> set[str]:
    """List the modules of `qmd` that a module imports; a package's `__init__` if one of its own names is imported."""

    def named() -> Iterator[str]:
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    yield inner if inner in modules() else node.module
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)

    # These two name everything for type checkers, and import it when it is used.
    if module in ("qmd", "qmd.plugins.hooks"):
        return set()
    return {name for name in named() if name in modules() and name not in (module, "qmd")}


if __name__ == "__main__":
    print(growth())
