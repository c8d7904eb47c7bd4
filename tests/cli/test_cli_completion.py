"""Completion at Tab: real bash, and other shells by the variables of their scripts."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from qmd.cli.commands import COMMANDS
from qmd.render.formats import FORMATS
from tests.program import Qmd

ROOT = Path(__file__).parents[2]

Offer = Callable[..., list[str]]


@pytest.fixture
def offered(qmd: Qmd, monkeypatch: pytest.MonkeyPatch) -> Offer:
    """Return the completions of the last word in bash."""

    def ask(*words: str) -> list[str]:
        with monkeypatch.context() as patch:
            patch.setenv("_QMD_COMPLETE", "complete_bash")
            patch.setenv("COMP_WORDS", "\n".join(["qmd", *words]))
            patch.setenv("COMP_CWORD", str(len(words)))
            run = qmd()
        assert (run.status, run.err) == (0, "")
        return run.out.strip().splitlines()

    return ask


def test_commands_are_offered(offered: Offer) -> None:
    assert set(offered("")) == {"help", *(spec.name.split()[0] for spec in COMMANDS)}
    assert offered("help", "se") == ["search", "serve"]
    assert offered("help", "collection", "re") == ["rename", "remove"]
    assert offered("se") == ["search", "serve"]
    assert "update-cmd" in offered("collection", "")
    assert offered("collection", "re") == ["rename", "remove"]


def test_commands_are_offered_behind_options(offered: Offer) -> None:
    assert offered("--index", "work", "se") == ["search", "serve"]
    assert offered("--index", "work", "collection", "sh") == ["show"]


def test_every_command_offers_its_options(offered: Offer) -> None:
    for spec in COMMANDS:
        assert "--help" in offered(*spec.name.split(), "--")


def test_options_are_offered_behind_options(offered: Offer) -> None:
    assert offered("-n", "5", "search", "--no-r") == ["--no-rerank"]


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["search", "--format", ""], [*FORMATS]),
        (["index", "--chunk-strategy", ""], ["auto", "regex"]),
        (["search", "--color", ""], ["auto", "always", "never"]),
        (["--color", "al"], ["always"]),
        (["search", "--no-p"], ["--no-pager"]),
        (["completion", ""], ["bash", "zsh", "fish", "powershell"]),
        (["trust", "r"], ["revoke"]),
        (["models", "path", "all-"], ["all-MiniLM-L6-v2"]),
        (["pull", "Qwen3-R"], ["Qwen3-Reranker-0.6B"]),
    ],
)
def test_known_values_are_offered(offered: Offer, words: list[str], values: list[str]) -> None:
    assert offered(*words) == values


def test_collections_are_offered(indexed: Qmd, offered: Offer) -> None:
    for line in ("search -c", "update --collection", "collection show", "collection mv", "context add -c"):
        assert [offered(*line.split(), start) for start in ("", "no", "x")] == [["notes"], ["notes"], []]


def test_collections_and_names_of_another_index_are_offered(qmd: Qmd, offered: Offer, notes: Path) -> None:
    assert qmd("--index", "work", "index", str(notes), "--name", "job", "--no-embed").status == 0
    assert offered("--index", "") == ["work"]
    assert offered("search", "--index", "work", "-c", "") == ["job"]
    assert offered("search", "-c", "") == []


def test_documents_docids_and_folders_are_offered(indexed: Qmd, offered: Offer) -> None:
    assert offered("get", "notes/d") == ["notes/daily/sunday.md"]
    assert offered("multi-get", "notes/p") == ["notes/pricing.md"]
    assert offered("get", "qmd://notes/p") == ["qmd://notes/pricing.md"]
    assert offered("ls", "n") == ["notes", "notes/daily", r"notes/we\ ird"]
    docid = indexed("get", "notes/pricing.md").out.splitlines()[0].split()[-1]
    assert offered("get", f"'{docid[:4]}") == [f"\\{docid}"]


def test_what_a_shell_would_read_as_more_than_a_word_is_quoted_or_left_out(
    indexed: Qmd, offered: Offer, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (notes / "z$(touch x)`y`\\$(z)'.md").write_text("# Odd\n")
    assert indexed("update").status == 0
    (quoted,) = offered("get", "notes/z")
    assert shlex.split(quoted) == ["notes/z$(touch x)`y`\\$(z)'.md"]
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "qmd get notes/z")
    monkeypatch.setenv("_QMD_COMPLETE", "complete_zsh")
    assert "touch" not in indexed().out
    monkeypatch.setenv("_QMD_COMPLETE", "complete_powershell")
    assert "touch" not in indexed().out


def test_without_an_index_nothing_is_said(offered: Offer) -> None:
    for line in ("get", "ls", "search -c", "collection show", "--index", "no-such"):
        assert offered(*line.split(), "x") == []


def test_a_broken_configuration_or_index_does_not_disturb_the_line(
    indexed: Qmd, offered: Offer, tmp_path: Path
) -> None:
    (tmp_path / "config" / "qmd" / "index.yml").write_text("collections: [")
    (tmp_path / "cache" / "qmd" / "index.sqlite").write_bytes(b"no database" * 500)
    assert offered("search", "-c", "") == []
    assert offered("get", "") == []


@pytest.mark.parametrize(
    ("variables", "answer"),
    [
        ({"_QMD_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "qmd get notes/d"}, '"notes/daily/sunday.md"'),
        (
            {
                "_QMD_COMPLETE": "complete_fish",
                "_TYPER_COMPLETE_ARGS": "qmd get notes/w",
                "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            },
            "notes/we ird/c & d.md",
        ),
        (
            {
                "_QMD_COMPLETE": "complete_powershell",
                "_TYPER_COMPLETE_ARGS": "qmd search -c no",
                "_TYPER_COMPLETE_WORD_TO_COMPLETE": "no",
            },
            "notes:::",
        ),
    ],
    ids=["zsh", "fish", "powershell"],
)
def test_the_other_shells_are_answered_too(
    indexed: Qmd, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], answer: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    run = indexed()
    assert (run.status, run.err) == (0, "")
    assert answer in run.out


def test_the_script_of_a_shell_asks_qmd(qmd: Qmd) -> None:
    for shell in ("bash", "zsh", "fish", "powershell"):
        run = qmd("completion", shell)
        assert (run.status, run.err) == (0, "")
        assert f"complete_{shell}" in run.out
        assert "_QMD_COMPLETE" not in os.environ


@pytest.fixture
def on_path(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a shell that finds the program."""
    program = tmp_path / "bin" / "qmd"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m qmd "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "TERM": "dumb"}


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not at hand")
@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("qmd sear", ["search"]),
        ("qmd collection re", ["remove", "rename"]),
        ("qmd search --color ", ["always", "auto", "never"]),
        ("qmd search -c ", ["notes"]),
        ("qmd open notes/p", ["notes/pricing.md"]),
    ],
)
def test_fish_completes_a_line(indexed: Qmd, on_path: dict[str, str], line: str, offers: list[str]) -> None:
    script = f"qmd completion fish | source; complete -C {shlex.quote(line)}"
    done = subprocess.run(
        ["fish", "--no-config", "-c", script], capture_output=True, encoding="utf-8", check=True, env=on_path
    )
    assert [one.partition("\t")[0] for one in done.stdout.splitlines()] == offers


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not at hand")
@pytest.mark.parametrize(
    ("line", "whole"),
    [
        ("qmd sear\t", "qmd search"),
        ("qmd get notes/p\t", "qmd get notes/pricing.md"),
        ("qmd search --color ne\t", "qmd search --color never"),
    ],
)
def test_zsh_completes_a_line(indexed: Qmd, on_path: dict[str, str], tmp_path: Path, line: str, whole: str) -> None:
    (tmp_path / ".zshrc").write_text(
        "autoload -Uz compinit; compinit -u -D\nsource <(qmd completion zsh)\nPS1='at your service> '\n"
    )
    shown = typed_in(["zsh", "-i"], {**on_path, "ZDOTDIR": str(tmp_path)}, "at your service> ", line, whole)
    assert whole in shown


def typed_in(argv: list[str], env: dict[str, str], prompt: str, keys: str, awaited: str) -> str:
    """Return the screen of a shell after `keys`, until it shows `awaited` or a timeout."""
    import pty
    import select

    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(argv[0], argv, env)

    def read_until(text: str) -> str:
        shown = b""
        while text.encode() not in shown and select.select([terminal], [], [], 30)[0]:
            try:
                piece = os.read(terminal, 4096)
            except OSError:  # the shell has ended
                break
            shown += piece
        return shown.decode(errors="replace")

    try:
        assert prompt in read_until(prompt)
        os.write(terminal, keys.encode())
        return read_until(awaited)
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not at hand")
@pytest.mark.parametrize(
    ("line", "replies"),
    [("qmd sear", ["search"]), ("qmd search -c ", ["notes"]), ("qmd get notes/w", [r"notes/we\ ird/c\ \&\ d.md"])],
)
def test_bash_completes_a_line(indexed: Qmd, on_path: dict[str, str], line: str, replies: list[str]) -> None:
    words = shlex.split(line) + ([""] if line.endswith(" ") else [])
    script = f"""
        source <(qmd completion bash)
        COMP_WORDS=({" ".join(map(shlex.quote, words))}) COMP_CWORD={len(words) - 1}
        _qmd_completion qmd
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, encoding="utf-8", check=True, env=on_path
    )
    assert (done.stdout.splitlines(), done.stderr) == (replies, "")


def test_answering_a_shell_loads_no_engine(indexed: Qmd) -> None:
    program = "import sys; from qmd.cli.app import main; main([]); print(*sys.modules)"
    variables = {
        "_QMD_COMPLETE": "complete_bash",
        "COMP_WORDS": "qmd get n",
        "COMP_CWORD": "2",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=True, env=os.environ | variables
    )
    *answer, modules = done.stdout.splitlines()
    assert "notes/pricing.md" in answer
    assert not {"numpy", "onnxruntime", "tokenizers", "rich", "mcp"} & set(modules.split())
