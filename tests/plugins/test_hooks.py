"""Hooks and rows of tables: their types, when they are imported, and which plug-in calls which."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qmd.plugins import COMMANDS, KINDS, STORES, Command, Kind, hooks, load
from tests import structure
from tests.processes import unmeasured

if TYPE_CHECKING:
    from qmd.plugins.lance import opening
    from qmd.store.opening import StoreModule

    LANCE: StoreModule = opening
    """Type checkers compare the module with the protocol."""

PLUGINS = {file.parent.name for file in (structure.ROOT / "qmd" / "plugins").glob("*/__init__.py")}
SCRATCH = {
    "qmd/__init__.py": "",
    "qmd/plugins/__init__.py": "def load(place: str) -> object: ...",
    "qmd/plugins/hooks.py": Path(hooks.__file__).read_text("utf-8"),
    "qmd/plugins/warm/__init__.py": "",
    "qmd/plugins/warm/lifecycle.py": "def server_of(locations: str) -> int | None: ...",
    "right.py": "from qmd.plugins import hooks\npid: int | None = hooks.server_of('index')\n",
    "wrong.py": "from qmd.plugins import hooks\nhooks.server_of()\nhooks.server_of(1)\nhooks.no_such_hook\n",
}


def test_the_table_of_hooks_and_the_imports_of_type_checkers_agree() -> None:
    blocks = [node for node in structure.tree("qmd.plugins.hooks").body if isinstance(node, ast.If)]
    typed = [node for node in blocks[0].body if isinstance(node, ast.ImportFrom)]
    names = [(alias.name, alias.asname, node.module) for node in typed for alias in node.names]
    assert names == [(name, name, module) for name, module in hooks.MODULES.items()]


@pytest.mark.parametrize("name", hooks.MODULES)
def test_a_hook_is_what_its_module_defines(name: str) -> None:
    hook = getattr(hooks, name)
    assert getattr(hook, "__module__", hooks.MODULES[name]) == hooks.MODULES[name]
    assert not hasattr(hooks, f"no_{name}")


def test_a_plug_in_is_imported_when_its_hook_is_used() -> None:
    program = """
import sys
from qmd.plugins import hooks
print(*(name for name in sys.modules if name.count(".") == 2 and name.startswith("qmd.plugins.")))
hooks.has_grammar
print(*(name for name in sys.modules if name.count(".") > 2 and name.startswith("qmd.plugins.")))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=True, env=unmeasured()
    )
    assert [set(line.split()) for line in done.stdout.splitlines()] == [
        {"qmd.plugins.kinds", "qmd.plugins.hooks"},
        {"qmd.plugins.code.languages"},
    ]


def test_a_call_that_does_not_fit_a_hook_is_an_error_of_types(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    for name, text in SCRATCH.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    options = ["--strict", "--ignore-missing-imports", "--no-site-packages", "--config-file="]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "right.py", "wrong.py"],
        capture_output=True,
        encoding="utf-8",
        cwd=tmp_path,
        env=unmeasured(),
    )
    assert re.findall(r"(?m)^(.+): error: .*\[(.+)\]$", done.stdout) == [
        ("wrong.py:2", "call-arg"),
        ("wrong.py:3", "arg-type"),
        ("wrong.py:4", "attr-defined"),
    ], done.stdout + done.stderr


def _served(module: str) -> Iterator[str]:
    """Names in other plug-ins, each with its module, that a module calls as a hook or imports."""
    for node in ast.walk(structure.tree(module)):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "hooks":
            yield f"{hooks.MODULES[node.attr]}.{node.attr}"
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _package(name: str) -> str:
    """The plug-in of a module or of a name in it; `core` for all else."""
    parts = name.split(".")
    return parts[2] if parts[:2] == ["qmd", "plugins"] and PLUGINS.intersection(parts[2:3]) else "core"


def test_plug_ins_call_each_other_in_no_cycle() -> None:
    graph: dict[str, set[str]] = {}
    for module in structure.modules().keys() - {hooks.__name__}:
        caller = _package(module)
        graph.setdefault(caller, set()).update({*map(_package, _served(module))} - {caller, "core"})
    assert graph["models"] == {"qwen", "fastembed", "onnx"} and "warm" in graph["core"]
    TopologicalSorter(graph).prepare()


def _signature(place: str) -> tuple[list[str], str]:
    """The types of the parameters and of the result of a function, as they are written."""
    function = load(place)
    assert callable(function)
    found = signature(function)
    return [str(one.annotation) for one in found.parameters.values()], str(found.return_annotation)


@pytest.mark.parametrize("kind", sorted(set(KINDS.values())), ids=lambda kind: kind.decode)
def test_a_kind_names_functions_with_the_signatures_that_callers_use(kind: Kind) -> None:
    assert _signature(kind.outline) == (["str"], "Outline")
    parameters, result = _signature(kind.decode)
    assert parameters == ["str", "bytes"] and result in ("Decoded", "tuple[str, tuple[str, ...]]")


def test_a_store_reads_addresses_with_the_signature_that_callers_use() -> None:
    for store in STORES.values():
        assert _signature(store.resolve) == (["str", "Path", "Path"], "str | None")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_command_takes_an_invocation_and_returns_its_status(command: Command) -> None:
    parameters, result = _signature(command.place)
    assert (parameters[0], result) == ("Invocation", "int")
