"""The hub on this machine that tests of downloads pull from, and the built-in model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from qmd.inference.engines.embedder import OnnxEmbedder, load_embedder
from qmd.inference.models.builtin import MINILM, locate_builtin
from tests.inference.model_hub import FakeHub, serve_hub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """A hub without an access token or a proxy."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))
    with serve_hub() as running:
        yield running


@pytest.fixture(scope="module")
def embedder() -> OnnxEmbedder:
    """The built-in model, which tests leave as it is."""
    return load_embedder(locate_builtin(), MINILM, threads=2)
