"""The built-in model."""

import pytest

from qmd.inference.engines.embedder import OnnxEmbedder, load_embedder
from qmd.inference.models.builtin import MINILM, locate_builtin


@pytest.fixture(scope="module")
def embedder() -> OnnxEmbedder:
    """Open the built-in model, which tests do not change."""
    return load_embedder(locate_builtin(), MINILM, threads=2)
