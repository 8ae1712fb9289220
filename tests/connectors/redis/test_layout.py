"""Values in Redis, without a server."""

from __future__ import annotations

import datetime

import pyarrow as pa

from penstock.connectors.redis.layout import decode, encode


def test_times_with_a_zone_keep_the_seconds_of_its_distance_to_utc() -> None:
    """That of Paris was 9 minutes and 21 seconds until 1911, and texts of times with a zone have no seconds of it."""
    kind = pa.timestamp("ms", "Europe/Paris")
    times = pa.array([datetime.datetime(1900, 1, 1, tzinfo=datetime.timezone.utc), None], kind)
    assert encode(times) == [b"1900-01-01 00:00:00.000Z", None]
    assert decode(encode(times), kind, "here") == times
