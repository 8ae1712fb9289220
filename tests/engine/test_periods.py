"""Times of the day and the week, as excluded periods spell them."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from penstock.engine.errors import ConfigurationError
from penstock.engine.periods import parse_period


def holds(text: str, when: str) -> bool:
    at = datetime.fromisoformat(when).replace(tzinfo=timezone.utc)
    return parse_period(text).holds(round(at.timestamp() * 1000))


@pytest.mark.parametrize(
    ("text", "when", "expected"),
    [
        ("9:30-12:00", "2026-11-23 09:30", True),
        ("9:30-12:00", "2026-11-23 12:00", False),
        ("22:00-6:00", "2026-11-23 23:59", True),
        ("22:00-6:00", "2026-11-23 05:59", True),
        ("22:00-6:00", "2026-11-23 06:00", False),
        ("0:00-24:00", "2026-11-23 23:59", True),
        ("* * 9-11,14-16 * * ?", "2026-11-23 14:20", True),
        ("* * 9-11,14-16 * * ?", "2026-11-23 12:20", False),
        ("* * * ? * MON-FRI", "2026-11-23 00:00", True),
        ("* * * ? * MON-FRI", "2026-11-22 00:00", False),
        ("* * * ? * FRI-SUN", "2026-11-22 00:00", True),
        ("* * * ? * 1", "2026-11-22 00:00", True),
        ("* */15 * * * ?", "2026-11-23 08:45", True),
        ("* */15 * * * ?", "2026-11-23 08:46", False),
        ("* * * 1 JAN ? 2027", "2027-01-01 08:46", True),
        ("* * * ? * SAT,SUN && 9:00-17:00", "2026-11-22 10:00", True),
        ("* * * ? * SAT,SUN && 9:00-17:00", "2026-11-23 10:00", False),
    ],
)
def test_a_period_holds_at_its_times(text: str, when: str, expected: bool) -> None:
    assert holds(text, when) is expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tonight",
        "25:00-26:00",
        "9:00-10:60",
        "* * 24 * * ?",
        "* * * *",
        "1-2 && 3-4",
        "* * * ? * MOO",
        "* 1/0 * * * ?",
        "9:00-10:00 && 11:00-12:00",
    ],
)
def test_what_is_no_period_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is no period"):
        parse_period(text)
