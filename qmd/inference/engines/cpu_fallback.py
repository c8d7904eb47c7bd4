"""Rerankers and expanders that continue on the CPU when the smallest run does not fit in the GPU's memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from qmd.inference.base import EngineDescription, Expansion
from qmd.inference.runtime.gpu_memory import OutOfMemory

_Answer = TypeVar("_Answer")


class FallbackEngine:
    """A `Reranker` or an `Expander`; `load` opens it with the GPU (True) or without."""

    def __init__(self, load: Callable[[bool], Any]) -> None:
        self._load = load
        self._note: str | None = None
        try:
            self.engine = load(True)
        except OutOfMemory:
            self._fall_back()

    @property
    def description(self) -> EngineDescription:
        """The engine's description, with the reason why it left the GPU."""
        description: EngineDescription = self.engine.description
        return replace(description, note=self._note)

    def score(self, query: str, passages: Sequence[str], **limits: Any) -> Sequence[float | None]:
        return self._ask(lambda engine: engine.score(query, passages, **limits))

    def expand(self, query: str, **limits: Any) -> Expansion:
        expansion: Expansion = self._ask(lambda engine: engine.expand(query, **limits))
        return expansion

    def _ask(self, question: Callable[[Any], _Answer]) -> _Answer:
        try:
            return question(self.engine)
        except OutOfMemory:
            if self.description.provider == "cpu":
                raise
        # Outside the handler: its traceback would keep the session and its memory.
        self._fall_back()
        return question(self.engine)

    def _fall_back(self) -> None:
        self.engine = self._load(False)
        self._note = f"'{self.engine.description.model}' runs on the CPU: the GPU has no memory left for it"
