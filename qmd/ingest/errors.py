"""The one expected failure of reading a file."""

from __future__ import annotations

from typing import Literal

from qmd.errors import QmdError

UnindexableReason = Literal["binary", "too_large", "unreadable", "failed", "slow", "crash"]


class UnindexableFileError(QmdError):
    """A file that is in the collection but cannot be indexed; the rest of the collection can.

    Attributes:
        code: The reason: `binary`, `too_large`, `unreadable`; `failed` (a parser raised), `slow` (it took too long),
            `crash` (it ended its process).
    """

    code: str

    def __init__(self, message: str, reason: UnindexableReason, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.code = reason
