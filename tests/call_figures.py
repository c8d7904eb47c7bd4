"""What one command runs: functions and modules of ours, and how deep below the command each SQL statement lies.

`python -m tests.call_figures search plums` prints, for an index that the environment names: functions, own modules at
the end, SQL statements, and the median and the largest number of our frames above one.
"""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from statistics import median_low
from types import CodeType, FrameType

from qmd.cli.app import main

_PACKAGE = str(Path(__file__).resolve().parents[1] / "qmd") + "/"
_INLINE = {"<lambda>", "<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>"}
_STATEMENTS = {f"{owner}.{call}" for owner in ("Cursor", "Connection") for call in ("execute", "executemany")}
_IS_FUNCTION = 1
"""`CO_OPTIMIZED`: modules and class bodies lack it."""

_functions: set[CodeType] = set()
_depths: list[int] = []


def _is_ours(code: CodeType) -> bool:
    return bool(code.co_flags & _IS_FUNCTION) and code.co_filename.startswith(_PACKAGE) and code.co_name not in _INLINE


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _see(frame: FrameType, event: str, argument: object) -> None:
    if event == "call" and _is_ours(frame.f_code):
        _functions.add(frame.f_code)
    elif event == "c_call" and getattr(argument, "__qualname__", "") in _STATEMENTS:
        _depths.append(sum(_is_ours(one.f_code) for one in _frames(frame)))


def measure(arguments: list[str]) -> dict[str, int]:
    """Run a command, its output thrown away; the figures by name."""
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        threading.setprofile(_see)
        sys.setprofile(_see)
        status = main(arguments)
        sys.setprofile(None)
    own = sum(name == "qmd" or name.startswith("qmd.") for name in sys.modules)
    figures = {"functions": len(_functions), "modules": own, "statements": len(_depths)}
    return {"status": status, **figures, "median": median_low(_depths), "deepest": max(_depths)}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1:])))
