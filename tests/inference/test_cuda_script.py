"""The script for a machine with a GPU: every part of it but the device itself. No device is needed."""

from pathlib import Path

import pytest

from qmd.inference.runtime.sessions import cuda_works
from tests.benchmarks import bench_cuda
from tests.benchmarks.bench_cuda import NO_DEVICE, POINTS, Plan, Row, build, main, measure

NINE = (
    "wheels and libraries",
    "driver",
    "three engines",
    "branches in one batch",
    "decode step",
    "prompt in two runs",
    "shared key-value buffer",
    "TF32 off",
    "verdict of a process",
)


@pytest.mark.skipif(cuda_works(), reason="this machine has a CUDA device")
def test_without_a_device_one_line_says_that_nothing_was_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out == f"{NO_DEVICE} (no CUDA driver)\n"


@pytest.mark.slow
def test_a_dry_run_fills_every_row_of_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan(tmp_path, is_dry=True, is_tiny=True, texts=110, queries=1, steps=20)
    build(plan)
    rows = {row.point: row for row in measure(plan)}
    assert tuple(rows) == tuple(POINTS) and set(NINE) < set(rows)
    assert [row for row in rows.values() if not row.passes or row.got.startswith("failed")] == []
    assert rows["shared key-value buffer"].equality.startswith("correlation 1.00000, likeliest token 20 of 20")
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 2 + len(POINTS) and len({line.count("|") for line in table}) == 1
    assert [line for line in table if line.startswith("| decode step") and line.endswith("| yes |")]
    # Without a device the script does not claim results that need one.
    assert [line for line in table if line.startswith("| driver") and line.endswith("| - |")]


def test_a_point_that_fails_is_a_row_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(plan: Plan) -> Row:
        raise RuntimeError("CUDA failure 700:\n an illegal memory access")

    monkeypatch.setattr(bench_cuda, "POINTS", {"decode step": fail, "driver": POINTS["driver"]})
    failed, driver = measure(Plan(tmp_path, True))
    assert (failed.passes, failed.got) == (False, "failed: RuntimeError: CUDA failure 700: an illegal memory access")
    assert driver.passes
    assert "| NO |" in capsys.readouterr().out


def test_the_texts_to_embed_are_sentences_of_the_manual_none_twice() -> None:
    texts = bench_cuda.manual(3000)
    assert len(set(texts)) == 3000 and all(len(text) > 15 for text in texts)
