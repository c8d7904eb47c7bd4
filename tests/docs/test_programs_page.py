"""The page of editors, fzf, cron and git: each snippet runs as the page shows it, in the real program."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.clone import ROOT, blocks, make_clone, run_in

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the commands are written for a POSIX shell")

_PAGE = "docs/programs.md"
_ANSWER = "Reference/Backups.md:10:4:## Restore a backup\n"


def _snippets(language: str) -> list[str]:
    return [body for _, _, body in blocks(_PAGE, language)]


def _needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a clone next to a home with the indexed notes of the tutorial in `~/bakery`."""
    folder = make_clone(tmp_path_factory.mktemp("programs"))
    done = _sh(folder, "cp -r docs/vault ~/bakery && qmd index ~/bakery")
    assert done.returncode == 0, done.stderr
    return folder


def _sh(clone: Path, script: str) -> subprocess.CompletedProcess[str]:
    return run_in(clone, ["bash", "-ec", script])


def test_lines_are_those_of_the_page(clone: Path) -> None:
    [example] = _snippets("console")
    command, _, expected = example.removeprefix("$ ").partition("\n")
    assert expected.startswith(_ANSWER)
    assert _sh(clone, command).stdout == expected


@_needs("fzf")
def test_fzf_reads_the_lines(clone: Path) -> None:
    function, filtered = _snippets("sh")[:2]
    assert _sh(clone, f"cd ~/bakery; {filtered}").stdout.startswith("Daily/2026-03-02.md:3:7:- The oven needs a new")
    # fzf checks its options and actions, and ends at once with a filter.
    run = _sh(clone, f"{function}\nFZF_DEFAULT_OPTS=--filter=x qf || [ $? = 1 ]")
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


@_needs("fzf")
def test_the_commands_for_fzf_search_show_and_open(clone: Path) -> None:
    function = _snippets("sh")[0]
    [search], [preview] = (
        re.findall(r"sleep [\d.]+; (.*) \|\| true", function),
        re.findall(r"--preview '(.*?)'", function),
    )
    [opened] = re.findall(r"become\((.*)\)'", function)
    line = _sh(clone, f"cd ~/bakery; {search.replace('{q}', 'restore')}").stdout
    assert line.startswith(_ANSWER)
    path, number, _ = line.split(":", 2)
    fields = {"{1}": f"'{path}'", "{2}": f"'{number}'"}
    shown, edited = (re.sub(r"\{\d\}", lambda one: fields[one[0]], command) for command in (preview, opened))
    assert "10: ## Restore a backup\n" in _sh(clone, f"cd ~/bakery; {shown}").stdout
    assert _sh(clone, f"EDITOR=echo; {edited}").stdout == f"+{number} {path}\n"


@_needs("nvim")
def test_neovim_fills_the_quickfix_list(clone: Path) -> None:
    settings, command = _snippets("vim")
    (clone / "init.vim").write_text(settings)
    (clone / "show.lua").write_text("""
        for _, row in ipairs(vim.fn.getqflist()) do
            io.stdout:write(table.concat({vim.fn.bufname(row.bufnr), row.lnum, row.col, row.text}, ':') .. '\\n')
        end
        io.stdout:write(table.concat({vim.fn.expand('%'), vim.fn.line('.'), vim.fn.col('.')}, ' '))
    """)
    search = f"silent {command.strip().removeprefix(':')}"
    words = [
        "nvim",
        "--headless",
        "-u",
        f"{clone}/init.vim",
        "-c",
        search,
        "-c",
        f"luafile {clone}/show.lua",
        "-c",
        "qa!",
    ]
    run = _sh(clone, f"cd ~/bakery; {shlex.join(words)}")
    assert run.stdout.startswith(_ANSWER), run.stderr
    assert run.stdout.endswith("Reference/Backups.md 10 4")


@_needs("emacs")
def test_emacs_visits_the_lines(clone: Path) -> None:
    [function] = _snippets("elisp")
    wait = """(qmd-search "how do I restore a backup?")
    (while (get-buffer-process "*grep*") (accept-process-output nil 0.1))
    (with-current-buffer "*grep*" (princ (buffer-string)))
    (next-error)
    (with-current-buffer (get-file-buffer "Reference/Backups.md")
      (princ (format "at line %d\\n" (line-number-at-pos))))"""
    (clone / "search.el").write_text(function + wait)
    run = _sh(clone, f"cd ~/bakery; emacs -Q --batch -l '{clone}/search.el'")
    assert f"\n{_ANSWER}" in run.stdout, run.stderr
    assert run.stdout.endswith("at line 10\n")


def test_the_line_for_cron_indexes_and_prints_nothing(clone: Path) -> None:
    [line] = _snippets("crontab")
    *_, command = line.strip().split(maxsplit=5)
    home = clone.parent / "home"
    (home / "bakery" / "cron.md").write_text("# Pelican\n")
    empty = {"HOME": str(home), "PATH": "/usr/bin:/bin"}  # as cron starts programs
    run = subprocess.run(
        ["sh", "-c", command], env=empty, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, timeout=120
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, b"", b"")
    assert _found(clone, "pelican") == "cron.md\n"


def _found(clone: Path, word: str) -> str:
    """Return the file of a hit of the index as it is, without changed notes."""
    return _sh(clone, f"cd ~/bakery; QMD_AUTO_UPDATE=0 qmd search {word} --vimgrep | cut -d: -f1").stdout


@_needs("systemd-analyze")
def test_systemd_accepts_the_units(clone: Path) -> None:
    units = clone.parent / "home" / ".config" / "systemd" / "user"
    units.mkdir(parents=True)
    for name, text in zip(("qmd.service", "qmd.timer"), _snippets("ini"), strict=True):
        assert f"`~/.config/systemd/user/{name}`" in (ROOT / _PAGE).read_text("utf-8")
        (units / name).write_text(text)
    run = run_in(clone, ["systemd-analyze", "verify", "--user", *map(str, units.iterdir())], XDG_RUNTIME_DIR=str(clone))
    assert (run.returncode, run.stdout + run.stderr) == (0, "")


@_needs("git")
def test_git_indexes_each_commit_in_silence(clone: Path) -> None:
    [install] = [body for body in _snippets("sh") if "post-commit" in body]
    hook = "~/project/.git/hooks/post-commit"
    own = f"printf '#!/bin/sh\\necho my own hook\\n' > {hook} && chmod +x {hook}"
    ready = f"git init -q ~/project && echo '# First' > ~/project/first.md && {own} && qmd index ~/project --no-embed"
    assert _sh(clone, f"{ready}\n{install}").returncode == 0
    commit = "git -c user.name=a -c user.email=a@b commit -qm note"
    run = _sh(clone, f"cd ~/project; echo '# Toucan' > new.md; git add new.md; {commit}")
    assert (run.returncode, run.stdout + run.stderr) == (0, "my own hook\n")
    assert _found(clone, "toucan") == "../project/new.md\n"
