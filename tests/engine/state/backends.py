"""What the tests of state backends share: backends, all kinds of state, and keys and values of many types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
from hypothesis import strategies as st

from penstock.engine.clock import ManualClock
from penstock.engine.state.backend import BackendContext, Key, KeyedStateBackend, Namespace
from penstock.engine.state.backends import create_backend, create_columnar_backend
from penstock.engine.state.capture import CaptureRequest, OperatorCapture
from penstock.engine.state.descriptors import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    PickleSerializer,
    ReducingStateDescriptor,
    TtlUpdate,
    ValueStateDescriptor,
    ttl,
)
from penstock.engine.state.snapshot import OperatorSnapshot
from penstock.engine.state.timers import EVENT_TIMERS, TimerQueue

BACKENDS = ["heap", "columnar", "rocksdb"]
GROUPS = 8
TTL_MS = 100


def make_backend(
    kind: str, keys: Sequence[str] = ("k",), clock: ManualClock | None = None, schema: pa.Schema | None = None
) -> KeyedStateBackend:
    """A backend whose keys are bound: one column `k` of int64 unless told otherwise."""
    context = BackendContext("operator 'tested', subtask 0", tuple(keys), GROUPS, clock or ManualClock())
    backend = create_columnar_backend(context) if kind == "columnar" else create_backend(kind, context)
    backend.bind_keys(schema or pa.schema([("k", pa.int64())]))
    return backend


class Mean(AggregateFunction):
    def create_accumulator(self) -> Any:
        return {"total": 0, "n": 0}

    def add(self, value: Any, accumulator: Any) -> Any:
        return {"total": accumulator["total"] + value, "n": accumulator["n"] + 1}

    def get_result(self, accumulator: Any) -> Any:
        return accumulator["total"] / accumulator["n"]


MEAN = Mean()


def add(one: int, other: int) -> int:
    return one + other


BERLIN = ZoneInfo("Europe/Berlin")
AUTUMN = datetime(2023, 10, 29, 0, 0, tzinfo=timezone.utc)


def in_berlin(minute: int) -> datetime:
    """In the night when summer time ends: at minutes 30 and 90 clocks show the same."""
    return (AUTUMN + timedelta(minutes=minute)).astimezone(BERLIN)


def from_utc(minute: int) -> datetime:
    return AUTUMN + timedelta(minutes=minute)


def told_apart(key: Key) -> Key:
    """The key with its times in UTC, since Python takes both half past two of that night for one."""
    if isinstance(key, tuple):
        return tuple(map(told_apart, key))
    return key.astimezone(timezone.utc) if isinstance(key, datetime) else key


def utc(second: int) -> datetime:
    return datetime(2026, 1, 1, 0, 0, second, tzinfo=timezone.utc)


KEYS: list[tuple[pa.Schema, list[Key]]] = [
    (pa.schema([("k", pa.int64())]), [0, 1, -1, 2**63 - 1, 77]),
    (pa.schema([("value", pa.string())]), ["", "a", "b", "ä", "map_key"]),
    (pa.schema([("k", pa.int32()), ("value", pa.string())]), [(1, "a"), (1, "b"), (2, "a"), (0, "")]),
    (pa.schema([("at", pa.timestamp("ms", "UTC"))]), [utc(second) for second in range(5)]),
    (pa.schema([("at", pa.timestamp("us", "Europe/Berlin"))]), [in_berlin(minute) for minute in (30, 90, 0, 150)]),
    (
        pa.schema([("k", pa.string()), ("at", pa.timestamp("ms", "Europe/Berlin"))]),
        [("a", in_berlin(30)), ("a", in_berlin(90)), ("b", in_berlin(30))],
    ),
]
OF_TYPES: list[tuple[str, pa.DataType, list[tuple[Callable[[], Any], Any]]]] = [
    (
        "struct",
        pa.struct([("x", pa.int64()), ("tags", pa.list_(pa.string())), ("at", pa.timestamp("ms", "UTC"))]),
        [
            (lambda: {"x": 1}, {"x": 1, "tags": None, "at": None}),
            (lambda: {"tags": ("a",), "x": None}, {"x": None, "tags": ["a"], "at": None}),
            (lambda: {"at": in_berlin(30), "tags": []}, {"x": None, "tags": [], "at": AUTUMN.replace(minute=30)}),
        ],
    ),
    ("floats", pa.list_(pa.float32()), [(lambda: (1, 0.1), [1.0, 0.10000000149011612]), (lambda: [None], [None])]),
    ("decimal", pa.decimal128(10, 2), [(lambda: 1, Decimal("1.00")), (lambda: Decimal("-0.5"), Decimal("-0.50"))]),
    ("at", pa.timestamp("us", "Europe/Berlin"), [(partial(from_utc, each), in_berlin(each)) for each in (30, 90)]),
    ("float", pa.float32(), [(lambda: 0.1, 0.10000000149011612), (lambda: 2, 2.0)]),
    ("map", pa.map_(pa.string(), pa.int64()), [(lambda: {"a": 1}, [("a", 1)])]),
]
"""Types of values, each with what is given and what is kept of it."""
SPACES: list[Namespace] = [None, (0, 10), (-10, 10)]
NUMBERS = st.integers(-3, 3)
LONG = ttl(f"{TTL_MS}ms")
RENEWED = ttl(f"{TTL_MS}ms", TtlUpdate.ON_READ_AND_WRITE)


class Subtask:
    """A backend with all kinds of state, and timers."""

    def __init__(self, kind: str, schema: pa.Schema, clock: ManualClock) -> None:
        self.schema = schema
        self.backend = made = make_backend(kind, schema.names, clock, schema)
        self.timers = TimerQueue()
        self.value = made.value_state(ValueStateDescriptor("value", "int64", default=9))
        self.text = made.value_state(ValueStateDescriptor("text", "string"))
        self.any = made.value_state(ValueStateDescriptor("any", serializer=PickleSerializer()))
        self.list = made.list_state(ListStateDescriptor("list", "int64"))
        self.map = made.map_state(MapStateDescriptor("map", "int64"))
        self.sum = made.reducing_state(ReducingStateDescriptor("sum", "int64", function=add))
        accumulator = pa.struct([("total", pa.int64()), ("n", pa.int64())])
        self.mean = made.aggregating_state(AggregatingStateDescriptor("mean", accumulator, function=MEAN))
        self.of_types = {name: made.value_state(ValueStateDescriptor(f"of_{name}", kind)) for name, kind, _ in OF_TYPES}
        self.lists = made.list_state(ListStateDescriptor("lists", OF_TYPES[0][1]))
        self.by_time = made.map_state(MapStateDescriptor("by_time", OF_TYPES[0][1], key_type=OF_TYPES[3][1]))
        self.brief = made.value_state(ValueStateDescriptor("brief", "int64", ttl=RENEWED))
        self.brief_list = made.list_state(ListStateDescriptor("brief_list", "int64", ttl=LONG))
        self.brief_map = made.map_state(MapStateDescriptor("brief_map", "int64", key_type="int64", ttl=LONG))

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        tables = dict(self.backend.capture(request).tables)
        return OperatorCapture({**tables, EVENT_TIMERS: self.timers.capture(request.scope, self.schema, GROUPS)})

    def restore(self, snapshot: OperatorSnapshot) -> None:
        tables = dict(snapshot.tables)
        timers = tables.pop(EVENT_TIMERS, None)
        if timers is not None:
            self.timers.restore(timers, self.schema)
        self.backend.restore(tables)


def written(value: Any) -> str:
    """A value with its classes and, of times, the zone, so that equal numbers of other classes differ."""
    return repr(value)


def spoil(value: Any) -> None:
    """Change a value in place, as a careless function may."""
    if isinstance(value, dict):
        for inner in value.values():
            spoil(inner)
        value["x"] = "spoilt"
    elif isinstance(value, list):
        for inner in value:
            spoil(inner)
        value.append("spoilt")


def put(entries: dict[Any, Any], place: Any, value: Any) -> None:
    entries.pop(place, None)
    if value is not None:
        entries[place] = value
