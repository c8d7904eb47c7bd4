import sys

import pytest

from tests.program import Qmd


def test_only_the_built_in_model_is_present_at_first(qmd: Qmd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "qmd_multilingual", None)
    rows = qmd("models", "list", "--json").json
    assert {row["role"] for row in rows} == {"embed", "rerank", "expand"}
    assert [row["name"] for row in rows if row["present"]] == ["all-MiniLM-L6-v2"]


def test_the_built_in_files_pass_their_checksums(qmd: Qmd) -> None:
    run = qmd("models", "verify")
    assert run.status == 0
    assert run.out and all(line.startswith("ok ") for line in run.out.splitlines())


def test_pulling_offline_says_how_to_bring_the_file(qmd: Qmd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMD_OFFLINE", "1")
    run = qmd("pull")
    assert run.status == 4
    assert "QMD_OFFLINE" in run.err and "qmd models import" in run.err


@pytest.mark.parametrize("command", ["path", "remove"])
def test_an_unknown_model_is_named(command: str, qmd: Qmd) -> None:
    run = qmd("models", command, "nope-7b")
    assert (run.status, "'nope-7b'" in run.err) == (3, True)
