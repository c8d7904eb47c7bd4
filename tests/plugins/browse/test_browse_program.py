"""`qmd browse` as a process: refusals, and a picker in a command substitution on a real terminal."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.program import Qmd, home, indexed, notes, qmd

__all__ = ["home", "indexed", "notes", "qmd"]

TERMINAL = {"PYTHONPATH": str(Path(__file__).parents[3]), "TERM": "xterm", "NO_COLOR": "1"}
COMMANDS = [("browse",), ("query", "-i"), ("search", "-i")]


@pytest.mark.parametrize("argv", COMMANDS, ids=" ".join)
def test_a_screen_needs_a_terminal(indexed: Qmd, argv: tuple[str, ...]) -> None:
    run = indexed(*argv)
    assert (run.status, run.out) == (1, "")
    case = "letter case never matters; " if len(argv) > 1 else ""
    hint = f"hint: {case}in a script: qmd query --json"
    assert run.err == f"error: 'qmd {' '.join(argv)}' needs a terminal with a keyboard\n{hint}\n"


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals")
@pytest.mark.parametrize("ends", ["at once", "while it is shown"])
def test_a_screen_ends_with_its_keyboard(indexed: Qmd, ends: str) -> None:
    import pty

    ours, theirs = pty.openpty()
    if ends == "at once":
        os.write(ours, b"\x04")  # as `script </dev/null` does
    program = [sys.executable, "-m", "qmd", "browse", "--no-gpu"]
    with subprocess.Popen(
        program, stdin=theirs, stderr=theirs, env={**os.environ, **TERMINAL}, start_new_session=True
    ) as running:
        os.close(theirs)
        shown = b""
        while b"Sunday" not in shown and b"hint: in a script: qmd query --json" not in shown:
            shown += os.read(ours, 1000)
        os.close(ours)
        assert running.wait(60) == 1
    assert (b"error: 'qmd browse' needs a terminal with a keyboard" in shown) == (ends == "at once")


class Terminal:
    """Emulated terminal with a screen."""

    def __init__(self, socket: str) -> None:
        self._tmux = ("tmux", "-L", socket)
        shell = ("env", "-u", "TMUX", "sh")
        self.run("-f", os.devnull, "new-session", "-d", "-x", "80", "-y", "24", *shell)

    def run(self, *arguments: str) -> str:
        return subprocess.run([*self._tmux, *arguments], check=True, capture_output=True, encoding="utf-8").stdout

    def press(self, *keys: str) -> None:
        self.run("send-keys", *keys)

    def until(self, holds: Callable[[str], bool]) -> str:
        end = time.monotonic() + 30
        while not holds(screen := self.run("capture-pane", "-p")):
            assert time.monotonic() < end, screen
            time.sleep(0.05)
        return screen


@pytest.fixture
def terminal(home: Path) -> Iterator[Terminal]:
    if shutil.which("tmux") is None:
        pytest.skip("there is no tmux")
    opened = Terminal(f"qmd-{os.getpid()}")
    yield opened
    opened.run("kill-server")


def test_a_picker_draws_on_stderr_and_prints_the_choice_alone(indexed: Qmd, home: Path, terminal: Terminal) -> None:
    program = f"{shlex.quote(sys.executable)} -m qmd query -i --full-path --no-gpu window"
    terminal.press(f'chosen=$({program}); echo "chose <$chosen>"', "Enter")
    terminal.until(lambda screen: "● Sunday" in screen and "sliding window" in screen)
    terminal.press("Enter")
    screen = terminal.until(lambda screen: "chose <" in screen.replace('"chose <$chosen>"', ""))
    assert f"chose <{home / 'notes/daily/sunday.md'}>" in screen.replace("\n", "")


def test_a_terminal_is_handed_back_when_the_program_is_terminated(indexed: Qmd, home: Path, terminal: Terminal) -> None:
    program = f"{shlex.quote(sys.executable)} -m qmd browse --no-gpu window"
    terminal.press(f"sh -c 'echo $$ > \"{home}/pid\"; exec {program}'; stty -a | grep -c ' icanon'", "Enter")
    terminal.until(lambda screen: "● Sunday" in screen)
    os.kill(int((home / "pid").read_text()), signal.SIGTERM)
    # A slow shell may have drawn a prompt next to the number.
    terminal.until(lambda screen: "1" in screen.split() and "● Sunday" not in screen)


def test_a_mistake_of_ours_is_one_line_on_the_terminal_as_it_was(indexed: Qmd, home: Path, terminal: Terminal) -> None:
    (home / "mistaken.py").write_text(
        "import sys\nfrom qmd.plugins.browse.app import BrowseApp\nfrom qmd.__main__ import run\n"
        "BrowseApp._show_answer = lambda *given: 1 / 0\nsys.argv = ['qmd', 'browse', '--no-gpu']\nrun()\n"
    )
    terminal.press(f"{shlex.quote(sys.executable)} {shlex.quote(str(home / 'mistaken.py'))}; echo status $?", "Enter")
    screen = terminal.until(lambda screen: "status 1" in screen)
    assert "error: unexpected ZeroDivisionError: division by zero" in screen
    assert "Traceback" not in screen
