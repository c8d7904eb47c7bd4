from datetime import UTC, datetime, timedelta

import pytest

from qmd.times import days_since, file_time_text, parse_time, time_text, utc_now


def test_a_time_is_written_in_utc_with_milliseconds() -> None:
    moment = datetime(2026, 3, 14, 9, 26, 53, 589_793, UTC)
    assert time_text(moment) == "2026-03-14T09:26:53.589Z"
    assert time_text(moment, "seconds") == "2026-03-14T09:26:53Z"


def test_a_written_time_is_read_back() -> None:
    now = utc_now()
    assert abs(parse_time(time_text(now)) - now) < timedelta(milliseconds=1)


@pytest.mark.parametrize("text", ["2026-03-14T09:00:00", "2026-03-14T09:00:00Z", "2026-03-14T11:00:00+02:00"])
def test_a_time_without_a_zone_is_utc(text: str) -> None:
    assert parse_time(text) == datetime(2026, 3, 14, 9, tzinfo=UTC)


def test_a_file_time_beyond_the_calendar_is_the_epoch() -> None:
    assert file_time_text(1_700_000_000_123_000_000) == "2023-11-14T22:13:20.123Z"
    assert file_time_text(10**30) == "1970-01-01T00:00:00.000Z"


def test_days_are_counted_whole() -> None:
    assert days_since(time_text(utc_now() - timedelta(days=3, hours=5))) == 3
