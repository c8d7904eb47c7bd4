"""Installed distributions that overwrite each other."""

from __future__ import annotations

import sys
from pathlib import Path

TWINS = (("qmd-search", "qmd-search-cpu"), ("onnxruntime-gpu", "onnxruntime"), ("fastembed-gpu", "fastembed"))
"""Distributions that write the same folder: with what an NVIDIA card needs, and without."""


def overwritten() -> list[str]:
    """Twins that are both installed, in pairs.

    By names of files: `importlib.metadata` takes longer to import than the program to say its version.
    """
    noted = (file.name for folder in sys.path for file in Path(folder).glob("*.dist-info"))
    found = {name.partition("-")[0].replace("_", "-") for name in noted}
    return [name for pair in TWINS if found.issuperset(pair) for name in pair]
