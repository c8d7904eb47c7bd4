"""The source of this installation and the commands that change it."""

from __future__ import annotations

import json
import shlex
import sys
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from urllib.request import url2pathname

from msgspec import Struct

from qmd.distributions import TWINS

MODEL = "multilingual"  # the built-in model in a package of its own, and its project's folder


class Installation(Struct, frozen=True):
    """The source of this program, as its installer recorded it; without a record its own folder."""

    name: str = TWINS[0][0]
    place: str = Path(__file__).parents[1].as_uri()
    """Address of a folder, an archive or a revision; empty for a package index."""
    flag: str = ""
    is_cpu: bool = False
    program: str = "pip"


def find_installation() -> Installation:
    """Return the source of the running program."""
    for name in TWINS[0]:
        with suppress(metadata.PackageNotFoundError):
            noted = metadata.distribution(name)
            origin = json.loads(noted.read_text("direct_url.json") or "{}")
            place, vcs = origin.get("url", ""), origin.get("vcs_info")
            return Installation(
                name,
                f"{vcs['vcs']}+{place}@{vcs['commit_id']}" if vcs else place,
                " -e" if origin.get("dir_info", {}).get("editable") else "",
                not any(one.startswith(TWINS[1][0]) for one in noted.requires or TWINS[1]),
                "uv pip" if (noted.read_text("INSTALLER") or "").strip() == "uv" else "pip",
            )
    return Installation()


def install_command(extra: str | None, prefix: Path = Path(sys.prefix), platform: str = sys.platform) -> str:
    """Return the command that adds an extra to the environment at `prefix`; for None it installs the CPU build.

    For `MODEL` it adds that package. The command names the source of this installation: a name alone is only
    used for a package index, as on another index that name may belong to someone else.
    """
    here, extras, is_windows = find_installation(), {extra} - {None, MODEL}, platform == "win32"
    program, name, place = here.program, here.name, here.place
    gone = f"-y {name} {TWINS[1][0]} {TWINS[2][0]}"
    if (prefix / "pipx_metadata.json").is_file():
        program = f"pipx runpip {prefix.name}"
    elif (receipt := prefix / "uv-receipt.toml").is_file():
        # Extras that are not repeated would be removed.
        asked = tomllib.loads(receipt.read_text("utf-8"))["tool"]["requirements"]
        extras.update(one for part in asked if part["name"] in TWINS[0] for one in part.get("extras", ()))
        # These two exclude each other.
        extras -= {"cuda": {"cuda12"}, "cuda12": {"cuda"}}.get(str(extra), set())
        program, gone = "uv tool", name
    is_built, start = place and not place.endswith(".whl"), ""
    if extra is None:
        start = f"{program} uninstall {gone}" + ("; " if is_windows else " && ")
        extras -= {"cuda", "cuda12"}
        if not is_built:
            # A wheel contains one build; the other one is at its source.
            name, place = TWINS[0][1], place.replace("qmd_search-", "qmd_search_cpu-")
    if is_built and (extra is None or here.is_cpu):
        start += '$env:QMD_RUNTIME="cpu"; ' if is_windows else "QMD_RUNTIME=cpu "
    wanted = _words(_requirement(name, place, sorted(map(str, extras))), place, program, is_model=extra == MODEL)
    return f"{start}{program} install{here.flag} " + " ".join(map('"{}"'.format if is_windows else shlex.quote, wanted))


def _words(requirement: str, place: str, program: str, *, is_model: bool) -> list[str]:
    """Return the words for qmd, or for the multilingual model's project in the source at `place` or in a clone."""
    if not is_model:
        return [requirement]
    source = f"{_requirement('', place, ())}/models/{MODEL}"
    if "+" in place:
        source = f"{place}#subdirectory=models/{MODEL}"
    elif not (place.startswith("file:") and Path(source).is_dir()):
        source = f"./models/{MODEL}"
    # As a tool of its own it would get its own environment.
    return [requirement, "--with", source] if program == "uv tool" else [source]


def _requirement(name: str, place: str, extras: Sequence[str]) -> str:
    chosen = f"[{','.join(extras)}]" if extras else ""
    if place.startswith("file:"):
        return url2pathname(place.removeprefix("file://")) + chosen
    return name + chosen + (f" @ {place}" if place else "")
