"""Remaining time of a job."""

import pytest

from qmd.progress import Pace, Progress, duration_text


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now

    def run(self, pace: Pace, steps: list[tuple[int, float]]) -> Progress:
        """Return the last state after jobs of (units, seconds)."""
        done = 0
        progress = pace.at(done)
        for units, seconds in steps:
            self.now += seconds
            done += units
            progress = pace.at(done)
        return progress


def test_time_left_is_what_the_rest_takes_at_a_steady_rate() -> None:
    clock = Clock()
    progress = clock.run(Pace(1_000, clock=clock), [(10, 1.0)] * 30)
    assert (progress.done, progress.total, progress.elapsed_s) == (300, 1_000, 30.0)
    assert progress.rate == pytest.approx(10.0)
    assert progress.left_s == pytest.approx(70.0)


def test_a_start_that_cost_nothing_is_forgotten() -> None:
    clock = Clock()
    progress = clock.run(Pace(1_000, clock=clock), [(200, 0.1), *[(10, 1.0)] * 40])
    assert progress.left_s == pytest.approx(40.0, rel=0.05)


def test_work_before_the_first_state_does_not_count_for_the_rate() -> None:
    clock = Clock()
    pace = Pace(1_000, clock=clock)
    clock.now += 60.0
    assert pace.at(500).left_s is None
    clock.now += 10.0
    assert pace.at(600).left_s == pytest.approx(40.0)


def test_nothing_is_said_of_time_before_there_is_something_to_measure() -> None:
    clock = Clock()
    assert Pace(1_000, clock=clock).at(0) == Progress(0, 1_000)
    assert Pace(0, clock=clock).at(0).percent == 100


def test_a_job_never_goes_back_nor_beyond_its_end() -> None:
    clock = Clock()
    pace = Pace(100, clock=clock)
    clock.now += 1
    assert [pace.at(done).done for done in (40, 30, 400)] == [40, 40, 100]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 s"),
        (44.6, "45 s"),
        (74.0, "1 min 15 s"),
        (119.0, "2 min 00 s"),
        (601.0, "10 min"),
        (3_900.0, "1 h 05 min"),
        (40_000.0, "11 h"),
    ],
)
def test_a_time_is_as_exact_as_it_can_be_known(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
