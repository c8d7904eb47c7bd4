"""Imports of plain commands, which must stay light."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import qmd as qmd_package
from tests.processes import unmeasured
from tests.program import Qmd

PARSER = {"typer", "click", "shellingham", "annotated_doc", "typing_extensions"}
"""typer and its imports."""

START = {"qmd.cli", "qmd.plugins", "qmd.app", "qmd.config", "qmd.render", "msgspec", "typing_extensions"}
INDEX = {*START, "qmd.store", "qmd.retrieval", "qmd.analysis"}
SEARCH = {*PARSER, *INDEX, "qmd.ingest", "qmd.inference", "qmd.dates", "apsw"}
ALLOWED = {
    ("--version",): {"qmd.cli", "qmd.plugins"},
    ("--help",): START,
    ("collection",): START,
    ("search", "--help"): {*PARSER, *START, "qmd.retrieval"},
    ("ls", "notes"): {*PARSER, *INDEX, "apsw"},
    ("status",): {*PARSER, *INDEX, "apsw"},
    ("get", "pricing.md"): {*PARSER, *INDEX, "apsw"},
    ("collection", "list"): {*PARSER, *INDEX, "qmd.ingest", "apsw", "ruamel"},
    ("multi-get", "*.md", "--md"): {*PARSER, *INDEX, "qmd.ingest", "apsw"},
    ("search", "why do we charge per seat", "--json", "-n", "3"): SEARCH,
    ("search", "pricing"): SEARCH,
}
"""Per command the packages of others, by their top-level name, and our own; modules directly in qmd/ are for all."""

MOST_MODULES = {("search", "pricing"): 94, ("get", "pricing.md"): 71, ("status",): 69, ("--help",): 25}
"""Modules of our own that a command imports; a change that needs more says here why every start is worth it.

The tables of plug-ins are in two modules, because one would be too long. Times, switches, file names, note names and
addresses each have a module of their own, which costs no measurable time: .97 to 1.01 of the processor time before."""

PLAIN_FILES = {f"qmd.{file.stem}" for file in Path(qmd_package.__file__).parent.glob("*.py")}
"""Modules directly in qmd/, which are for all."""

HEAVY_STANDARD = {"asyncio", "sqlite3", "ssl", "multiprocessing", "xml", "unittest", "concurrent"} | {
    "_hashlib",
    "dataclasses",
    "email",
    "http",
    "logging",
}


@pytest.mark.parametrize("argv", ALLOWED, ids=" ".join)
def test_a_plain_command_imports_what_is_allowed_and_nothing_else(indexed: Qmd, argv: tuple[str, ...]) -> None:
    unforeseen = {name for name in imported_by(argv) if name not in ALLOWED[argv]}
    assert not unforeseen, (
        f"'qmd {' '.join(argv)}' imports {', '.join(sorted(unforeseen))}: import it where it is used, "
        "or allow it here if every start is worth it (python -X importtime -m qmd … tells who imports it)"
    )


@pytest.mark.parametrize("argv", MOST_MODULES, ids=" ".join)
def test_a_plain_command_imports_few_modules_of_ours(indexed: Qmd, argv: tuple[str, ...]) -> None:
    ours = [name for name in modules_of(argv) if name.partition(".")[0] == "qmd"]
    assert len(ours) <= MOST_MODULES[argv], "python -X importtime -m qmd … tells who imports what"


def test_a_query_without_a_date_imports_the_words_of_dates_alone(indexed: Qmd) -> None:
    assert dates_imported_by("search", "pricing") == {"words"}
    assert "reading" in dates_imported_by("search", "pricing of 2024-02-02")


def test_a_search_takes_up_a_changed_note_without_the_parser_of_yaml_and_what_loads_slowly(
    indexed: Qmd, notes: Path
) -> None:
    note = notes / "pricing.md"
    note.write_text("---\ncreated: 2024-08-22\n---\n# Pricing\n\nNumbats.\n", encoding="utf-8")
    modules = modules_of(("search", "numbats"))
    assert "qmd.indexing.update" in modules and "numbats" in indexed("search", "numbats").out.lower()
    assert not set(modules) & {"ruamel.yaml", "_hashlib", "concurrent.futures", "queue"}


@pytest.mark.parametrize("argv", [("search", "pricing"), ("status",), ("get", "pricing.md")], ids=" ".join)
def test_a_command_imports_the_parser_without_what_it_does_not_use(indexed: Qmd, argv: tuple[str, ...]) -> None:
    unused = {"difflib", "shutil", "subprocess", "typer.completion", "msgspec._json_schema", "typing_extensions"}
    assert not unused & set(modules_of(argv))


def test_what_was_left_out_for_the_parser_is_there_for_whoever_uses_it() -> None:
    code = (
        "import qmd.cli.lazy_imports, msgspec, typer, typer.main;"
        "print(msgspec.json.schema(int), msgspec.inspect.type_info(int), typer.get_terminal_size()[0] > 0,"
        "typer.main.subprocess.run(['true']).returncode);"
        "import difflib, subprocess, shutil; print(shutil.which, subprocess.Popen, difflib.SequenceMatcher)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    first, second = done.stdout.splitlines()
    assert first == "{'type': 'integer'} IntType(gt=None, ge=None, lt=None, le=None, multiple_of=None) True 0"
    assert second.count("<function which") == 1 and "<class 'subprocess.Popen'>" in second and "difflib" in second


def dates_imported_by(*argv: str) -> set[str]:
    """Return the modules of `qmd.dates` that a process has imported."""
    return {name.rpartition(".")[2] for name in modules_of(argv) if name.startswith("qmd.dates.")}


def imported_by(argv: tuple[str, ...]) -> set[str]:
    """Return the packages that a process has imported: foreign ones, ours, and heavy ones of Python."""
    modules = {name.rpartition(".")[0] if name in PLAIN_FILES else name for name in modules_of(argv)}
    names = {".".join(name.split(".")[: 2 if name.startswith("qmd.") else 1]) for name in modules} - {"qmd"}
    return names - (sys.stdlib_module_names - HEAVY_STANDARD)


def modules_of(argv: tuple[str, ...]) -> list[str]:
    """Return the modules that a process has imported and plain Python has not."""
    program = (
        "import sys; before = set(sys.modules); from qmd.cli.app import main; status = main(sys.argv[1:]); "
        "print(status, *(name for name in sys.modules if name not in before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *argv], capture_output=True, encoding="utf-8", check=True, env=unmeasured()
    )
    status, *modules = done.stdout.splitlines()[-1].split()
    assert status == "0"
    return modules


@pytest.mark.parametrize("command", ["index", "embed", "update"])
def test_a_command_that_finds_every_vector_in_place_loads_no_model(indexed: Qmd, command: str) -> None:
    # Once a day `index` verifies the whole index, its vectors as well.
    assert indexed("index").status == 0
    assert not imported_by((command,)) & {"numpy", "onnxruntime", "sqlite_vec", "tokenizers"}


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts the threads that Linux lists")
@pytest.mark.parametrize(("given", "most"), [({}, 1), ({"OPENBLAS_NUM_THREADS": "3"}, 3)])
def test_the_program_starts_no_threads_for_numpy_unless_it_is_told_to(given: dict[str, str], most: int) -> None:
    code = (
        "import os, qmd.__main__ as program; program.limit_numpy_threads(); import numpy;"
        "print(len(os.listdir('/proc/self/task')), os.environ.get('OPENBLAS_NUM_THREADS'))"
    )
    environ = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", code], env={**environ, **given}, capture_output=True, text=True)
    threads, as_grep_line = done.stdout.split()
    # At most one thread for each processor.
    assert int(threads) <= most and as_grep_line == str(given.get("OPENBLAS_NUM_THREADS"))
