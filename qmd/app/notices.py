"""Messages of an index to its user, apart from answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmd.escapes import message_line

if TYPE_CHECKING:
    from logging import Logger

    from qmd.config.trust import GatedItems


class Notices:
    """Receiver of messages: writes them to the log `qmd` and grants no trust; interactive adapters derive from it."""

    def warn(self, message: str) -> None:
        """Receive a warning: work that was skipped or changed."""
        _log().warning(message_line(message))

    def say(self, message: str) -> None:
        """Receive information."""
        _log().info(message_line(message))

    def grants_trust(self, items: GatedItems) -> bool:
        """Return whether the user trusts the parts of a project's configuration that reach beyond its folder."""
        return False


def _log() -> Logger:
    # Imported here: commands have notices of their own, and this is a tenth of the start of a search.
    import logging

    return logging.getLogger("qmd")
