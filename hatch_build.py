"""Refuses an old Python in one line, before anything is resolved for it, and chooses the packages that run models."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036, the reason for this file
    sys.exit(f"qmd-search needs Python 3.11 or newer, and this is Python {sys.version_info[0]}.{sys.version_info[1]}")

import os
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

NAME, CPU_NAME = "qmd-search", "qmd-search-cpu"

name = os.environ.get("QMD_DISTRIBUTION") or NAME
runtime = os.environ.get("QMD_RUNTIME") or ("cpu" if name == CPU_NAME else "gpu")
if (name, runtime) not in ((NAME, "gpu"), (NAME, "cpu"), (CPU_NAME, "cpu")):
    sys.exit(f"no build '{name}' for '{runtime}': QMD_RUNTIME is cpu or gpu, QMD_DISTRIBUTION {NAME} or {CPU_NAME} (cpu)")
if runtime != "gpu" and Path(__file__).with_name("PKG-INFO").exists():
    # What it depends on is written in it, and hatchling does not ask again.
    sys.exit("a source archive brings the packages it was made with: build for the CPU from a clone, or use the wheel")


class Dependencies(MetadataHookInterface):
    """Adds the pair of packages that `QMD_RUNTIME` names to those of every build.

    `QMD_DISTRIBUTION` names the wheel. It is a variable of its own, as installers refuse a folder that builds another
    name than its pyproject.toml says.
    """

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict) -> None:
        """See `MetadataHookInterface`."""
        metadata["name"] = name
        metadata["dependencies"] = [*self.config["dependencies"], *self.config[runtime]]
        if runtime == "cpu":
            # It asks for the other runtime, which writes the same directories.
            for extra in ("cuda", "cuda12"):
                del metadata["optional-dependencies"][extra]
