"""Installed distributions that overwrite each other."""

from __future__ import annotations

import sys
from pathlib import Path

TWINS = (("qmd-search", "qmd-search-cpu"), ("onnxruntime-gpu", "onnxruntime"), ("fastembed-gpu", "fastembed"))
"""Distributions that write the same folder: with and without support for NVIDIA cards."""


def overwritten() -> list[str]:
    """Return twins that are both installed, in pairs.

    Reads file names: `importlib.metadata` takes longer to import than the program to print its version.
    """
    noted = (file.name for folder in sys.path for file in Path(folder).glob("*.dist-info"))
    found = {name.partition("-")[0].replace("_", "-") for name in noted}
    return [name for pair in TWINS if found.issuperset(pair) for name in pair]
