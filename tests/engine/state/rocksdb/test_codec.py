"""Values in RocksDB: what is read is what was written, or writing says what cannot be kept."""

from __future__ import annotations

import datetime as dt
import enum
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.errors import RecordError
from penstock.engine.state.descriptors import PickleSerializer
from penstock.engine.state.rocksdb.codec import byte_codec
from penstock.engine.state.state_tables import ValueCodec

WHERE = "operator 'count', subtask 0"
CODEC = byte_codec(ValueCodec("n", pa.int64(), None, WHERE))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.datetimes()
    | st.datetimes(timezones=st.sampled_from([dt.timezone.utc, dt.timezone(dt.timedelta(minutes=-150))]))
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers() | st.dates(), inner)
    ),
    max_leaves=12,
)


def types_of(value: Any) -> Any:
    """The types in a value; equal values may differ in them, as 1, 1.0 and True do."""
    if isinstance(value, dict):
        return [(types_of(key), types_of(item)) for key, item in value.items()]
    return [types_of(item) for item in value] + [type(value)] if isinstance(value, list | tuple) else type(value)


@given(VALUES)
def test_what_is_read_is_what_was_written(value: Any) -> None:
    read = CODEC.loads(CODEC.dumps(value))
    assert read == value
    assert types_of(read) == types_of(value)


def test_a_time_keeps_its_zone() -> None:
    berlin = dt.datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    read = CODEC.loads(CODEC.dumps(berlin))
    assert (read, read.hour, read.tzinfo) == (berlin, 12, ZoneInfo("Europe/Berlin"))


class Colour(enum.IntEnum):
    RED = 3


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.array([1, 2]), [1, 2]),
        (np.datetime64("2024-01-02", "D"), dt.date(2024, 1, 2)),
        (np.datetime64("2024-01-02", "ns"), dt.datetime(2024, 1, 2)),
        (np.datetime64("NaT"), None),
        (np.timedelta64(3, "s"), dt.timedelta(seconds=3)),
        (Colour.RED, 3),
        (bytearray(b"x"), b"x"),
    ],
)
def test_other_spellings_of_a_value_become_the_plain_one(value: Any, plain: Any) -> None:
    read = CODEC.loads(CODEC.dumps(value))
    assert read == plain
    assert type(read) is type(plain)


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, 1j, "\ud800", np.datetime64(1, "ns"), [object()], dt.time(1, tzinfo=dt.timezone.utc)]
)
def test_a_value_that_cannot_be_kept_is_an_error_that_names_the_state(value: Any) -> None:
    with pytest.raises(RecordError, match=r"operator 'count', subtask 0: state 'n': .* cannot be kept"):
        CODEC.dumps(value)


def test_a_serializer_takes_values_of_any_kind() -> None:
    codec = byte_codec(ValueCodec("n", pa.binary(), PickleSerializer(), WHERE))
    assert codec.loads(codec.dumps({1, 2j})) == {1, 2j}
