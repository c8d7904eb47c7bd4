"""Times as text: UTC, ISO 8601, ending in `Z`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from datetime import date, datetime


UNKNOWN_TIME_NS = -1
"""Placeholder for a file time that may miss a later change."""


def utc_now() -> datetime:
    """Return the current time in UTC, with its zone."""
    from datetime import UTC, datetime

    return datetime.now(UTC)


def local_today() -> date:
    """Return the user's local date, from which `yesterday` is counted."""
    return utc_now().astimezone().date()


def time_text(moment: datetime, precision: Literal["seconds", "milliseconds"] = "milliseconds") -> str:
    """Format a time in UTC: `2026-03-14T09:26:53.589Z`."""
    return moment.isoformat("T", precision).replace("+00:00", "Z")


def file_time_text(time_ns: int) -> str:
    """Format a file's time, in nanoseconds since 1970; a time outside the calendar counts as the epoch."""
    from datetime import UTC, datetime

    try:
        moment = datetime.fromtimestamp(time_ns / 1e9, UTC)
        if moment.year in (1, 9999):
            raise OverflowError  # Other zones have another local time.
    except (OverflowError, ValueError, OSError):
        moment = datetime.fromtimestamp(0, UTC)
    return time_text(moment)


def settled_time(time_ns: int, looked_at_ns: int) -> int:
    """Return the time by which a later look may recognise an unchanged file or folder.

    A recent change may be followed by another within the same tick of the file system's clock, with equal size and
    time. 50 ms cover every clock with fractions of a second, 2 s those that count whole or even seconds. A time outside
    the years 1677 to 2262 does not fit into an index.
    """
    tick_ns = 50_000_000 if time_ns % 1_000_000_000 else 2_000_000_000
    return time_ns if abs(looked_at_ns - time_ns) > tick_ns and abs(time_ns) < 2**63 else UNKNOWN_TIME_NS


def parse_time(text: str) -> datetime:
    """Parse an ISO 8601 time; UTC if it names no zone."""
    from datetime import UTC, datetime

    parsed = datetime.fromisoformat(text)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def days_since(text: str) -> int:
    """Return the whole days between an ISO 8601 time and now."""
    return (utc_now() - parse_time(text)).days
