"""Live state is what a savepoint of the same moment would show, of all kinds of state, wherever its keys are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from penstock import (
    AggregatingStateDescriptor,
    CountEvictor,
    CountTrigger,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ProcessWindowFunction,
    ReducingStateDescriptor,
    ValueStateDescriptor,
    global_windows,
    session,
    tumbling,
)
from penstock.engine.aggregates import functions as aggregates
from penstock.engine.elements import Batch
from penstock.engine.errors import ConfigurationError, StateError, StateNotReadyError
from penstock.engine.functions import BroadcastContext, Context, ReadOnlyBroadcastContext, RuntimeContext
from penstock.engine.state.capture import CaptureRequest, CaptureScope, TableCapture
from penstock.engine.state.snapshot import Redistribution
from penstock.engine.state.state_tables import END, START
from penstock.savepoints import live_rows
from penstock.savepoints.live_rows import LiveRows, ScanFilter
from penstock.savepoints.live_state import LiveState
from penstock.savepoints.shown import python_rows
from tests.engine.helpers import RecordingCollector
from tests.engine.state.backends import MEAN, add
from tests.savepoints.by_hand import Build, RunByHand

USERS = [f"user {number}" for number in range(40)]
VISITS = [(user, page, at) for at, page in enumerate("aba", 1) for user in USERS]


class Everything(KeyedProcessFunction):
    """Keeps every kind of state of its user."""

    def open(self, context: RuntimeContext) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", "int64", default=0))
        self.pages = context.get_map_state(MapStateDescriptor("pages", "int64"))
        self.times = context.get_list_state(ListStateDescriptor("times", "int64"))
        self.sum = context.get_reducing_state(ReducingStateDescriptor("sum", "int64", function=add))
        kind = pa.struct([("total", pa.int64()), ("n", pa.int64())])
        self.mean = context.get_aggregating_state(AggregatingStateDescriptor("mean", kind, function=MEAN))

    def process_element(self, row: dict[str, Any], ctx: Context) -> Iterator[dict[str, Any]]:
        self.count.update(self.count.value() + 1)
        self.pages.put(row["page"], row["at"])
        self.times.add(row["at"])
        self.sum.add(row["at"])
        self.mean.add(row["at"])
        ctx.timer_service.register_event_time_timer(row["at"] + 100)
        yield row

    def on_timer(self, timestamp: int, ctx: Context) -> None:
        pass


class Listed(ProcessWindowFunction):
    """Needs all elements of its window."""

    def process(self, key: Any, context: Any, elements: Any) -> Iterator[dict[str, Any]]:
        yield {"n": len(list(elements))}


def rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, python_rows(table)))


BUILDS: dict[str, Build] = {
    "process": lambda keyed: keyed.process(Everything),
    "reduce": lambda keyed: keyed.reduce(lambda one, other: {**one, "at": one["at"] + other["at"]}),
    "aggregate": lambda keyed: keyed.aggregate(n=aggregates.count(), s=aggregates.sum("at")),
    "windows": lambda keyed: keyed.window(tumbling("2ms")).aggregate(n=aggregates.count()),
    "sessions": lambda keyed: keyed.window(session("5ms")).aggregate(n=aggregates.count()),
    "elements of windows": lambda keyed: keyed.window(tumbling("2ms")).process(Listed, returns={"n": "int64"}),
    "evicted windows": lambda keyed: (
        keyed.window(tumbling("2ms")).evictor(CountEvictor(2)).process(Listed, returns={"n": "int64"})
    ),
    "windows of a session": lambda keyed: keyed.window(session("5ms")).process(Listed, returns={"n": "int64"}),
    "all in one window": lambda keyed: (
        keyed.window(global_windows()).trigger(CountTrigger(100)).aggregate(n=aggregates.count())
    ),
    "rows of windows": lambda keyed: keyed.window(tumbling("2ms")).reduce(lambda one, other: other),
}


@pytest.mark.parametrize("which", BUILDS)
def test_scans_and_keys_show_what_a_savepoint_would(which: str) -> None:
    run = RunByHand(BUILDS[which]).take(VISITS[:100]).take(VISITS[100:])
    names = run.operators[0].capture(CaptureRequest(1, CaptureScope.COMPLETE)).tables
    assert names
    for name in (name for name, table in names.items() if table.redistribution.value == "keyed"):
        saved, state = run.saved(name), run.state(name)
        assert rows(state.scan()) == rows(saved)
        some = USERS[3:9]
        assert rows(state.scan(some)) == rows(state.scan(where={"user": some}))
        assert rows(state.scan(some)) == rows(saved.filter(pa.compute.is_in(saved["user"], pa.array(some))))
        assert state.scan(["nobody"]).num_rows == 0
        # What is asked for changes nothing.
        assert rows(run.saved(name)) == rows(saved)


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_the_state_of_a_key(backend: str) -> None:
    if backend == "rocksdb":
        pytest.importorskip("rocksdict")
    run = RunByHand(BUILDS["process"], state_backend=backend).take(VISITS)
    assert run.state("count").get("user 7") == 3
    assert run.state("pages").get("user 7") == {"a": 3, "b": 2}
    assert run.state("times").get("user 7") == [1, 2, 3]
    assert run.state("mean").get("user 7") == {"total": 6, "n": 3}
    assert run.state("count").get("nobody") is None
    assert run.state("event timers").scan(["user 7"]).num_rows == 3
    for operator in run.operators:
        operator.close()


RULES = MapStateDescriptor("rules", "int64")


class Ruled(KeyedBroadcastProcessFunction):
    """Counts the rows of a user; keeps rules that all users share."""

    def open(self, context: RuntimeContext) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", "int64", default=0))

    def process_element(self, row: dict[str, Any], ctx: ReadOnlyBroadcastContext) -> None:
        self.count.update(self.count.value() + 1)

    def process_broadcast_element(self, row: dict[str, Any], ctx: BroadcastContext) -> None:
        ctx.get_broadcast_state(RULES).put(row["page"], row["at"])


def test_broadcast_state_is_shown_once_beside_that_of_keys() -> None:
    def build(keyed: Any) -> Any:
        return keyed.connect(keyed._stream.broadcast(RULES)).process(Ruled, returns={"n": "int64"})

    run = RunByHand(build).take(VISITS)
    rules = pa.RecordBatch.from_pylist([{"user": None, "page": page, "at": at} for page, at in (("a", 5), ("b", 6))])
    for operator in run.operators:
        operator.process_batch(Batch(rules, rules.column("at")), 1, RecordingCollector())
    state = run.state("rules")
    assert state.scan().to_pylist() == [{"map_key": "a", "value": 5}, {"map_key": "b", "value": 6}]
    assert state.scan(where={"map_key": "b"}, limit=1).to_pylist() == [{"map_key": "b", "value": 6}]
    assert run.state("count").get("user 7") == 3
    with pytest.raises(StateError, match=r"'rules' is broadcast state, which belongs to no key; use scan\(where="):
        state.get("a")
    with pytest.raises(StateError, match=r"'rules' has no keys, or none that are known; use scan\(where="):
        state.scan(["a"])


def test_a_key_is_asked_of_its_owner_alone() -> None:
    run = RunByHand(BUILDS["aggregate"], parallelism=8).take(VISITS)
    state = run.state("accumulators")
    assert state.get("user 7") == {"count(*)": 3, "sum(at)": 6}
    run.asked.clear()
    state.get("user 7")
    assert len(run.asked) == 1


@pytest.mark.parametrize("count", [1, 2, 32, 33, 40])
def test_the_owners_of_few_and_of_many_keys_are_asked(count: int) -> None:
    state = RunByHand(BUILDS["aggregate"], parallelism=8).take(VISITS).state("accumulators")
    assert sorted(state.scan(USERS[:count]).column("user").to_pylist()) == sorted(USERS[:count])


def test_a_scan_gives_what_is_wanted() -> None:
    run = RunByHand(BUILDS["process"]).take(VISITS).take([("user 7", "c", 4)])
    state = run.state("count")
    assert state.scan(where={"value": 4}).to_pylist() == [{"user": "user 7", "value": 4}]
    assert state.scan(limit=5).num_rows == 5
    for wrong in (-1, True, 2.5):
        with pytest.raises(ConfigurationError, match="limit is a whole number from 0 on"):
            state.scan(limit=wrong)  # type: ignore[arg-type]
    assert len(state.to_pandas()) == len(USERS)


def test_what_cannot_be_asked_is_said() -> None:
    run = RunByHand(BUILDS["process"])
    assert (run.state("count").get("user 7"), run.state("count").scan().num_rows) == (None, 0)
    run.take(VISITS)
    with pytest.raises(StateError, match=r"no state 'cuont' .did you mean 'count'"):
        run.state("cuont").scan()
    with pytest.raises(StateError, match=r"has the keys \(user\)"):
        run.state("count").get("user 7", 1)
    with pytest.raises(StateError, match="does not fit column 'user'"):
        run.state("count").get(7)
    with pytest.raises(StateError, match="no column 'valeu'"):
        run.state("count").scan(where={"valeu": 3})
    windows = RunByHand(BUILDS["windows"]).take(VISITS)
    with pytest.raises(StateError, match="belongs to windows"):
        windows.state("window_aggregate").get("user 7")


def test_a_scan_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunByHand(BUILDS["process"]).take(VISITS)
    monkeypatch.setattr(live_rows, "MOST_BYTES", 10)
    with pytest.raises(StateError, match="narrow it"):
        run.state("count").scan()


def test_a_job_that_recovers_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.savepoints.live_state._AGAIN_SECONDS", 0)
    one, two = RunByHand(BUILDS["process"]).take(VISITS), RunByHand(BUILDS["process"], 2).take(VISITS[:40])
    runs = [one]
    state = LiveState("state 'count'", "count", lambda: runs[-1], patience=60)
    assert state.get("user 7") == 3
    # It is rescaled, and does not answer for a while.
    runs.append(two)
    one.away = two.away = 2
    assert state.get("user 7") == 1
    one.away = two.away = 1000
    with pytest.raises(StateNotReadyError):
        LiveState("state 'count'", "count", lambda: two, patience=0).get("user 7")


def test_how_a_state_was_shown_before_is_taken_only_where_it_still_holds() -> None:
    def captured(*starts: int | None, value: Any = 1) -> TableCapture:
        columns = {"user": ["ann"] * len(starts), "__value": [value] * len(starts)}
        times = pa.array(starts, pa.int64())
        data = pa.table({"user": columns["user"], START: times, END: times, "__value": columns["__value"]})
        return TableCapture(Redistribution.KEYED, lambda: data)

    def shown(one: TableCapture, known: LiveRows | None = None) -> LiveRows:
        before = None if known is None else known.layout
        return live_rows.rendered_rows("n", one, None, ScanFilter(), before)

    states = [captured(None), captured(5), captured(None, 5), captured(None, value="text"), captured()]
    alone = [shown(one) for one in states]
    for known in alone:
        for state, expected in zip(states, alone, strict=True):
            found = shown(state, known)
            assert found.layout == expected.layout
            assert found.data.equals(expected.data)
    assert shown(states[0], alone[0]).layout is alone[0].layout
