"""Values take the form in which a snapshot would give them back, whichever way they come."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.errors import RecordError
from penstock.engine.state.values import ValueForm, without_views
from tests.draws import drawn

WHERE = "operator 'tested', subtask 0"
BERLIN = ZoneInfo("Europe/Berlin")

LEAVES = [
    pa.bool_(),
    pa.int8(),
    pa.int64(),
    pa.uint64(),
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.large_binary(),
    pa.binary(2),
    pa.decimal128(5, 2),
    pa.decimal256(50, 0),
    pa.decimal128(5, -2),
    pa.date32(),
    pa.date64(),
    pa.time32("s"),
    pa.time64("ns"),
    pa.duration("ms"),
    pa.duration("ns"),
    pa.timestamp("s"),
    pa.timestamp("ns"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns", "Europe/Berlin"),
    pa.timestamp("ms", "+02:00"),
    pa.dictionary(pa.int32(), pa.string()),
]


def types() -> st.SearchStrategy[pa.DataType]:
    def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
        struct = st.lists(inner, max_size=2).map(lambda kinds: pa.struct([(f"f{i}", k) for i, k in enumerate(kinds)]))
        plain = inner.filter(lambda kind: not pa.types.is_dictionary(kind))
        lists = st.one_of(plain.map(pa.list_), plain.map(pa.large_list), plain.map(lambda kind: pa.list_(kind, 1)))
        return struct | lists | plain.map(lambda kind: pa.map_(pa.string(), kind))

    return st.recursive(st.sampled_from(LEAVES), nested, max_leaves=3)


NUMBERS = st.sampled_from([0, -1, 300, 2**31, 2**53 + 1, 2**63, 2**64 - 1, True, 0.0, 0.1, -0.0, 1e300, float("inf")])
TIMES = st.datetimes(timezones=st.sampled_from([None, timezone.utc, BERLIN, timezone(timedelta(hours=-5))]))
SCALARS = st.one_of(
    st.none(),
    NUMBERS,
    st.sampled_from(["", "ä", "\ud800", b"", b"ab", bytearray(b"ab"), np.int64(5), np.float32(0.1), np.str_("a")]),
    st.decimals(-2000, 2000, places=2) | st.sampled_from([Decimal("-0"), Decimal("NaN"), Decimal("1E+3")]),
    TIMES | TIMES.map(lambda value: value.replace(microsecond=0)),
    st.sampled_from([date(2020, 1, 1), time(1, 2, 3), time(1, 2, 3, 4), time(1, fold=1), np.datetime64("NaT")]),
    st.timedeltas() | st.sampled_from([timedelta(milliseconds=3), timedelta(seconds=-1)]),
)


def values(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    dicts = st.dictionaries(st.sampled_from(["f0", "f1", "g"]), inner, max_size=2)
    lists = st.lists(inner, max_size=2)
    return lists | lists.map(tuple) | dicts | dicts.map(lambda entries: [*entries.items()])


VALUES = st.recursive(SCALARS, values, max_leaves=3)
FITTING = {
    pa.int8(): 5,
    pa.float32(): 0.1,
    pa.float64(): 3,
    pa.decimal128(5, 2): Decimal("1.5"),
    pa.timestamp("ns", "Europe/Berlin"): datetime(2023, 10, 29, 2, 30, fold=1, tzinfo=BERLIN),
    pa.timestamp("ms", "+02:00"): datetime(2023, 1, 1, tzinfo=timezone.utc),
    pa.time32("s"): time(1, 2),
    pa.duration("ms"): timedelta(days=-3),
    pa.string(): "a",
}


def by_snapshot(form: ValueForm, value: Any) -> Any:
    """What a snapshot gives back of a value, or the class of the error."""
    try:
        return repr(form.decode(form.encode([value]))[0])
    except RecordError:
        return RecordError


def at_once(form: ValueForm, value: Any) -> Any:
    try:
        return repr(form.normal(value))
    except RecordError:
        return RecordError


@settings(max_examples=drawn(400))
@given(types(), VALUES)
def test_any_value_becomes_what_a_snapshot_gives_back(kind: pa.DataType, value: Any) -> None:
    form = ValueForm("v", kind, WHERE)
    assert at_once(form, value) == by_snapshot(form, value)


@pytest.mark.parametrize("kind", LEAVES, ids=str)
def test_values_of_all_types_alone_and_nested(kind: pa.DataType) -> None:
    for value in (None, Decimal("-0"), *FITTING.values()):
        check_alone_and_nested(kind, value)


def check_alone_and_nested(kind: pa.DataType, value: Any) -> None:
    plain = pa.string() if pa.types.is_dictionary(kind) else kind
    for inner, whole in (
        (kind, value),
        (pa.struct([("f0", kind), ("f1", pa.int64())]), {"f0": value}),
        (pa.list_(plain), (value, value)),
        (pa.list_(plain, 1), [value]),
        (pa.map_(pa.string(), plain), {"a": value}),
        (pa.list_(pa.struct([("f0", plain)])), [{"f0": value}, None]),
    ):
        form = ValueForm("v", inner, WHERE)
        assert at_once(form, whole) == by_snapshot(form, whole)


@pytest.mark.parametrize("kind", list(FITTING), ids=str)
def test_a_value_that_fits_is_not_sent_through_arrow(kind: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    form = ValueForm("v", pa.struct([("f0", pa.list_(kind))]), WHERE)
    monkeypatch.setattr(form, "encode", None)
    assert len(form.normal({"f0": [FITTING[kind], None]})["f0"]) == 2


def test_a_misfit_names_the_value_and_the_type() -> None:
    form = ValueForm("v", pa.struct([("f0", pa.int8())]), WHERE)
    with pytest.raises(RecordError, match=r"operator 'tested'.*state 'v': the value \{'f0': 300\} does not fit"):
        form.normal({"f0": 300})
    assert form.sought({"f0": 300}) is None


@settings(max_examples=drawn(100))
@given(types(), VALUES)
def test_a_copy_is_equal_and_shares_nothing_that_can_change(kind: pa.DataType, value: Any) -> None:
    form = ValueForm("v", kind, WHERE)
    kept = form.sought(value)
    copied = kept if form.copied is None else form.copied(kept)
    assert repr(copied) == repr(kept)
    assert not mutables(copied) & mutables(kept)


def mutables(value: Any) -> set[int]:
    """The identities of the dicts and lists in a value."""
    if not isinstance(value, (dict, list, tuple)):
        return set()
    inner = value.values() if isinstance(value, dict) else value
    return set().union(*map(mutables, inner), set() if isinstance(value, tuple) else {id(value)})


def test_views_are_kept_as_plain_texts() -> None:
    kind = pa.struct([("f0", pa.list_(pa.string_view())), ("f1", pa.binary_view())])
    assert without_views(kind) == pa.struct([("f0", pa.list_(pa.string())), ("f1", pa.binary())])


@pytest.mark.parametrize("value", [{"a": 1.5}, [("a", 1, 2)], ["ab"], [(None, 1)], {"a": "1"}, {1: 1}], ids=str)
def test_entries_of_a_map_are_pairs_of_its_types(value: Any) -> None:
    with pytest.raises(RecordError, match=r"state 'v': the value .* does not fit its type map<string, int64>"):
        ValueForm("v", pa.map_(pa.string(), pa.int64()), WHERE).normal(value)
