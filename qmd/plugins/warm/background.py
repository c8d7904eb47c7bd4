"""A server's idle time goes into the vectors that its index lacks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from qmd.app.index import Index
from qmd.app.queues import StoppedError
from qmd.errors import AlreadyEmbeddingError, QmdError

_logger = logging.getLogger("qmd.behind")

START_S = 10.0
"""Whoever has started a server wants something of it first."""

LOOK_S = 30.0
"""Between two looks for texts that lack vectors; one costs some milliseconds."""

RETRY_S = 600.0
"""After a failure: a model that is missing, a full disk."""

_END_S = 2.0


class VectorWorker:
    """A thread that computes missing vectors while nobody asks the index anything.

    Args:
        index: What is served.
        start_s: Seconds before it begins.
    """

    def __init__(self, index: Index, start_s: float = START_S) -> None:
        self.is_busy = False
        """Whether it has begun something that is not done."""
        self._index = index
        self._start_s = start_s
        self._is_stopped = threading.Event()
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._run, name="vectors", daemon=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Work while the block runs. What the end interrupts, at most three seconds of work, is computed again."""
        self._thread.start()
        try:
            yield
        finally:
            self._is_stopped.set()
            self._thread.join(_END_S)

    def _run(self) -> None:
        # Not at a low priority itself: it holds locks of Python and of the models that a search may wait for.
        pause_s = self._start_s
        try:
            while not self._is_stopped.wait(pause_s):
                self.is_busy = True
                pause_s = self._work()
                self.is_busy = not pause_s
        finally:
            self.is_busy = False

    def _work(self) -> float:
        """Compute a slice; for how long there is then nothing to do."""
        try:
            is_behind = self._index.embed_in_background(self._is_stopped.is_set)
        except (AlreadyEmbeddingError, StoppedError):
            return LOOK_S
        except (QmdError, OSError) as error:
            remedy = f"; {error.hint}" if isinstance(error, QmdError) and error.hint else ""
            failure = f"missing vectors are not computed: {error}{remedy}"
            if failure != self._failure:
                self._failure = failure
                _logger.warning(failure)
            return RETRY_S
        return 0.0 if is_behind else LOOK_S
