"""Detection of the terminal's background."""

import os
import sys
from threading import Thread

import pytest

from qmd.plugins.browse.background import is_light

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo terminals")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"\x1b]11;rgb:ffff/ffff/f0f0\x07\x1b[?62;4c", True),
        (b"\x1b]11;rgb:1e1e/1e1e/2e2e\x1b\\\x1b[?6c", False),
        (b"\x1b[?1;2c", False),
    ],
)
def test_the_terminal_tells_whether_its_ground_is_light(answer: bytes, expected: bool) -> None:
    import pty

    ours, theirs = pty.openpty()

    def tell() -> None:
        assert os.read(ours, 100).endswith(b"\x1b[c")
        os.write(ours, answer)

    terminal = Thread(target=tell)
    try:
        terminal.start()
        assert is_light({}, theirs, theirs) is expected
    finally:
        terminal.join()
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize(("told", "expected"), [("0;15", True), ("15;default;0", False), ("0;7", True)])
def test_a_variable_of_the_terminal_spares_the_question(told: str, expected: bool) -> None:
    assert is_light({"COLORFGBG": told}, -1, -1) is expected
