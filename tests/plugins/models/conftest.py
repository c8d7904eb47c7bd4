"""The hub on this machine that tests of downloads pull from."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins.models.model_hub import FakeHub, serve_hub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """A hub without an access token or a proxy."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))
    with serve_hub() as running:
        yield running
