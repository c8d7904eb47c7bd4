"""A question as its answers come in: words at once, then meaning, then in the order of the reranker."""

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
    from qmd.app.searching import SearchRequest
    from qmd.records import SearchResponse

NOTHING_YET = "Nothing is indexed yet. Make notes searchable:  qmd index ~/notes"

_TYPING_S = 0.03
"""Between two keys of a fast typist or of a paste; words do not wait longer."""

_FIRST_HITS = 12
"""What words bring at once, a screenful: the passages of a list cost more than finding it."""

_THINKING_S = 0.2
"""A pause after which models are worth their while: most people type the next key before."""


class PendingSearch(Listener):
    """One question, until the next one is typed; whatever it still asks then ends, and its answer is nobody's."""

    def __init__(self) -> None:
        self._over = Event()

    @property
    def is_cancelled(self) -> bool:
        return self._over.is_set()

    def leave(self) -> None:
        """The next question is there."""
        self._over.set()

    def lasts_longer_than(self, seconds: float) -> bool:
        """Whether it is still the last question after so long."""
        return not self._over.wait(seconds)


class Answer(Struct, frozen=True):
    """What a stage found."""

    stage: str
    """What the answer rests on: `words`, `meaning` or `reranked`."""
    is_last: bool
    elapsed_ms: float
    response: SearchResponse

    @property
    def state(self) -> str:
        """What it rests on, how long it took, and whether better ones follow: `words · 12 ms …`."""
        time = f"{self.elapsed_ms:.0f} ms" if self.elapsed_ms < 1000 else f"{self.elapsed_ms / 1000:.1f} s"
        return f"{self.stage} · {time}{'' if self.is_last else ' …'}"

    def notice(self, *, is_asked: bool, has_words: bool) -> str:
        """What there is to say of it below the list; of nothing but the latest notes only that there are none."""
        found = self.response
        if not is_asked and not found.hits:
            return NOTHING_YET
        lines = [] if found.hits else ["No note matches."]
        if self.is_last:
            lines += found.warnings
        if self.is_last and has_words and found.hits and found.verdict in VERDICT_NOTES:
            lines.append(VERDICT_NOTES[found.verdict])
        return " · ".join(lines)


def ask(index: Index, request: SearchRequest, turn: PendingSearch, tell: Callable[[Answer], object]) -> None:
    """Search in stages and tell of each; ends early, and without an error, when the turn is over.

    Args:
        request: The whole request; earlier stages leave something out of it.

    Raises:
        QmdError: What a search fails with.
    """
    stages = _stages(request)
    for name, pause_s, one in stages:
        if not turn.lasts_longer_than(pause_s):
            return
        began = perf_counter()
        try:
            response = index.search(one, turn)
        except CancelledSearch:
            return
        except QmdError:
            if turn.is_cancelled:
                return
            raise
        if name == "reranked" and not any(timing.stage == "rerank" for timing in response.timings):
            name = "meaning"
        tell(Answer(name, one is stages[-1][2], (perf_counter() - began) * 1000, response))


def _stages(request: SearchRequest) -> list[tuple[str, float, SearchRequest]]:
    """(what is said of it, the pause before it, the request) of each stage."""
    if request.mode == "lexical" and request.limit <= _FIRST_HITS:
        return [("words", _TYPING_S, request)]
    words = ("words", _TYPING_S, replace(request, mode="lexical", limit=min(request.limit, _FIRST_HITS)))
    if request.mode == "lexical":
        return [words, ("words", _THINKING_S, request)]
    if request.mode == "dense":
        return [("meaning", _THINKING_S, request)]
    fused = ("meaning", _THINKING_S, replace(request, rerank=False, expand=False))
    return [words, fused, ("reranked", _THINKING_S, request)] if request.rerank is not False else [words, fused]
