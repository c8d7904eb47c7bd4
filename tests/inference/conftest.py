"""The built-in model."""

import pytest

from qmd.inference.engines.embedder import OnnxEmbedder, load_embedder
from qmd.inference.models.builtin import MINILM, locate_builtin


@pytest.fixture(scope="module")
def embedder() -> OnnxEmbedder:
    """The built-in model, which tests leave as it is."""
    return load_embedder(locate_builtin(), MINILM, threads=2)
