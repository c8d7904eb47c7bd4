"""Commands of other packages: used for unknown names, and harmless if they are broken."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import pytest
from typer import Option

from qmd import plugins
from qmd.cli.commands import foreign_commands
from qmd.cli.invocation import Invocation
from qmd.cli.output import out
from qmd.cli.parser import build_command
from qmd.plugins import Command
from tests.program import Qmd

HELLO = Command("hello", "tests.cli.test_cli_foreign:hello", "[--loud] <name>", "Greet.", "query", ("qmd hello you",))

Bring = Callable[..., None]


def hello(invocation: Invocation, name: str, loud: Annotated[bool, Option("--loud", help="Cry it.")] = False) -> int:
    """Print a greeting."""
    text = f"{invocation.command} {name}\n"
    out(text.upper() if loud else text)
    return 0


@pytest.fixture
def bring(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bring]:
    """Return a function that adds commands of another package."""

    def bring(*rows: object) -> None:
        monkeypatch.setattr(plugins, "foreign", lambda: (SimpleNamespace(__name__="theirs", COMMANDS=rows),))
        foreign_commands.cache_clear()
        build_command.cache_clear()

    yield bring
    foreign_commands.cache_clear()
    build_command.cache_clear()


def test_a_foreign_command_runs_and_has_help(qmd: Qmd, bring: Bring) -> None:
    bring(HELLO)
    assert qmd("hello", "you", "--loud").out == "HELLO YOU\n"
    assert "--loud  Cry it." in qmd("hello", "--help").out
    assert qmd("help", "hello").out == qmd("hello", "--help").out
    page = qmd("help", "all").out
    assert "  hello       Greet\n" in page.partition("\nMore ")[2]
    assert qmd("hello", "--lod").err.startswith("error: unknown option '--lod'\nhint: did you mean '--loud'?")


def test_a_row_that_takes_the_place_of_a_command_of_ours_or_is_none_is_not_used(qmd: Qmd, bring: Bring) -> None:
    bring(HELLO._replace(name="status"), HELLO._replace(name="models greet"), ("hello", "x:y"))
    run = qmd("helo")
    assert run.status == 2
    assert run.err.count("warning: skipped a command of the plug-in 'theirs': ") == 3
    assert qmd("status").status == 0


def test_a_foreign_command_that_cannot_be_imported_is_one_line(qmd: Qmd, bring: Bring) -> None:
    bring(HELLO._replace(place="no_such_module:hello"))
    run = qmd("hello")
    assert (run.status, run.out) == (1, "")
    assert run.err.startswith("error: unexpected ModuleNotFoundError: No module named 'no_such_module'\n")


def test_a_command_of_ours_asks_nobody(qmd: Qmd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "foreign", lambda: pytest.fail("asked for the commands of others"))
    for argv in (
        ["status"],
        ["collection"],
        ["search", "--help"],
        ["help", "ls"],
        ["collection", "frob"],
        ["--version"],
    ):
        qmd(*argv)


def test_a_broken_package_is_a_line_of_warning(
    qmd: Qmd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, text in (("good", "COMMANDS = ()\n"), ("broken", "raise ImportError('no\\nsuch thing')\n")):
        (tmp_path / f"{name}_rows.py").write_text(text)
        package = tmp_path / f"{name}-1.0.dist-info"
        package.mkdir()
        (package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (package / "entry_points.txt").write_text(f"[qmd.plugins]\n{name} = {name}_rows\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins.foreign.cache_clear()
    foreign_commands.cache_clear()
    try:
        assert qmd("--help").status == 0
        assert [module.__name__ for module in plugins.foreign()] == ["good_rows"]
    finally:
        plugins.foreign.cache_clear()
        foreign_commands.cache_clear()
        sys.modules.pop("good_rows", None)
    assert caplog.messages == ["warning: skipped the plug-in 'broken': ImportError: no such thing"]
