"""Rows become bytes and come back the same."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.engine.windows.row_serializer import RowSerializer

_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.decimals(allow_nan=False),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.datetimes(),
    st.datetimes(timezones=st.just(dt.timezone.utc)),
    st.datetimes(dt.datetime(1971, 1, 1), dt.datetime(2100, 1, 1), timezones=st.just(dt.timezone.utc)).map(
        lambda time: time.astimezone(ZoneInfo("Europe/Paris"))
    ),
)
_NAMES = st.text("abc") | st.sampled_from(["$type", "value", "zone"])
_VALUES = st.recursive(
    _SCALARS,
    lambda value: st.lists(value) | st.lists(value).map(tuple) | st.dictionaries(_NAMES, value),
    max_leaves=8,
)


@given(st.dictionaries(_NAMES, _VALUES))
@example({"$type": "decimal", "value": "1"})
@example({"$type": None, "value": {"$type": "dict", "value": []}})
def test_a_row_comes_back_the_same(row: dict[str, Any]) -> None:
    serializer = RowSerializer()
    assert serializer.loads(serializer.dumps(row)) == row


def test_types_come_back_too() -> None:
    row = {"d": Decimal("1.50"), "at": dt.datetime(2024, 3, 31, 2, 30, tzinfo=ZoneInfo("UTC")), "nan": float("nan")}
    back = RowSerializer().loads(RowSerializer().dumps(row))
    assert str(back["d"]) == "1.50"
    assert back["at"].tzinfo is not None
    assert back["nan"] != back["nan"]


def test_numpy_values_become_plain_ones() -> None:
    row = {"n": np.int64(5), "list": np.array([1, 2])}
    assert RowSerializer().loads(RowSerializer().dumps(row)) == {"n": 5, "list": [1, 2]}


def test_the_bytes_are_json_that_anything_can_read() -> None:
    assert json.loads(RowSerializer().dumps({"n": 1, "text": "ä"})) == {"n": 1, "text": "ä"}


def test_what_has_no_arrow_type_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no Arrow type"):
        RowSerializer().dumps({"o": object()})


def test_a_key_that_is_no_text_is_refused_and_not_made_one() -> None:
    with pytest.raises(TypeError, match="a key that is no text"):
        RowSerializer().dumps({"counts": {1: 5}})


def test_a_column_that_is_called_as_the_tag_comes_back() -> None:
    row = {"$type": "click", "value": "abcd", "nested": [{"$type": "bytes"}]}
    assert RowSerializer().loads(RowSerializer().dumps(row)) == row
