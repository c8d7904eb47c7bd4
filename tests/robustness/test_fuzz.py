"""A fixed few of the inputs that the long runs try by the hundred thousand; see README.md."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.robustness.fuzz import Job, case_of, run
from tests.robustness.strangers import Touched, Watch
from tests.robustness.targets import TARGETS

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes cannot be waited for there")

SEED = 2_026
_CASES = {
    "files": 120,
    "configurations": 150,
    "queries": 100,
    "globs": 80,
    "messages": 50,
    # What strangers send.
    "answers": 250,
    "archives": 400,
    "encoders": 200,
    "hub": 40,
    "projects": 610,
    "servers": 800,
    "settings": 2_000,
    "weights": 150,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_no_input_ends_in_anything_but_an_answer_or_one_line_of_refusal(name: str, tmp_path: Path) -> None:
    # Without real files, so that no edit of a document changes the cases.
    row = run(Job(TARGETS[name], SEED, tmp_path), _CASES[name], keep=tmp_path / "failing")
    assert row.tries == _CASES[name]
    assert row.failures == []


@pytest.mark.parametrize("deed", ["make", "change", "read", "link"])
def test_the_watch_over_everything_outside_notices_what_is_done_there(tmp_path: Path, deed: str) -> None:
    (tmp_path / "precious").write_text("mine")
    watch = Watch([tmp_path], (tmp_path / "inside",))
    (tmp_path / "inside").write_text("allowed")
    watch.check()
    if deed == "make":
        (tmp_path / "new").touch()
    elif deed == "change":
        (tmp_path / "precious").write_text("gone")
    elif deed == "read":
        (tmp_path / "precious").read_text()
        if (tmp_path / "precious").stat().st_atime < 1_100_000_000:
            pytest.skip("this file system keeps no times of access")
    else:
        (tmp_path / "new").symlink_to("precious")
    with pytest.raises(Touched):
        watch.check()


def test_a_case_is_made_from_seed_and_number_alone() -> None:
    for target in TARGETS.values():
        once, again, other = ([case_of(target, seed, n, ()) for n in range(30)] for seed in (1, 1, 2))
        assert once == again != other


class _Scripted(Job):
    """A job whose child waits in case 0 and on in case 1, computes in case 2, dies in case 3, and fails in case 4."""

    __slots__ = ()

    def command(self, first: int, last: int) -> list[str]:
        script = (
            "import os, sys, time\n"
            "for number in range(int(sys.argv[1]), int(sys.argv[2])):\n"
            "    print(number, flush=True)\n"
            "    number == 0 and time.sleep(1)\n"
            "    number == 1 and time.sleep(60)\n"
            "    number == 2 and sum(range(1 << 34))\n"
            "    number == 3 and os._exit(9)\n"
            "    number == 4 and print('failed ValueError: four', flush=True)\n"
            "print('done', flush=True)\n"
        )
        return [sys.executable, "-c", script, str(first), str(last)]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processor time in /proc")
def test_a_hang_and_a_death_are_findings_and_load_alone_is_none(tmp_path: Path) -> None:
    row = run(_Scripted(TARGETS["globs"], 1, None, silence_s=0.3), 6, keep=tmp_path)
    assert row.tries == 6
    found = [failure.partition(": ")[2] for failure in row.failures]
    assert re.fullmatch(r"no end after 0\.[01] s of work in [3-9]\.\d s", found[0])
    assert re.match(r"no end after (0\.[3-9]|[1-9]\.\d) s of work in ", found[1])
    assert found[2:] == ["died with status 9", "ValueError: four"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"globs-1-{number}" for number in range(1, 5)]
