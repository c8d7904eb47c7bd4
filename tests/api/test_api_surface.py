"""`import qmd`: its names, its cost, and the examples of the manual."""

import doctest
import inspect
import subprocess
import sys
from pathlib import Path

import qmd

ROOT = Path(__file__).parents[2]


def test_every_public_name_exists_and_is_documented() -> None:
    assert sorted(qmd.__all__, key=str.lower) == sorted(set(qmd.__all__), key=str.lower)
    for name in set(qmd.__all__) - {"__version__"}:
        assert inspect.getdoc(getattr(qmd, name)), name
    assert set(qmd.__all__) <= set(dir(qmd))


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(qmd, "create_store")


def test_every_method_of_a_store_is_annotated_and_documented() -> None:
    methods = [member for name, member in inspect.getmembers(qmd.Index, inspect.isfunction) if not name.startswith("_")]
    assert len(methods) > 20
    for method in methods:
        assert method.__doc__, method.__name__
        assert "return" in method.__annotations__, method.__name__


def test_importing_loads_no_module_but_the_package_itself() -> None:
    program = "import sys; before = set(sys.modules); import qmd; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert set(done.stdout.split()) - {"__future__"} == {"qmd"}


def test_opening_and_lexical_search_load_no_model_and_no_server(folder: Path) -> None:
    program = (
        "import qmd, sys\n"
        "with qmd.open_index('i.sqlite', config={'collections': {'notes': {'path': 'notes'}}}) as store:\n"
        "    store.update()\n"
        "    assert store.search('limiter', mode='lexical').hits\n"
        "heavy = {'numpy', 'onnxruntime', 'tokenizers', 'fastembed', 'mcp', 'rich', 'typer', 'starlette'}\n"
        "heavy |= {'sqlite3', 'asyncio'}\n"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT)})
    assert done.stdout.split() == []


def test_the_examples_of_the_manual_run(folder: Path) -> None:
    flags = doctest.NORMALIZE_WHITESPACE
    outcome = doctest.testfile(str(ROOT / "docs" / "python.md"), module_relative=False, optionflags=flags)
    assert outcome.attempted > 20
    assert outcome.failed == 0
