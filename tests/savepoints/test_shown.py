"""Values as texts: what people read says the same as what JSON has."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from penstock.savepoints.shown import json_value, python_rows, value_text

_BERLIN = dt.timezone(dt.timedelta(hours=1))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (dt.datetime(2024, 1, 2, 3, 4, 5, 6), "2024-01-02T03:04:05.000006"),
        (dt.datetime(2024, 1, 2, tzinfo=_BERLIN), "2024-01-02T00:00:00+01:00"),
        (dt.date(2024, 1, 2), "2024-01-02"),
        (dt.time(3, 4), "03:04:00"),
        (dt.timedelta(days=-1, microseconds=-5), "-1 day 00:00:00.000005"),
        (dt.timedelta(days=400, hours=25), "401 days 01:00:00"),
        (pd.Timedelta(1_000_000_001), "00:00:01.000000001"),
        (decimal.Decimal("1.50"), "1.50"),
        (b"a\xff", "61ff"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
    ],
)
def test_what_json_lacks_is_the_same_text_without_quotes(value: Any, text: str) -> None:
    assert json_value(value) == text
    assert value_text(value) == text
    assert value_text([value, {"v": (value,)}]) == f"[{text}, {{v: [{text}]}}]"


def test_what_json_has_is_as_json_has_it() -> None:
    assert value_text([None, True, 1, 1.5, 'a"\n\u00e9']) == '[null, true, 1, 1.5, "a\\"\\n\u00e9"]'


def test_times_that_python_cannot_say_are_numbers_in_their_unit() -> None:
    far = pa.table({"at": pa.array([2**62], pa.timestamp("ms")), "span": pa.array([7], pa.duration("ns"))})
    assert python_rows(far) == [{"at": 2**62, "span": 7}]
