"""Computation of missing vectors while a server is idle."""

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
"""Delay after the start of a server, which usually has a request to answer first."""

CHECK_S = 30.0
"""Interval between two checks for missing vectors; one costs some milliseconds."""

RETRY_S = 600.0
"""Delay after a failure such as a missing model or a full disk."""

_END_S = 2.0


class VectorWorker:
    """Thread that computes missing vectors while no request uses the index.

    Args:
        index: The index to serve.
        start_s: Seconds before the first check.
    """

    def __init__(self, index: Index, start_s: float = START_S) -> None:
        self.is_busy = False
        """True between the start of a computation and its end."""
        self._index = index
        self._start_s = start_s
        self._is_stopped = threading.Event()
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._run, name="vectors", daemon=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Work while the block runs. An interrupted slice, at most three seconds of work, is computed again later."""
        self._thread.start()
        try:
            yield
        finally:
            self._is_stopped.set()
            self._thread.join(_END_S)

    def _run(self) -> None:
        # Not at a low priority: a search may wait for locks of Python and of the models that this thread owns.
        pause_s = self._start_s
        try:
            while not self._is_stopped.wait(pause_s):
                self.is_busy = True
                pause_s = self._work()
                self.is_busy = not pause_s
        finally:
            self.is_busy = False

    def _work(self) -> float:
        """Compute a slice; return the seconds to wait before the next one."""
        try:
            has_more = self._index.embed_in_background(self._is_stopped.is_set)
        except (AlreadyEmbeddingError, StoppedError):
            return CHECK_S
        except (QmdError, OSError) as error:
            remedy = f"; {error.hint}" if isinstance(error, QmdError) and error.hint else ""
            failure = f"missing vectors are not computed: {error}{remedy}"
            if failure != self._failure:
                self._failure = failure
                _logger.warning(failure)
            return RETRY_S
        return 0.0 if has_more else CHECK_S
