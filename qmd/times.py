"""Times as text: UTC, ISO 8601, ending in `Z`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from datetime import date, datetime


UNKNOWN_TIME_NS = -1
"""Instead of a time that need not tell a change."""


def utc_now() -> datetime:
    """The time now, aware of its zone."""
    from datetime import UTC, datetime

    return datetime.now(UTC)


def local_today() -> date:
    """The day that it is where the user is: what `yesterday` is counted from."""
    return utc_now().astimezone().date()


def time_text(moment: datetime, precision: Literal["seconds", "milliseconds"] = "milliseconds") -> str:
    """A time in UTC as text: `2026-03-14T09:26:53.589Z`."""
    return moment.isoformat("T", precision).replace("+00:00", "Z")


def file_time_text(time_ns: int) -> str:
    """A file's time, in nanoseconds since 1970, as text; one that the calendar cannot hold counts as the epoch."""
    from datetime import UTC, datetime

    try:
        moment = datetime.fromtimestamp(time_ns / 1e9, UTC)
        if moment.year in (1, 9999):
            raise OverflowError  # east or west of here it is another
    except (OverflowError, ValueError, OSError):
        moment = datetime.fromtimestamp(0, UTC)
    return time_text(moment)


def settled_time(time_ns: int, looked_at_ns: int) -> int:
    """The time by which a file or folder may be known again after a look.

    What changed shortly before may change again within the same tick of its file system's clock, with equal size and
    time. 50 ms cover every clock with fractions of a second, 2 s those that count whole or even seconds.
    """
    tick_ns = 50_000_000 if time_ns % 1_000_000_000 else 2_000_000_000
    return time_ns if abs(looked_at_ns - time_ns) > tick_ns else UNKNOWN_TIME_NS


def parse_time(text: str) -> datetime:
    """A time that was written as ISO 8601; UTC when it names no zone."""
    from datetime import UTC, datetime

    parsed = datetime.fromisoformat(text)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def days_since(text: str) -> int:
    """Whole days between a time that was written as ISO 8601 and now."""
    return (utc_now() - parse_time(text)).days
