"""What an index says to whoever uses it, beside its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logging import Logger

    from qmd.config.trust import GatedItems


class Notices:
    """Writes messages to the log `qmd` and trusts nobody; adapters with a person in front derive from it."""

    def warn(self, message: str) -> None:
        """Gets what was not done, or not as asked."""
        _log().warning(message)

    def say(self, message: str) -> None:
        """Gets what is worth knowing."""
        _log().info(message)

    def grants_trust(self, items: GatedItems) -> bool:
        """Whether the user trusts what a project's configuration wants beyond its folder."""
        return False


def _log() -> Logger:
    # Imported here: commands have notices of their own, and this would be a tenth of a search's start.
    import logging

    return logging.getLogger("qmd")
