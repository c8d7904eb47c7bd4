"""The SDK that the tests have, as one of the clients that `clients` tries."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.robustness.clients.__main__ import main


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="links to an environment")
def test_the_sdk_gets_whole_answers_from_every_tool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "fastmcp").symlink_to(sys.prefix)
    assert main([str(tmp_path), "--only", "Python SDK 2", "--transport", "stdio"]) == 0
    assert "Python SDK 2, stdio: 22 of 22" in capsys.readouterr().out
