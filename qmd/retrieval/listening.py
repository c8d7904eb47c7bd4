"""Who waits for the answer of a search: is told of its stages, and may end it between two of them."""

from __future__ import annotations


class CancelledSearch(Exception):
    """Nobody waits for the answer any more."""


class Listener:
    """Hears of no stage and waits to the end; those that do otherwise are derived from it."""

    @property
    def is_gone(self) -> bool:
        """Whether nobody waits any more; engines ask between two runs of a model."""
        return False

    def stage(self, name: str, /) -> None:
        """Told of each stage as it begins; may raise to end the work."""

    def check(self) -> None:
        """Go on only while somebody waits.

        Raises:
            CancelledSearch: If nobody does.
        """
        if self.is_gone:
            raise CancelledSearch

    def begin(self, name: str) -> None:
        """Tell of a stage, unless nobody is there to be told; raises what `check` raises."""
        self.check()
        self.stage(name)
