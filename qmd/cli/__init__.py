"""The `qmd` command: arguments come in; results on stdout, the rest on stderr, and an exit status go out.

Each command is a module that is imported when it is used, so `qmd search` pays for nothing but searching.
It must not know SQL, model files, or protocols: those are asked through the packages below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qmd.cli.app import main

__all__ = ["main"]


def __getattr__(name: str) -> object:
    """`main`, imported when first asked for."""
    if name != "main":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from qmd.cli.app import main

    return main
