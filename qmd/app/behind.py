"""Work of an index that nobody waits for: it goes on while nothing is asked, and gives way at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from qmd.batches import batches
from qmd.environment import thread_gives_way, usable_cpus
from qmd.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from qmd.inference.base import Embedder, EngineDescription

SLICE_S = 30.0
"""After so long the newest notes are looked for again, which takes some 5 % of that in an index of 80,000."""

_BATCH = 16
"""Texts at a time for models on a GPU or a server, where one by one wastes most of the time."""


class PatientEmbedder:
    """An `Embedder` that waits before every text, or few texts, and leaves half of the processors to others.

    Args:
        inner: Computes.
        wait: Returns when there is nothing more urgent; what it raises ends the work.
    """

    def __init__(self, inner: Embedder, wait: Callable[[], None]) -> None:
        self._inner = inner
        self._wait = wait
        self._batch = 1 if inner.description.provider == "cpu" else _BATCH
        self._threads = max(1, usable_cpus() // 2) if self._batch == 1 else 1

    @property
    def description(self) -> EngineDescription:
        """See `Embedder`, as for all the others."""
        return self._inner.description

    @property
    def dim(self) -> int:
        return self._inner.dim

    @property
    def fingerprint(self) -> str:
        return self._inner.fingerprint

    @property
    def max_tokens(self) -> int:
        return self._inner.max_tokens

    def token_starts(self, text: str) -> Sequence[int]:
        # Texts are cut in Python, which holds up every other thread.
        self._wait()
        return self._inner.token_starts(text)

    def embed_documents(
        self, texts: Sequence[str], on_progress: Callable[[int], None] | None = None
    ) -> npt.NDArray[np.float32]:
        from concurrent.futures import ThreadPoolExecutor

        import numpy as np

        done: list[npt.NDArray[np.float32]] = []
        # A text alone is run by the thread that asks for it, so its priority is that of these threads.
        with ThreadPoolExecutor(self._threads, initializer=thread_gives_way) as pool:
            for vectors in pool.map(self._embed, batches(texts, self._batch)):
                done.append(vectors)
                if on_progress is not None:
                    on_progress(sum(map(len, done)))
        return np.concatenate(done)

    def embed_queries(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        return self._inner.embed_queries(texts)

    def embeds(self, text: str) -> bool:
        return self._inner.embeds(text)

    def query_trust(self, text: str) -> float:
        return self._inner.query_trust(text)

    def _embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        self._wait()
        return self._inner.embed_documents(texts)


def refuse_another_model(embedder: Embedder, known: str | None) -> None:
    """Leave it to the user to begin with a model: its vectors take their time, and a server is sent every text.

    Args:
        embedder: The model that is configured.
        known: Fingerprint of the one whose vectors the index holds; None before there are any.

    Raises:
        ModelError: The index has vectors of another model, or none and this one's server would compute them.
    """
    if known is None and embedder.description.tier == "remote":
        raise ModelError("a server's model computes vectors only when it is told to", "begin with: qmd embed")
    if known is not None and known != embedder.fingerprint:
        raise ModelError("the index has vectors of another model than the configured one", "run: qmd embed")
