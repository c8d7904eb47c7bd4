"""The distribution is called `qmd-search`; the package index has a stranger's project called `qmd`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

import qmd

ROOT = Path(__file__).parents[1]
_PLACES = ("qmd", "docs", "models", ".ci", "justfile", "pyproject.toml", *(file.name for file in ROOT.glob("*.md")))
_TEXT = {".py", ".md", ".toml", ".yml", ".yaml", ".json", ".txt", ".sh", ""}
_INSTALLERS = (
    r"pip3? install|pip3? download|uv tool (?:install|run|upgrade)|uv add|uvx|pipx \w+|poetry add|conda install"
)
_INSTALLS = re.compile(rf"\b(?:{_INSTALLERS})\b([^\n`|;&]*)")
_STRANGER = re.compile(r"(?<![\w./@-])qmd(?:\[[^\]]*\])?(?:[=<>~!][^\s'\"]*)?(?![\w./-])")
_UNHELD = re.compile(r"\b(?:install|download|add|inject|uvx|tool run)\b[^`|;&.,]{0,40}\bqmd-search\b")
_EXTRA = re.compile(r"(?<![\w-])qmd\[\w")


def _mistakes(text: str) -> list[str]:
    """Commands that would install the stranger's project, and its name with one of our extras."""
    commands = [found[0] for found in _INSTALLS.finditer(text) if _STRANGER.search(found[1])]
    return commands + [found[0] for found in _EXTRA.finditer(text)]


def _files() -> Iterator[Path]:
    for place in _PLACES:
        path = ROOT / place
        candidates = [path] if path.is_file() else sorted(path.rglob("*"))
        yield from (
            file for file in candidates if file.is_file() and file.suffix in _TEXT and file.stat().st_size < 10**6
        )


def test_no_file_says_to_install_the_project_of_another_author() -> None:
    found = {str(file.relative_to(ROOT)): _mistakes(file.read_text("utf-8", "replace")) for file in _files()}
    assert len(found) > 150
    assert {file: mistakes for file, mistakes in found.items() if mistakes} == {}


def test_no_file_says_to_install_a_name_that_nobody_holds_yet() -> None:
    """Whoever registers it first could be anybody; `install_command` knows where this program came from."""
    found = {str(file.relative_to(ROOT)): _UNHELD.findall(file.read_text("utf-8", "replace")) for file in _files()}
    assert {file: commands for file, commands in found.items() if commands} == {}
    assert _UNHELD.search("`pip install 'qmd-search[code]'`") and not _UNHELD.search("pipx uninstall qmd-search")


@pytest.mark.parametrize(
    ("text", "is_mistake"),
    [
        ("pip install qmd", True),
        ("pip install 'qmd[code]'", True),
        ("pip install -U qmd==0.1.2", True),
        ("uv tool install qmd", True),
        ("pipx install qmd", True),
        ("run uvx qmd search", True),
        ("the extra `qmd[browse]`", True),
        ("pip install qmd-search", False),
        ("pip install 'qmd-search[code]'", False),
        ("pip install . && .venv/bin/qmd index docs", False),
        ("uv tool install . installs it", False),
        ("`pip install .` puts `qmd` there", False),
    ],
)
def test_a_command_that_names_the_other_project_is_seen(text: str, is_mistake: bool) -> None:
    assert bool(_mistakes(text)) == is_mistake


def test_the_installed_distribution_is_ours_and_brings_the_command() -> None:
    assert metadata.version("qmd-search") == qmd.__version__
    with pytest.raises(metadata.PackageNotFoundError):
        metadata.version("qmd")
    scripts = [one for one in metadata.distribution("qmd-search").entry_points if one.group == "console_scripts"]
    # `uvx qmd-search` runs the command that is called like the distribution.
    assert {one.name: one.value for one in scripts} == dict.fromkeys(("qmd", "qmd-search"), "qmd.__main__:run")
