"""What is declared wrongly is refused where it is declared."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.engine.clock import ManualClock
from penstock.engine.errors import ConfigurationError, StateError
from penstock.engine.state.backend import BackendContext
from penstock.engine.state.backends import create_backend
from penstock.engine.state.descriptors import (
    MapStateDescriptor,
    PickleSerializer,
    TtlUpdate,
    ValueStateDescriptor,
    ttl,
)


@pytest.mark.parametrize(
    ("kind", "default", "held"),
    [
        ("int64", np.int64(1), 1),
        ("float32", 0.1, 0.10000000149011612),
        ("decimal128(10, 2)", 1, Decimal("1.00")),
        ("list<int64>", np.array([1, 2]), [1, 2]),
        (pa.struct([("x", pa.int64()), ("y", pa.string())]), {"x": 1}, {"x": 1, "y": None}),
    ],
)
def test_a_default_takes_the_form_of_its_type(kind: Any, default: Any, held: Any) -> None:
    assert repr(ValueStateDescriptor("v", kind, default=default).default) == repr(held)


@pytest.mark.parametrize(
    ("kind", "default"), [("int64", "a"), ("int64", 0.5), ("int64", 2**63), ("list<int64>", ["a"]), ("string", 1)]
)
def test_a_default_that_does_not_fit_is_refused(kind: str, default: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"state 'v': the default .* does not fit its type"):
        ValueStateDescriptor("v", kind, default=default)


def test_the_default_is_not_the_callers_own() -> None:
    given = [1]
    descriptor = ValueStateDescriptor("v", "list<int64>", default=given)
    given.append(2)
    assert descriptor.default == [1]


@pytest.mark.parametrize("key_type", ["float64", "float32", pa.list_(pa.int64()), pa.struct([]), pa.null()])
def test_map_keys_are_neither_floating_nor_nested(key_type: Any) -> None:
    with pytest.raises(ConfigurationError, match="state 'm': keys of a map are not of type"):
        MapStateDescriptor("m", "int64", key_type=key_type)


def test_an_unknown_key_type_is_refused_where_it_is_declared() -> None:
    with pytest.raises(ConfigurationError, match="state 'm': key_type"):
        MapStateDescriptor("m", "int64", key_type="foo")


def test_what_renews_and_shows_values_is_one_of_the_enum() -> None:
    with pytest.raises(ConfigurationError, match=r"update is one of TtlUpdate\.ON_CREATE_AND_WRITE, .* not 'read'"):
        ttl("1h", "read")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"visibility is one of .*\.NEVER_RETURN_EXPIRED, .* not True"):
        ttl("1h", TtlUpdate.ON_READ_AND_WRITE, True)  # type: ignore[arg-type]


def test_a_serializer_is_an_object_that_dumps_and_loads() -> None:
    with pytest.raises(ConfigurationError, match=r"the class PickleSerializer; give an object, PickleSerializer\(\)"):
        ValueStateDescriptor("v", serializer=PickleSerializer)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"a serializer has dumps\(value\) and loads\(data\)"):
        ValueStateDescriptor("v", serializer=object())  # type: ignore[arg-type]


def test_views_are_plain_texts() -> None:
    assert ValueStateDescriptor("v", pa.string_view()).value_type == pa.string()
    assert MapStateDescriptor("m", "int64", key_type=pa.binary_view()).map_key_type == pa.binary()


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("list<int64>", np.array([1, 2]), np.array([1, 3])),
        ("float64", float("nan"), 1.0),
        ("timestamp[us]", datetime(2020, 1, 1), datetime(2020, 1, 2)),
        (None, np.array([1, 2]), np.array([1, 3])),
    ],
)
def test_a_state_may_be_declared_again_with_an_equal_default(kind: Any, one: Any, other: Any) -> None:
    backend = create_backend("heap", BackendContext("operator 'tested', subtask 0", ("k",), 8, ManualClock()))
    rest: Any = {"type": kind} if kind else {"serializer": PickleSerializer()}
    again = np.array(one) if isinstance(one, np.ndarray) else one + type(one)(0) if isinstance(one, float) else one
    state = backend.value_state(ValueStateDescriptor("v", default=one, **rest))
    assert backend.value_state(ValueStateDescriptor("v", default=again, **rest)) is state
    with pytest.raises(StateError, match="'v' is declared twice"):
        backend.value_state(ValueStateDescriptor("v", default=other, **rest))
