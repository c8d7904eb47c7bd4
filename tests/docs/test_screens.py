"""Pictures of the documentation: complete, made from existing commands, without external resources."""

import re
import runpy
import sys
from pathlib import Path

import pytest

from qmd.cli.commands import COMMANDS

_ROOT = Path(__file__).parents[2]
_FOLDER = _ROOT / "docs" / "screens"


@pytest.fixture(scope="module")
def screens() -> dict[str, tuple[str, ...]]:
    if sys.platform == "win32":
        pytest.skip("the script needs a pty")
    made: dict[str, tuple[str, ...]] = runpy.run_path(str(_FOLDER / "make.py"))["SCREENS"]
    return made


def test_a_picture_is_made_from_a_command_that_exists(screens: dict[str, tuple[str, ...]]) -> None:
    names = {spec.name for spec in COMMANDS}
    assert [argv for argv in screens.values() if argv and argv[0] not in names] == []


def test_every_picture_of_the_list_is_there_and_no_other(screens: dict[str, tuple[str, ...]]) -> None:
    assert {file.stem for kind in ("*.svg", "*.png") for file in _FOLDER.glob(kind)} == set(screens)


def test_a_picture_of_the_page_is_small_enough_for_a_repository() -> None:
    assert [file.name for file in _FOLDER.glob("*.png") if file.stat().st_size > 120_000] == []


def test_every_picture_that_a_page_shows_is_there() -> None:
    pages = [_ROOT / "README.md", *(_ROOT / "docs").glob("*.md")]
    shown = [(page, link) for page in pages for link in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text("utf-8"))]
    assert shown
    assert [link for page, link in shown if not (page.parent / link).is_file()] == []


def test_the_moving_picture_is_small_runs_nothing_and_rests_when_asked() -> None:
    text = (_ROOT / "docs/images/browse.svg").read_text("utf-8")
    assert len(text) < 500_000
    assert "<script" not in text and "prefers-reduced-motion" in text
    frames = re.findall(r'<g id="f(\d+)"', text)
    assert len(frames) > 20 and all(f"@keyframes k{frame}{{" in text for frame in frames)
    assert "Restore" in text and "Ctrl+N, Ctrl+J" in text


@pytest.mark.parametrize(
    "file", sorted((_ROOT / "docs").glob("*/*.svg")), ids=lambda file: f"{file.parent.name}-{file.stem}"
)
def test_a_picture_loads_nothing_and_names_no_folder_of_a_machine(file: Path) -> None:
    text = file.read_text("utf-8")
    assert re.findall(r"https?://(?!www\.w3\.org|www\.textualize\.io)", text) == []
    assert "/tmp/" not in text
