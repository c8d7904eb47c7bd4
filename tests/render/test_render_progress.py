"""Progress line on a terminal."""

import pytest
from rich.cells import cell_len

from qmd.progress import Progress
from qmd.render.drawing import Screen
from qmd.render.progress import progress_line
from qmd.render.terminal import Styled

HALF_WAY = Progress(12_100_000, 28_000_000, 60.0, 210_000.0, 75.2)


def plain(width: int) -> Screen:
    return Screen(width, 24, None)


def test_a_run_over_texts_shows_bar_share_amount_rate_and_time_left() -> None:
    assert progress_line("Vectors", HALF_WAY, "bytes", plain(80)) == (
        "Vectors  ━━━━━━━             43 %  12.1 of 28.0 MB  210 kB/s  1 min 15 s left"
    )


@pytest.mark.parametrize("width", [10, 20, 40, 60, 80, 200])
@pytest.mark.parametrize("label", ["Vectors", "Words of my-notes-with-a-long-name", "Words of 我的笔记我的笔记"])
def test_the_line_leaves_room_for_what_the_terminal_shows_of_ctrl_c(width: int, label: str) -> None:
    for progress in (HALF_WAY, Progress(0, 28_000_000), Progress(5, 10, 2.0, 1.0, 599.0)):
        for unit in ("bytes", "items"):
            line = progress_line(label, progress, unit, plain(width))
            assert isinstance(line, Styled)
            assert "\n" not in line
            assert cell_len(line) <= max(width, 20) - 3


def test_what_matters_most_stays_on_a_narrow_terminal() -> None:
    line = progress_line("Vectors", HALF_WAY, "bytes", plain(40))
    assert line.endswith("43 %  1 min 15 s left")
    assert "━" in line


def test_every_part_keeps_its_place() -> None:
    shown = [
        progress_line("Vectors", Progress(done, 28_000_000, 60.0, rate, left), "bytes", plain(80))
        for done, rate, left in ((0, 9e3, 595.0), (900_000, 21e4, 65.0), (27_000_000, 9e5, 4.0))
    ]
    assert len({line.index(" %") for line in shown}) == 1
    assert len({line.index(" of 28.0 MB") for line in shown}) == 1
    assert len({line.index("B/s") for line in shown}) == 1


def test_a_time_left_that_means_nothing_yet_is_not_shown() -> None:
    line = progress_line("Vectors", Progress(1_000, 28_000_000, 0.4, 2_500.0, 11_000.0), "bytes", plain(80))
    assert "left" not in line and "B/s" not in line


def test_things_are_counted_in_whole_numbers() -> None:
    line = progress_line("Words of notes", Progress(512, 1_186, 2.0, 310.0, 2.2), "items", plain(80))
    assert line.endswith("43 %    512 of 1,186     310/s  2 s left")


def test_a_name_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in progress_line("Words of \x1b[2J", HALF_WAY, "bytes", plain(80))
    assert "\x1b[36m" in progress_line("Vectors", HALF_WAY, "bytes", Screen(80, 24, "standard"))
