"""Messages of an index to its user, apart from answers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from qmd.escapes import message_line

if TYPE_CHECKING:
    from logging import Logger

    from qmd.config.trust import GatedItems


_CONSTANT = (
    r"^\d+ documents .*need embeddings|^searched by words only: none|^vectors of \d|qmd models pull"
    r"|^(not \w+: )?no \w+ model|^the same text is in|^QMD_\w+ is no variable"
)


def kind_of_notice(warning: str) -> str | None:
    """Return a warning about the index, its models or copies, without counts; None for one about the request."""
    return re.sub(r"\b\d+(?=[ %])", "", warning) if re.search(_CONSTANT, warning) else None


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
