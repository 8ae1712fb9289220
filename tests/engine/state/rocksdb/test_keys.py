"""Keys in RocksDB: read as written, in the key group of everyone else, and never one within another."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.clock import ManualClock
from penstock.engine.errors import StateError
from penstock.engine.rows import batch_rows
from penstock.engine.state.backend import BackendContext
from penstock.engine.state.keys.groups import key_groups
from penstock.engine.state.rocksdb.keys import STATE_ID, PlaceCodec, Places, field_codec
from penstock.engine.state.state_tables import StateTables

CENTURY = {"min_value": dt.datetime(1900, 1, 1), "max_value": dt.datetime(2100, 1, 1)}
INT64 = st.integers(-(2**63), 2**63 - 1)
KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), INT64),
    (pa.int8(), st.integers(-128, 127)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text()),
    (pa.large_string(), st.text()),
    (pa.binary(), st.binary()),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.date32(), st.dates()),
    (pa.date64(), st.dates()),
    (pa.time32("s"), st.times().map(lambda time: time.replace(microsecond=0))),
    (pa.time64("us"), st.times()),
    (pa.time64("ns"), st.times()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.timestamp("s"), st.datetimes().map(lambda time: time.replace(microsecond=0))),
    (pa.timestamp("ns"), st.datetimes(**CENTURY)),
    (pa.timestamp("us", "Europe/Berlin"), st.datetimes(**CENTURY, timezones=st.just(dt.timezone.utc))),
    (pa.duration("us"), st.timedeltas(dt.timedelta(-(10**6)), dt.timedelta(10**6))),
    (pa.decimal128(38, 18), st.decimals(-(10**15), 10**15, places=18)),
    (pa.decimal128(9, 2), st.decimals(-(10**6), 10**6, places=2) | st.integers(-(10**6), 10**6).map(Decimal)),
    (pa.dictionary(pa.int32(), pa.string()), st.text()),
    (pa.null(), st.none()),
]
COLUMNS = st.lists(st.sampled_from(KINDS), min_size=1, max_size=3)
NAMESPACES = st.none() | st.tuples(INT64, INT64)


@given(st.data(), st.sampled_from([1, 7, 128, 32_768]))
def test_keys_come_back_and_have_the_key_group_of_their_row(data: st.DataObject, max_parallelism: int) -> None:
    kinds = data.draw(COLUMNS)
    rows = data.draw(st.lists(st.tuples(*(st.none() | values for _, values in kinds)), min_size=1, max_size=5))
    arrays = [pa.array([row[i] for row in rows], kind) for i, (kind, _) in enumerate(kinds)]
    batch = pa.RecordBatch.from_arrays(arrays, names=[f"k{i}" for i in range(len(kinds))])
    keys = [tuple(row.values()) for row in batch_rows(batch)]
    codec = PlaceCodec(batch.schema, max_parallelism)
    for key, group in zip(keys, key_groups(arrays, max_parallelism).tolist(), strict=True):
        namespace = data.draw(NAMESPACES)
        given_key = key if len(kinds) > 1 else key[0]
        whole = STATE_ID.pack(1) + codec.encode(given_key, namespace)
        (read, read_namespace), rest = codec.decode(whole + b"rest")
        assert (read, read_namespace) == (given_key, namespace)
        assert rest == len(whole)
        assert int.from_bytes(whole[2:4], "big") == group


def test_a_time_in_a_zone_comes_back_in_it() -> None:
    codec = PlaceCodec(pa.schema([("at", pa.timestamp("us", "Europe/Berlin"))]), 128)
    key = dt.datetime(2024, 7, 1, 10, tzinfo=dt.timezone.utc)
    ((read, _), _) = codec.decode(STATE_ID.pack(1) + codec.encode(key, None))
    assert (read, read.hour) == (key, 12)


TWO_TEXTS = st.tuples(st.text("a\0\u0100", max_size=3), st.text("a\0\u0100", max_size=3) | st.none())
PLACES = st.lists(st.tuples(TWO_TEXTS, st.none() | st.tuples(st.integers(-2, 2), st.integers(-2, 2))), unique=True)


@given(PLACES)
def test_no_place_begins_with_the_bytes_of_another(places: list[Any]) -> None:
    codec = PlaceCodec(pa.schema([("a", pa.string()), ("b", pa.string())]), 1)
    encoded = sorted(codec.encode(*place) for place in places)
    assert not [one for one, other in pairwise(encoded) if other.startswith(one)]


SORTED: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), INT64),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.string(), st.text()),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), st.datetimes()),
]


@pytest.mark.parametrize(("kind", "values"), SORTED, ids=[str(kind) for kind, _ in SORTED])
def test_map_keys_sort_as_their_values(kind: pa.DataType, values: st.SearchStrategy[Any]) -> None:
    codec = field_codec(kind)

    @given(values, values)
    def check(one: Any, other: Any) -> None:
        assert (codec.dumps(one) < codec.dumps(other)) == (one < other)
        assert codec.loads(codec.dumps(one)) == one

    check()


def test_a_nested_map_key_comes_back() -> None:
    codec = field_codec(pa.list_(pa.int64()))
    assert codec.loads(codec.dumps((1, 2))) == (1, 2)


def places() -> Places:
    context = BackendContext("operator 'count', subtask 0", ("k",), 128, ManualClock())
    return Places(context, StateTables(("k",), 128, context.where))


def test_keys_whose_type_comes_later_are_the_same_places() -> None:
    now = places()
    now.bind(pa.schema([("k", pa.null())]))
    before = now.encode(None, None)
    now.bind(pa.schema([("k", pa.int64())]))
    assert now.encode(None, None) == before
    assert now.encode(7, None) != before


def test_without_a_current_key_there_is_no_place() -> None:
    now = places()
    now.bind(pa.schema([("k", pa.int64())]))
    now.move(7, None)
    assert now.current()
    now.clear()
    with pytest.raises(StateError, match="outside a keyed context"):
        now.current()
