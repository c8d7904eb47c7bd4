"""Search in stages: lexical hits at once, then by meaning, then reranked."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from time import perf_counter
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from qmd.errors import QmdError
from qmd.render.text import VERDICT_NOTES
from qmd.retrieval.trace import CancelledSearch, Listener

if TYPE_CHECKING:
    from qmd.app.index import Index
    from qmd.records import SearchResponse
    from qmd.retrieval.request import SearchRequest

NOTHING_YET = "Nothing is indexed yet. Make notes searchable:  qmd index ~/notes"

_TYPING_S = 0.03
"""Pause before the lexical search: the time between two keys of a fast typist or a paste."""

_FIRST_HITS = 12
"""Hits of the first lexical search, a screenful: the passages of a list cost more than the search."""

_THINKING_S = 0.2
"""Pause before a search with models: most people type the next key sooner."""


class PendingSearch(Listener):
    """Search that the next typed query cancels; its result is then dropped."""

    def __init__(self) -> None:
        self._over = Event()

    @property
    def is_cancelled(self) -> bool:
        return self._over.is_set()

    def cancel(self) -> None:
        """End the search; call it when the next query comes."""
        self._over.set()

    def is_current_after(self, seconds: float) -> bool:
        """Wait, and return whether no other query has come."""
        return not self._over.wait(seconds)


class Answer(Struct, frozen=True):
    """Result of a stage."""

    stage: str
    """`words`, `meaning` or `reranked`."""
    is_last: bool
    elapsed_ms: float
    response: SearchResponse

    @property
    def state(self) -> str:
        """Stage, duration, and `…` if more stages follow: `words · 12 ms …`."""
        time = f"{self.elapsed_ms:.0f} ms" if self.elapsed_ms < 1000 else f"{self.elapsed_ms / 1000:.1f} s"
        return f"{self.stage} · {time}{'' if self.is_last else ' …'}"

    def notices(self, *, is_asked: bool, has_words: bool) -> list[str]:
        """Return the notices below the list; for the latest notes only whether the index is empty."""
        found = self.response
        if not is_asked and not found.hits:
            return [NOTHING_YET]
        lines = [] if found.hits else ["No note matches."]
        if self.is_last and has_words and found.hits and found.verdict in VERDICT_NOTES:
            lines.append(VERDICT_NOTES[found.verdict])
        return [*lines, *(found.warnings if self.is_last else ())]


def search_in_stages(
    index: Index, request: SearchRequest, pending: PendingSearch, report: Callable[[Answer], object]
) -> None:
    """Search in stages and report each; end early, without an error, when `pending` is cancelled.

    Args:
        request: Request of the last stage; earlier stages do less.

    Raises:
        QmdError: A search fails.
    """
    stages = _stages(request)
    for name, pause_s, one in stages:
        if not pending.is_current_after(pause_s):
            return
        began = perf_counter()
        try:
            response = index.search(one, pending)
        except CancelledSearch:
            return
        except QmdError:
            if pending.is_cancelled:
                return
            raise
        if name == "reranked" and not any(timing.stage == "rerank" for timing in response.timings):
            name = "meaning"
        report(Answer(name, one is stages[-1][2], (perf_counter() - began) * 1000, response))


def _stages(request: SearchRequest) -> list[tuple[str, float, SearchRequest]]:
    """Return (name, pause before it in seconds, request) of each stage."""
    if request.mode == "lexical" and request.limit <= _FIRST_HITS:
        return [("words", _TYPING_S, request)]
    words = ("words", _TYPING_S, replace(request, mode="lexical", limit=min(request.limit, _FIRST_HITS)))
    if request.mode == "lexical":
        return [words, ("words", _THINKING_S, request)]
    if request.mode == "dense":
        return [("meaning", _THINKING_S, request)]
    fused = ("meaning", _THINKING_S, replace(request, rerank=False, expand=False))
    return [words, fused, ("reranked", _THINKING_S, request)] if request.rerank is not False else [words, fused]
