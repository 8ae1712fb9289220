"""Keyed process functions, row by row and batch by batch: state, timers, side outputs, snapshots and errors."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.config import JobConfig
from penstock.engine.elements import MAX_TIMESTAMP, Batch
from penstock.engine.errors import ConfigurationError, GraphError, RecordError, StateError, UserCodeError
from penstock.engine.functions import (
    Context,
    KeyedBatch,
    KeyedProcessFunction,
    OnTimerContext,
    OutputTag,
    ProcessFunction,
    Row,
    Rows,
    RuntimeContext,
)
from penstock.engine.operators.functions.keyed_process import KeyedProcessSpec
from penstock.engine.state.backend import ValueState
from penstock.engine.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tests.engine.operators.functions.functions import Running, RunningSum, at, owner, plain, rescaled
from tests.engine.state.saved import snapshot_of

SUM = KeyedProcessSpec(RunningSum, ("key",))
TOTAL = ValueStateDescriptor("total", "int64", default=0)
LATE = OutputTag("late", {"key": "string"})


def rows(*pairs: tuple[str, int]) -> Batch:
    return plain({"key": key, "n": n} for key, n in pairs)


def pairs(result: list[Row]) -> list[tuple[Any, Any]]:
    return [(row["key"], row["total"]) for row in result]


def keyed(process: Callable[..., Any], on_timer: Callable[..., Any] | None = None) -> type[KeyedProcessFunction]:
    """A function of one value state, `self.total`."""

    class Given(KeyedProcessFunction):
        total: ValueState

        def open(self, context: RuntimeContext) -> None:
            self.total = context.get_state(TOTAL)

        def process_element(self, row: Row, ctx: Context) -> Rows:
            return process(self, row, ctx)  # type: ignore[no-any-return]

        def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Rows:
            return None if on_timer is None else on_timer(self, timestamp, ctx)

    return Given


def running(process: Callable[..., Any], on_timer: Callable[..., Any] | None = None, **settings: Any) -> Running:
    return Running(KeyedProcessSpec(keyed(process, on_timer), ("key",), timed=settings.pop("timed", False)), **settings)


# --- state ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_the_records_behind_a_barrier_are_worked_on_again_with_the_state_as_of_the_barrier(backend: str) -> None:
    job = Running(SUM, backend=backend)
    assert pairs(job.process(rows(("b", 2), ("b", 3), ("c", 1)))) == [("b", 2), ("b", 5), ("c", 1)]
    barrier = snapshot_of(job.operator)
    behind = rows(("a", 2), ("a", 2), ("c", 2))
    assert pairs(job.process(behind)) == [("a", 2), ("a", 4), ("c", 3)]
    again = Running(SUM, restored=barrier, backend=backend)
    assert pairs(again.process(behind)) == [("a", 2), ("a", 4), ("c", 3)]
    assert pairs(again.process(rows(("b", 1)))) == [("b", 6)]
    job.operator.close()
    again.operator.close()


@given(
    st.lists(st.tuples(st.sampled_from("abcde"), st.integers(-9, 9)), min_size=1, max_size=40),
    st.integers(1, 5),
    st.integers(1, 5),
)
def test_after_a_rescale_every_key_resumes_where_it_was(
    given_rows: list[tuple[str, int]], before: int, after: int
) -> None:
    old = [Running(SUM, subtask=subtask, parallelism=before) for subtask in range(before)]
    totals: dict[str, int] = {}
    for key, n in given_rows:
        old[owner(pa.array([key]), before)].process(rows((key, n)))
        totals[key] = totals.get(key, 0) + n
    new = rescaled(SUM, [snapshot_of(job.operator) for job in old], after)
    for key, total in totals.items():
        assert pairs(new[owner(pa.array([key]), after)].process(rows((key, 1)))) == [(key, total + 1)]


def test_keys_of_several_columns_are_tuples_of_the_values_in_the_row() -> None:
    def same(self: Any, row: Row, ctx: Context) -> Rows:
        self.total.update(self.total.value() + row["n"])
        yield {"same": ctx.current_key == (row["user"], row["when"]), "total": self.total.value()}

    spec = KeyedProcessSpec(keyed(same), ("user", "when"))
    when = dt.datetime(2026, 1, 2, 3, tzinfo=dt.timezone.utc)
    types = {"user": pa.string(), "when": pa.timestamp("ms", "UTC"), "n": pa.int64()}
    batch = plain([{"user": "u", "when": when, "n": 2}], types)
    job = Running(spec)
    assert job.process(batch) == [{"same": True, "total": 2}]
    assert Running(spec, restored=snapshot_of(job.operator)).process(batch) == [{"same": True, "total": 4}]


def test_each_subtask_has_a_copy_of_the_object() -> None:
    class Counting(KeyedProcessFunction):
        seen = 0

        def __init__(self) -> None:
            self.rows: list[int] = []

        def process_element(self, row: Row, ctx: Context) -> Rows:
            self.rows.append(row["n"])
            return [{"rows": len(self.rows)}]

    given_object = Counting()
    spec = KeyedProcessSpec(given_object, ("key",))
    for _ in range(2):
        assert Running(spec).process(rows(("a", 1), ("a", 1))) == [{"rows": 1}, {"rows": 2}]
    assert given_object.rows == []


def test_a_row_is_emitted_as_it_was_when_the_function_gave_it() -> None:
    def grow(self: Any, row: Row, ctx: Context) -> Rows:
        self.kept = getattr(self, "kept", {"n": 0, "all": []})
        self.kept["n"] += row["n"]
        self.kept["all"].append(row["n"])
        yield self.kept

    together = running(grow).process(rows(("a", 1), ("a", 2), ("a", 3)))
    one_by_one = running(grow)
    assert together == [row for n in (1, 2, 3) for row in one_by_one.process(rows(("a", n)))]
    assert together[0] == {"n": 1, "all": [1]}


# --- results and time ----------------------------------------------------------------------------------------


def test_results_have_the_timestamps_of_their_rows_and_come_as_one_batch_a_batch() -> None:
    job = running(lambda self, row, ctx: [{"t": ctx.timestamp}] * row["n"], timed=True)
    job.process(at([{"key": "a", "n": 2, "at": 5}, {"key": "b", "n": 0, "at": 9}, {"key": "c", "n": 1, "at": 7}]))
    assert (len(job.batches), job.times) == (1, [5, 5, 7])
    job.process(at([{"key": "a", "n": 0, "at": 5}]))
    assert job.batches == []


def test_declared_columns_are_cast() -> None:
    spec = KeyedProcessSpec(RunningSum, ("key",), pa.schema([("key", pa.string()), ("total", pa.float32())]))
    job = Running(spec)
    job.process(rows(("a", 1)))
    assert job.batches[0].data.schema.types == [pa.string(), pa.float32()]


def timer_at(self: Any, row: Row, ctx: Context) -> None:
    ctx.timer_service.register_event_time_timer(row["n"])


def told(self: Any, timestamp: int, ctx: OnTimerContext) -> Rows:
    self.total.update(self.total.value() + 1)
    yield {"key": ctx.current_key, "at": timestamp, "nth": self.total.value(), "event": ctx.is_event_time}


def test_timers_fire_once_in_order_of_time_with_their_key_and_their_time() -> None:
    job = running(timer_at, told, timed=True)
    job.process(at({"key": key, "n": n, "at": 0} for key, n in [("a", 30), ("b", 10), ("a", 20), ("b", 10), ("a", 40)]))
    assert job.advance(9) == []
    fired = job.advance(30)
    assert [(row["key"], row["at"], row["nth"]) for row in fired] == [("b", 10, 1), ("a", 20, 1), ("a", 30, 2)]
    assert (len(job.batches), job.times) == (1, [10, 20, 30])
    assert [row["at"] for row in job.advance(MAX_TIMESTAMP)] == [40]
    assert job.advance(MAX_TIMESTAMP) == []


def test_a_timer_registered_while_firing_fires_too_if_it_is_due() -> None:
    def again(self: Any, timestamp: int, ctx: OnTimerContext) -> Rows:
        ctx.timer_service.register_event_time_timer(timestamp + 10)
        yield {"at": timestamp, "watermark": ctx.timer_service.current_watermark()}

    job = running(timer_at, again)
    job.process(rows(("a", 5)))
    assert job.advance(29) == [{"at": at, "watermark": 29} for at in (5, 15, 25)]
    assert [row["at"] for row in job.advance(35)] == [35]
    assert job.batches[0].timestamps is None


def test_a_deleted_timer_does_not_fire_and_a_late_one_fires_at_the_next_watermark() -> None:
    def toggle(self: Any, row: Row, ctx: Context) -> None:
        timers = ctx.timer_service
        (timers.register_event_time_timer if row["n"] > 0 else timers.delete_event_time_timer)(abs(row["n"]))

    job = running(toggle, told)
    job.process(rows(("a", 5), ("b", 5), ("a", -5)))
    assert [row["key"] for row in job.advance(50)] == ["b"]
    job.process(rows(("c", 7)))
    assert [(row["key"], row["at"]) for row in job.advance(51)] == [("c", 7)]


def test_timers_of_the_clock_fire_by_the_clock_and_carry_their_time_where_there_is_event_time() -> None:
    def soon(self: Any, row: Row, ctx: Context) -> None:
        ctx.timer_service.register_processing_time_timer(ctx.timer_service.current_processing_time() + row["n"])

    for timed in (False, True):
        job = running(soon, told, timed=timed)
        job.tick(1000)
        job.process(at([{"key": "a", "n": 20, "at": 1}, {"key": "b", "n": 10, "at": 1}]))
        assert job.operator.next_processing_time == 1010
        assert job.tick(1009) == job.advance(MAX_TIMESTAMP) == []
        fired = job.tick(1500)
        assert [(row["key"], row["at"], row["event"]) for row in fired] == [("b", 1010, False), ("a", 1020, False)]
        assert job.times == ([1010, 1020] if timed else [None, None])
        assert job.operator.next_processing_time is None


def test_a_timer_of_the_clock_that_is_registered_for_now_while_firing_fires_at_the_next_call() -> None:
    fired: list[int] = []

    def again(self: Any, timestamp: int, ctx: OnTimerContext) -> Rows:
        fired.append(timestamp)
        assert len(fired) < 10, "it fires for ever"
        ctx.timer_service.register_processing_time_timer(ctx.timer_service.current_processing_time())
        yield {"at": timestamp}

    def now(self: Any, row: Row, ctx: Context) -> None:
        ctx.timer_service.register_processing_time_timer(row["n"])

    job = running(now, again)
    job.process(rows(("a", 5)))
    assert [job.tick(9) for _ in range(3)] == [[{"at": 5}], [{"at": 9}], [{"at": 9}]]


def test_timers_of_one_watermark_leave_in_batches_of_the_greatest_size() -> None:
    def twice(self: Any, timestamp: int, ctx: OnTimerContext) -> Rows:
        ctx.output(LATE, {"key": ctx.current_key})
        return [{"key": ctx.current_key}] * 2

    job = running(timer_at, twice, timed=True, sides=["late"], config=JobConfig(max_batch_rows=3))
    job.process(at({"key": key, "n": n, "at": 0} for n, key in enumerate("abcd", start=1)))
    assert [row["key"] for row in job.advance(9)] == list("aabbccdd")
    assert job.times == [1, 1, 2, 2, 3, 3, 4, 4]
    assert [batch.num_rows for batch in job.batches] == [3, 3, 2]
    assert [row["key"] for row in job.side("late")] == list("abcd")


def test_rows_that_timers_emit_to_side_outputs_alone_leave_in_batches_too() -> None:
    waiting: list[int] = []

    def aside(self: Any, timestamp: int, ctx: OnTimerContext) -> None:
        waiting.append(len(job.sides["late"].batches))
        ctx.output(LATE, {"key": ctx.current_key})

    job = running(timer_at, aside, timed=True, sides=["late"], config=JobConfig(max_batch_rows=2))
    job.process(at({"key": key, "n": n, "at": 0} for n, key in enumerate("abcd", start=1)))
    assert job.advance(9) == []
    assert waiting == [0, 0, 1, 1]
    assert job.sides["late"].timestamps == [1, 2, 3, 4]


@pytest.mark.parametrize("after", [1, 3])
def test_timers_survive_a_restore_and_go_where_their_keys_go(after: int) -> None:
    def both(self: Any, row: Row, ctx: Context) -> None:
        ctx.timer_service.register_event_time_timer(row["n"])
        ctx.timer_service.register_processing_time_timer(row["n"] + 1)

    spec = KeyedProcessSpec(keyed(both, told), ("key",))
    old = [Running(spec, subtask=subtask, parallelism=2) for subtask in range(2)]
    keys = "abcdefgh"
    for n, key in enumerate(keys):
        old[owner(pa.array([key]), 2)].process(rows((key, 10 + n)))
    new = rescaled(spec, [snapshot_of(job.operator) for job in old], after)
    fired = [row for job in new for row in job.advance(100)]
    assert sorted((row["key"], row["at"]) for row in fired) == [(key, 10 + n) for n, key in enumerate(keys)]
    fired = [row for job in new for row in job.tick(100)]
    assert sorted((row["key"], row["at"], row["nth"]) for row in fired) == [(k, 11 + n, 2) for n, k in enumerate(keys)]


def test_timers_of_times_survive_a_restore() -> None:
    when = dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc)
    batch = plain([{"key": when, "n": 5}], {"key": pa.timestamp("us", "Europe/Berlin"), "n": pa.int64()})
    job = running(timer_at, told)
    job.process(batch)
    again = Running(KeyedProcessSpec(keyed(timer_at, told), ("key",)), restored=snapshot_of(job.operator))
    again.process(batch)
    assert [row["key"] for row in again.advance(10)] == [when]


@pytest.mark.parametrize("keys", [("user",), ("name", "user"), ("user", "name", "n"), ("user", "title")])
def test_state_of_other_keys_is_not_restored(keys: tuple[str, ...]) -> None:
    def spec(keys: tuple[str, ...]) -> KeyedProcessSpec:
        return KeyedProcessSpec(keyed(lambda self, row, ctx: self.total.update(1)), keys)

    job = Running(spec(("user", "name")))
    job.process(plain([{"user": "a", "name": "b", "n": 1}]))
    with pytest.raises(StateError, match=rf"'tested'.*keys \(user, name\), .*keys \({', '.join(keys)}\) now"):
        Running(spec(keys), restored=snapshot_of(job.operator))


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_there_is_no_current_key_when_a_snapshot_is_taken_and_at_the_end(backend: str) -> None:
    class Leaving(RunningSum):
        def snapshot_state(self) -> None:
            with pytest.raises(StateError, match="outside a keyed context"):
                self.total.value()

        def close(self) -> None:
            self.total.update(1)

    job = Running(KeyedProcessSpec(Leaving, ("key",)), backend=backend)
    job.process(rows(("a", 1)))
    snapshot_of(job.operator)
    job.process(rows(("a", 1)))
    with pytest.raises(StateError, match="outside a keyed context"):
        job.operator.close()


def test_event_time_resumes_where_it_was() -> None:
    def ask(self: Any, row: Row, ctx: Context) -> Rows:
        return [{"watermark": ctx.timer_service.current_watermark()}]

    job = running(ask)
    job.advance(77)
    again = Running(KeyedProcessSpec(keyed(ask), ("key",)), restored=snapshot_of(job.operator))
    assert again.process(rows(("a", 1))) == [{"watermark": 77}]


# --- side outputs --------------------------------------------------------------------------------------------


def test_side_outputs_have_declared_columns_and_the_time_of_the_row_or_timer() -> None:
    def split(self: Any, row: Row, ctx: Context) -> Rows:
        ctx.timer_service.register_event_time_timer(row["n"])
        ctx.output(LATE, {"key": row["key"]})
        ctx.output(OutputTag("unread"), {"anything": 1})
        yield {"key": row["key"]}

    def later(self: Any, timestamp: int, ctx: OnTimerContext) -> None:
        ctx.output(LATE, {"key": ctx.current_key.upper()})

    job = running(split, later, timed=True, sides=["late"])
    batch = at([{"key": "a", "n": 50, "at": 1}, {"key": "b", "n": 40, "at": 2}])
    assert job.process(batch) == [{"key": "a"}, {"key": "b"}]
    assert (job.sides["late"].timestamps, job.side("late")) == ([1, 2], [{"key": "a"}, {"key": "b"}])
    assert job.advance(60) == []
    assert (job.sides["late"].timestamps, job.side("late")) == ([40, 50], [{"key": "B"}, {"key": "A"}])


# --- batch by batch ------------------------------------------------------------------------------------------


class BatchSum(KeyedProcessFunction):
    """`RunningSum` with NumPy."""

    def open(self, context: RuntimeContext) -> None:
        self.total = context.get_state(TOTAL)

    def process_batch(self, batch: KeyedBatch, ctx: Context) -> Any:
        order = np.argsort(batch.groups, kind="stable")
        groups, n = batch.groups[order], batch.data["n"].to_numpy()[order]
        sums = np.cumsum(n)
        first = np.searchsorted(groups, np.arange(batch.keys.num_rows))
        before = self.total.values().to_numpy()
        running = np.empty_like(sums)
        running[order] = sums - (sums - n)[first][groups] + before[groups]
        self.total.update_values(before + np.bincount(batch.groups, batch.data["n"].to_numpy()).astype(np.int64))
        return {"key": batch.data["key"], "total": running}

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Rows:
        yield {"key": ctx.current_key, "total": self.total.value()}


def test_a_batch_function_works_with_state_on_disk() -> None:
    job = Running(KeyedProcessSpec(BatchSum, ("key",)), backend="rocksdb")
    assert pairs(job.process(rows(("b", 2), ("a", 1), ("b", 3)))) == [("b", 2), ("a", 1), ("b", 5)]
    again = Running(KeyedProcessSpec(BatchSum, ("key",)), restored=snapshot_of(job.operator))
    assert pairs(again.process(rows(("b", 1)))) == [("b", 6)]
    job.operator.close()


@given(st.lists(st.tuples(st.sampled_from("abcdefg"), st.integers(-100, 100)), max_size=60), st.integers(1, 20))
def test_batch_by_batch_equals_row_by_row_for_every_cut(given_rows: list[tuple[str, int]], size: int) -> None:
    by_rows, by_batches = Running(SUM), Running(KeyedProcessSpec(BatchSum, ("key",)))
    expected = by_rows.process(rows(*given_rows)) if given_rows else []
    parts = [given_rows[i : i + size] for i in range(0, len(given_rows), size)]
    assert [row for part in parts for row in by_batches.process(rows(*part))] == expected
    again = Running(KeyedProcessSpec(BatchSum, ("key",)), restored=snapshot_of(by_batches.operator))
    batch = rows(("a", 1), ("z", 1))
    assert again.process(batch) == by_rows.process(batch)


def batchwise(process: Callable[..., Any], on_timer: Callable[..., Any] | None = None) -> KeyedProcessSpec:
    class Given(KeyedProcessFunction):
        def open(self, context: RuntimeContext) -> None:
            self.total = context.get_state(TOTAL)

        def process_batch(self, batch: KeyedBatch, ctx: Context) -> Any:
            return process(self, batch, ctx)

        def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Rows:
            return None if on_timer is None else on_timer(self, timestamp, ctx)

    return KeyedProcessSpec(Given, ("key",), timed=True)


def test_a_row_a_key_has_the_largest_timestamp_of_its_rows() -> None:
    seen: list[KeyedBatch] = []

    def keys_only(self: Any, batch: KeyedBatch, ctx: Context) -> Any:
        seen.append(batch)
        return batch.keys

    job = Running(batchwise(keys_only))
    batch = at([{"key": key, "at": t} for key, t in [("b", 3), ("a", 9), ("b", 7), ("a", 1)]])
    assert [row["key"] for row in job.process(batch)] == ["b", "a"]
    assert job.times == [7, 9]
    assert seen[0].groups.tolist() == [0, 1, 0, 1]


def test_timers_of_a_batch_belong_to_its_keys_and_see_state_one_by_one() -> None:
    def register(self: Any, batch: KeyedBatch, ctx: Context) -> None:
        self.total.update_values(np.arange(batch.keys.num_rows) + 10)
        ctx.timer_service.register_event_time_timers(pa.array([5, None, 4][: batch.keys.num_rows]))

    def value(self: Any, timestamp: int, ctx: OnTimerContext) -> Rows:
        yield {"key": ctx.current_key, "total": self.total.value()}

    job = Running(batchwise(register, value))
    job.process(at([{"key": key, "at": 0} for key in "abca"]))
    assert pairs(job.advance(10)) == [("c", 12), ("a", 10)]
    assert job.times == [4, 5]


@pytest.mark.parametrize(
    ("process", "problem"),
    [
        (lambda self, batch, ctx: {"x": [1, 2, 3]}, "3 rows for a batch of 4 rows with 2 keys"),
        (lambda self, batch, ctx: 5, "process_batch returned builtins.int"),
        (lambda self, batch, ctx: {"x": [1, 2], "y": [1]}, "different lengths"),
        (lambda self, batch, ctx: self.total.value(), "outside a keyed context|no current key"),
        (lambda self, batch, ctx: ctx.current_key, "use batch.keys"),
        (lambda self, batch, ctx: ctx.output(LATE, {"key": "a"}), "no event timestamp is known"),
        (lambda self, batch, ctx: ctx.timer_service.register_event_time_timers([1]), "1 timers were given for 2 keys"),
    ],
)
def test_what_a_batch_function_must_not_do_names_operator_and_remedy(process: Any, problem: str) -> None:
    job = Running(batchwise(process), sides=["late"])
    with pytest.raises((RecordError, StateError), match=rf"(?s)operator 'tested', subtask 0.*({problem})"):
        job.process(at([{"key": key, "at": 0} for key in "abba"]))


def test_an_error_in_a_batch_function_shows_the_batch() -> None:
    job = Running(batchwise(lambda self, batch, ctx: 1 / 0))
    with pytest.raises(UserCodeError, match=r"(?s)ZeroDivisionError.*batch of 1 rows \(key string"):
        job.process(at([{"key": "a", "at": 0}]))


# --- errors --------------------------------------------------------------------------------------------------


def test_an_error_of_the_function_shows_the_row_or_the_timer() -> None:
    job = running(timer_at, lambda self, timestamp, ctx: 1 / 0)
    job.process(rows(("a", 5)))
    with pytest.raises(UserCodeError, match=r"(?s)'tested', subtask 0.*ZeroDivision.*on_timer at 5, key 'a'"):
        job.advance(5)
    for process, told in ((lambda self, row, ctx: row["y"], "KeyError"), (lambda *_: sys.exit(3), "SystemExit: 3")):
        with pytest.raises(UserCodeError, match=rf"(?s){told}.*called with: {{'key': 'b', 'n': 1}}"):
            running(process).process(rows(("b", 1)))


@pytest.mark.parametrize(
    ("process", "error", "problem"),
    [
        (lambda self, row, ctx: {"a": 1}, RecordError, "process_element returned {'a': 1}.*yield each row"),
        (lambda self, row, ctx: 7, RecordError, "not rows"),
        (lambda self, row, ctx: [7], RecordError, "row 0 is 7 .int., not a dict"),
        (lambda self, row, ctx: ctx.output("late", row), ConfigurationError, "takes an OutputTag"),
        (lambda self, row, ctx: ctx.timer_service.register_event_time_timer(1.5), StateError, "whole number of milli"),
        (lambda self, row, ctx: self.context.get_state(TOTAL), StateError, "called after open"),
        (lambda self, row, ctx: ctx.timer_service.register_event_time_timers([1]), StateError, "in process_batch"),
    ],
)
def test_misuse_names_operator_and_remedy(process: Any, error: type[Exception], problem: str) -> None:
    class Misused(KeyedProcessFunction):
        def open(self, context: RuntimeContext) -> None:
            self.context = context

        def process_element(self, row: Row, ctx: Context) -> Rows:
            return process(self, row, ctx)  # type: ignore[no-any-return]

        def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Rows:
            return None

    with pytest.raises(error, match=rf"(?s)operator 'tested', subtask 0.*{problem}"):
        Running(KeyedProcessSpec(Misused, ("key",)), sides=["late"]).process(rows(("a", 1)))


@pytest.mark.parametrize("kind", ["event", "processing"])
def test_a_timer_is_refused_where_nothing_would_happen_when_it_fires(kind: str) -> None:
    class Typo(KeyedProcessFunction):
        def process_element(self, row: Row, ctx: Context) -> Rows:
            getattr(ctx.timer_service, f"delete_{kind}_time_timer")(5)
            getattr(ctx.timer_service, f"register_{kind}_time_timer")(5)

        def on_timers(self, timestamp: int, ctx: OnTimerContext) -> Rows:
            return None

    for function in (Typo, Typo()):
        with pytest.raises(StateError, match=r"'tested', subtask 0: Typo registers a timer .* implement on_timer\("):
            Running(KeyedProcessSpec(function, ("key",))).process(rows(("a", 1)))


@pytest.mark.parametrize(
    ("declare", "error", "problem"),
    [
        (lambda context: context.get_state(TOTAL).value(), StateError, "outside a keyed context|no current key"),
        (lambda context: context.get_state("total"), ConfigurationError, "get_state takes a ValueStateDescriptor"),
        (lambda context: context.get_map_state(TOTAL), ConfigurationError, "takes a MapStateDescriptor"),
        (lambda context: context.get_list_state(TOTAL), ConfigurationError, "; get_state takes that"),
        (
            lambda context: (
                context.get_list_state(ListStateDescriptor("x", "int64")),
                context.get_operator_list_state(ListStateDescriptor("x", "int64")),
            ),
            StateError,
            "'x' is the name of keyed state already",
        ),
        (
            lambda context: (context.get_state(TOTAL), context.get_map_state(MapStateDescriptor("total", "int64"))),
            StateError,
            "total",
        ),
    ],
)
def test_what_open_must_not_do_names_operator_and_remedy(declare: Any, error: type[Exception], problem: str) -> None:
    class Opens(RunningSum):
        def open(self, context: RuntimeContext) -> None:
            declare(context)

    with pytest.raises(error, match=rf"(?s)operator 'tested', subtask 0.*({problem})"):
        Running(KeyedProcessSpec(Opens, ("key",)))


def test_the_function_is_closed_also_if_closing_fails() -> None:
    class Closes(RunningSum):
        def close(self) -> None:
            raise OSError("gone")

    job = Running(KeyedProcessSpec(Closes, ("key",)))
    with pytest.raises(UserCodeError, match="gone"):
        job.operator.close()


def test_a_second_batch_with_other_key_types_is_refused_after_a_restore() -> None:
    job = Running(SUM)
    job.process(rows(("a", 1)))
    again = Running(SUM, restored=snapshot_of(job.operator))
    with pytest.raises(StateError, match="key column 'key' is int64, but the state so far has keys of string"):
        again.process(plain([{"key": 5, "n": 1}]))


class _Neither(KeyedProcessFunction):
    pass


class _Both(BatchSum):
    def process_element(self, row: Row, ctx: Context) -> Rows:
        return None


class _Unkeyed(ProcessFunction):
    def process_element(self, row: Row, ctx: Context) -> Rows:
        return None


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (_Neither, "_Neither implements neither process_element .* nor process_batch"),
        (_Both(), "_Both implements both process_element .* and process_batch"),
        (_Unkeyed, "takes a KeyedProcessFunction .* not _Unkeyed"),
        (None, "takes a KeyedProcessFunction .* not None"),
        (len, "takes a KeyedProcessFunction .* not <built-in function len>"),
    ],
)
def test_no_usable_function_is_an_error_while_the_program_is_built(function: Any, problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        KeyedProcessSpec(function, ("key",))
