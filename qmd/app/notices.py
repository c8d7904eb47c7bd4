"""What an index tells whoever uses it, beside its answers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qmd.config.trust import GatedItems

_LOG = logging.getLogger("qmd")


class Notices:
    """Writes what is told to the log `qmd` and trusts nobody; adapters with a person in front derive from it."""

    def warn(self, message: str) -> None:
        """Told of what was not done, or not as asked."""
        _LOG.warning(message)

    def say(self, message: str) -> None:
        """Told of what is worth knowing."""
        _LOG.info(message)

    def grants_trust(self, items: GatedItems) -> bool:
        """Whether the user trusts what a project's configuration wants beyond its folder."""
        return False
