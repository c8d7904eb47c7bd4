"""The figures of the house: lines and files of each room, limits of modules and functions, circles of imports.

`python -m tests.house` writes the table of rooms into docs/dev/architecture.md and prints what is beyond a limit.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "dev" / "architecture.md"

BUDGETS: dict[str, int] = {
    "store": 4830,
    "cli": 4240,
    "retrieval": 4390,
    "inference": 3800,
    "app": 4230,
    "plugins/forms": 3610,
    "plugins/mcp": 3500,
    "render": 2940,
    "ingest": 2430,
    "plugins/lance": 2220,
    "plugins/qwen": 2180,
    "(root)": 2100,
    "plugins/models": 1600,
    "indexing": 1570,
    "plugins/servers": 1250,
    "plugins/doctor": 1190,
    "plugins/browse": 1220,
    "config": 1000,
    "plugins/bench": 880,
    "analysis": 910,
    "plugins/fastembed": 670,
    "plugins/page": 720,
    "dates": 700,
    "plugins/code": 500,
    "plugins/readers": 790,
    "plugins/office": 170,
    "plugins/watch": 470,
    "plugins": 460,
    "chunking": 340,
    "plugins/install": 600,
    "plugins/pack": 270,
    "plugins/adding": 270,
    "plugins/editor": 230,
    "plugins/skills": 180,
}
"""Lines that a room may have; a change that needs more edits the number, and its message says what is worth them."""

MOST_LINES, MOST_FILES = 33_880, 203
"""Of the core: of all rooms but plug-ins. The design wants 31,000 lines."""

MOST_LINES_OF_ALL = 56_310
MOST_LINES_OF_TESTS = 45_520
"""Without benchmarks and robustness, whose programs run for minutes or hours."""

LIMITS = {"lines": 60, "parameters": 12, "complexity": 15}
"""Of one function: lines of its body without the docstring, parameters, branches plus one (McCabe 1976)."""

EXCEPTIONS: dict[str, int] = {}
"""`module:function what` -> what it may have. The list only shrinks: a number that is no longer needed goes down."""

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
    """Each module of the package by its dotted name."""
    files = sorted((ROOT / "qmd").rglob("*.py"))
    names = (".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in files)
    return dict(zip(names, files, strict=True))


@cache
def tree(module: str) -> ast.Module:
    """The syntax of a module."""
    return ast.parse(modules()[module].read_text("utf-8"))


def n_lines(file: Path) -> int:
    """Lines of a file."""
    return len(file.read_text("utf-8").splitlines())


def provider_prefix(module: str) -> str:
    """The room of a module: its package below `qmd`, for a plug-in that below `qmd.plugins`."""
    parts = module.split(".")[1:]
    is_file = modules()[module].name != "__init__.py"
    if not parts or (len(parts) == 1 and is_file):
        return "(root)"
    return "/".join(parts[:2]) if parts[0] == "plugins" and len(parts) > 1 + is_file else parts[0]


def rooms() -> dict[str, tuple[int, int]]:
    """Room -> (lines, files), the largest first."""
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for module, file in modules().items():
        lines[provider_prefix(module)] += n_lines(file)
        files[provider_prefix(module)] += 1
    return {room: (n, files[room]) for room, n in lines.most_common()}


def core() -> tuple[int, int]:
    """Lines and files of all rooms but plug-ins; the seam itself is core."""
    parts = [size for room, size in rooms().items() if not room.startswith("plugins/")]
    return sum(lines for lines, _ in parts), sum(files for _, files in parts)


def lines_of_tests() -> int:
    """Lines of the tests, without programs that run for long."""
    apart = (ROOT / "tests" / "benchmarks", ROOT / "tests" / "robustness")
    files = (ROOT / "tests").rglob("*.py")
    return sum(n_lines(file) for file in files if not any(file.is_relative_to(folder) for folder in apart))


def beyond_limits() -> dict[str, int]:
    """`module:function what` -> its measure, of every function beyond one of `LIMITS`."""
    return {
        f"{module.removeprefix('qmd.')}:{function.name} {what}": measure
        for module in modules()
        for function in ast.walk(tree(module))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for what, measure in _measures(function).items()
        if measure > LIMITS[what]
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


def circle() -> list[str]:
    """Modules that import each other in a circle, wherever the imports stand; empty where there is none."""
    try:
        TopologicalSorter({module: _imported(module) for module in modules()}).prepare()
    except CycleError as exc:
        return [str(module) for module in exc.args[1]]
    return []


def _imported(module: str) -> set[str]:
    """What a module imports of the package. A package's own `__init__` counts where a name of it is imported."""

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


def table() -> str:
    """The rooms in markdown, with their budgets."""
    rows = [(room, lines, files, BUDGETS[room]) for room, (lines, files) in rooms().items()]
    of_core, of_all = core(), (sum(row[1] for row in rows), sum(row[2] for row in rows))
    sums = [("**core**", *of_core, MOST_LINES), ("**all**", *of_all, MOST_LINES_OF_ALL)]
    lines = (f"| {room} | {n:,} | {files} | {budget:,} |" for room, n, files, budget in chain(rows, sums))
    return "\n".join(("| room | lines | files | budget |", "|---|---|---|---|", *lines))


def written() -> str:
    """The page with the table as it is now."""
    head, mark, rest = PAGE.read_text("utf-8").partition("<!-- rooms -->\n")
    _, end, rest = rest.partition("<!-- end of rooms -->\n")
    assert mark and end, f"{PAGE} has no place for the table"
    return f"{head}{mark}\n{table()}\n\n{end}{rest}"


if __name__ == "__main__":
    PAGE.write_text(written(), "utf-8")
    print(table(), f"tests: {lines_of_tests():,}", *(f"{name}: {n}" for name, n in beyond_limits().items()), sep="\n")
    print("circle:", " -> ".join(circle()) or "none")
