"""Rerankers and expanders that continue on the CPU when the smallest run does not fit in the GPU's memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from qmd.inference.base import EngineDescription, Expander, Expansion, Reranker
from qmd.inference.runtime.gpu_memory import OutOfMemory

_Answer = TypeVar("_Answer")
_Engine = TypeVar("_Engine", bound=Reranker | Expander, covariant=True)


class FallbackEngine(Generic[_Engine]):
    """A `Reranker` or an `Expander`; `load` opens it with the GPU (True) or without."""

    def __init__(self, load: Callable[[bool], _Engine]) -> None:
        self._load = load
        self._note: str | None = None
        try:
            self.engine = load(True)
        except OutOfMemory:
            self._fall_back()

    @property
    def description(self) -> EngineDescription:
        """The engine's description, with the reason why it left the GPU."""
        return replace(self.engine.description, note=self._note)

    def score(
        self: FallbackEngine[Reranker], query: str, passages: Sequence[str], **limits: Any
    ) -> Sequence[float | None]:
        return self._run(lambda engine: engine.score(query, passages, **limits))

    def expand(self: FallbackEngine[Expander], query: str, **limits: Any) -> Expansion:
        return self._run(lambda engine: engine.expand(query, **limits))

    def _run(self, work: Callable[[_Engine], _Answer]) -> _Answer:
        try:
            return work(self.engine)
        except OutOfMemory:
            if self.description.provider == "cpu":
                raise
        # Outside the handler: its traceback would keep the session and its memory.
        self._fall_back()
        return work(self.engine)

    def _fall_back(self) -> None:
        self.engine = self._load(False)
        self._note = f"'{self.engine.description.model}' runs on the CPU: the GPU has no memory left for it"
