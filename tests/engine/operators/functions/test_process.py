"""Process functions on streams without keys: rows, side outputs, state of the subtask, and what they must not do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.config import JobConfig
from penstock.engine.elements import Batch
from penstock.engine.errors import GraphError, RecordError, SerializationError, StateError, UserCodeError
from penstock.engine.functions import (
    Context,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    Row,
    Rows,
    RuntimeContext,
)
from penstock.engine.operators.functions.process import ProcessSpec
from penstock.engine.state.descriptors import ListStateDescriptor, ValueStateDescriptor
from tests.engine.helpers import RecordingCollector
from tests.engine.operators.functions.functions import Running, RunningSum, at, plain, rescaled
from tests.engine.state.saved import snapshot_of

EVEN = OutputTag("even")
SEEN = ListStateDescriptor("seen", "int64")


def unkeyed(process: Callable[..., Any]) -> type[ProcessFunction]:
    class Given(ProcessFunction):
        def open(self, context: RuntimeContext) -> None:
            self.context = context

        def process_element(self, row: Row, ctx: Context) -> Rows:
            return process(self, row, ctx)  # type: ignore[no-any-return]

    return Given


def test_rows_go_on_or_to_a_side_output_in_order() -> None:
    def split(self: Any, row: Row, ctx: Context) -> Rows:
        if row["n"] % 2:
            yield {"odd": row["n"], "timestamp": ctx.timestamp}
        else:
            ctx.output(EVEN, row)

    for spec, batch, times in (
        (ProcessSpec(unkeyed(split)), plain({"n": n} for n in range(5)), [None] * 2),
        (ProcessSpec(unkeyed(split), timed=True), at({"n": n, "at": n} for n in range(5)), [1, 3]),
    ):
        job = Running(spec, sides=["even"])
        assert [(row["odd"], row["timestamp"]) for row in job.process(batch)] == list(zip([1, 3], times, strict=True))
        assert job.times == times
        assert [row["n"] for row in job.side("even")] == [0, 2, 4]


def test_any_iterable_of_rows_and_none_are_results() -> None:
    made: list[Any] = [None, [], ({"n": 1},), iter([{"n": 2}]), ({"n": n} for n in (3, 4)), {5: {"n": 5}}.values()]
    job = Running(ProcessSpec(unkeyed(lambda self, row, ctx: made[row["i"]])))
    assert job.process(plain({"i": i} for i in range(len(made)))) == [{"n": n} for n in (1, 2, 3, 4, 5)]


@pytest.mark.parametrize(
    ("process", "problem"),
    [
        (lambda self, row, ctx: ctx.current_key, "no current key on a stream without keys; call key_by first"),
        (lambda self, row, ctx: ctx.timer_service.register_event_time_timer(5), "timers belong to keys.*call key_by"),
        (
            lambda self, row, ctx: ctx.timer_service.delete_processing_time_timer(5),
            "timers belong to keys.*call key_by",
        ),
        (lambda self, row, ctx: self.context.get_operator_list_state(SEEN), "declare every state in open"),
    ],
)
def test_keys_timers_and_late_states_are_refused(process: Any, problem: str) -> None:
    with pytest.raises(StateError, match=rf"operator 'tested', subtask 0: .*{problem}"):
        Running(ProcessSpec(unkeyed(process))).process(plain([{"n": 1}]))


def test_keyed_state_is_refused() -> None:
    class Counts(ProcessFunction):
        def open(self, context: RuntimeContext) -> None:
            context.get_state(ValueStateDescriptor("count", "int64"))

        def process_element(self, row: Row, ctx: Context) -> Rows:
            return None

    with pytest.raises(StateError, match=r"get_state\('count'\) needs keyed state, .* call key_by first"):
        Running(ProcessSpec(Counts))


def test_the_time_is_known() -> None:
    def ask(self: Any, row: Row, ctx: Context) -> Rows:
        yield {"watermark": ctx.timer_service.current_watermark(), "now": ctx.timer_service.current_processing_time()}

    job = Running(ProcessSpec(unkeyed(ask)))
    job.advance(44)
    job.tick(7000)
    assert job.process(plain([{"n": 1}])) == [{"watermark": 44, "now": 7000}]
    again = Running(ProcessSpec(unkeyed(ask)), restored=snapshot_of(job.operator))
    assert again.process(plain([{"n": 1}])) == [{"watermark": 44, "now": 0}]


class Remembers(ProcessFunction):
    """Emits all rows that the subtask has seen, and, of all subtasks, those that are in the union."""

    def open(self, context: RuntimeContext) -> None:
        self.seen = context.get_operator_list_state(SEEN)
        self.all = context.get_union_list_state(ListStateDescriptor("all", "int64"))

    def process_element(self, row: Row, ctx: Context) -> Rows:
        if row["n"]:
            self.seen.add(row["n"])
            self.all.add(row["n"])
        yield {"seen": sorted(self.seen.get()), "all": sorted(self.all.get())}


@pytest.mark.parametrize("after", [1, 2, 3])
def test_state_of_the_subtask_is_dealt_out_and_union_state_goes_to_all(after: int) -> None:
    old = [Running(ProcessSpec(Remembers), subtask=subtask, parallelism=2) for subtask in range(2)]
    for subtask, numbers in enumerate(([1, 2], [3])):
        old[subtask].process(plain({"n": n} for n in numbers))
    new = rescaled(ProcessSpec(Remembers), [snapshot_of(job.operator) for job in old], after)
    results = [job.process(plain([{"n": 0}]))[0] for job in new]
    assert sorted(n for row in results for n in row["seen"]) == [1, 2, 3]
    assert max(len(row["seen"]) for row in results) == -(-3 // after)
    assert [row["all"] for row in results] == [[1, 2, 3]] * after


class Starts(ProcessFunction):
    """Writes once, at the first start, and tells what it found."""

    def open(self, context: RuntimeContext) -> None:
        self.seen = context.get_operator_list_state(SEEN)
        self.found = self.seen.get(), context.is_restored
        if not self.seen.get():
            self.seen.add(7)

    def process_element(self, row: Row, ctx: Context) -> Rows:
        yield {"found": self.found[0], "restored": self.found[1], "now": self.seen.get()}


def test_state_of_the_subtask_is_there_in_open_and_not_doubled_by_restarts() -> None:
    job = Running(ProcessSpec(Starts))
    assert job.process(plain([{"n": 0}])) == [{"found": [], "restored": False, "now": [7]}]
    for _ in range(3):
        job = Running(ProcessSpec(Starts), restored=snapshot_of(job.operator))
        assert job.process(plain([{"n": 0}])) == [{"found": [7], "restored": True, "now": [7]}]


class Union(ProcessFunction):
    """Keeps its own numbers, and writes them to the union when a snapshot is taken."""

    def open(self, context: RuntimeContext) -> None:
        self.all = context.get_union_list_state(ListStateDescriptor("all", "int64"))
        self.own: list[int] = []
        if context.is_restored and context.subtask == 0:
            self.own = self.all.get()

    def snapshot_state(self) -> None:
        self.all.update(self.own)

    def process_element(self, row: Row, ctx: Context) -> Rows:
        self.own.append(row["n"])
        yield {"all": self.all.get()}


def test_union_state_that_is_written_anew_for_each_snapshot_does_not_multiply() -> None:
    jobs = rescaled(ProcessSpec(Union), [], 3)
    for subtask, job in enumerate(jobs):
        job.process(plain([{"n": subtask}]))
    for _ in range(3):
        jobs = rescaled(ProcessSpec(Union), [snapshot_of(job.operator) for job in jobs], 3)
    assert jobs[0].process(plain([{"n": 3}])) == [{"all": [0, 1, 2]}]


def test_an_error_in_the_hook_of_snapshots_is_the_users() -> None:
    class Failing(Union):
        def snapshot_state(self) -> None:
            raise OSError("disk full")

    with pytest.raises(UserCodeError, match=r"'tested', subtask 0: .*OSError: disk full"):
        snapshot_of(Running(ProcessSpec(Failing)).operator)


def test_results_leave_in_batches_of_the_greatest_size_while_the_function_goes_on() -> None:
    """One row gives five results, another none, others one; side outputs are cut too."""
    emitted: list[int] = []

    def fan_out(self: Any, row: Row, ctx: Context) -> Rows:
        for i in range(row["n"]):
            emitted.append(len(job.out.elements))
            ctx.output(EVEN, {"i": i})
            yield {"i": i}

    counts = [1, 5, 0, 1, 1, 3, 0]
    job = Running(ProcessSpec(unkeyed(fan_out), timed=True), sides=["even"], config=JobConfig(max_batch_rows=2))
    rows = job.process(at({"n": n, "at": t} for t, n in enumerate(counts)))
    assert [row["i"] for row in rows] == [i for n in counts for i in range(n)]
    assert job.times == [t for t, n in enumerate(counts) for _ in range(n)]
    assert [batch.num_rows for batch in job.batches] == [2, 2, 2, 2, 2, 1]
    assert max(emitted) == 5
    assert job.sides["even"].timestamps == job.times
    assert {batch.num_rows for batch in job.sides["even"].batches} == {1, 2}


def test_rows_for_side_outputs_alone_leave_in_batches_too() -> None:
    waiting: list[int] = []

    def aside(self: Any, row: Row, ctx: Context) -> Rows:
        waiting.append(len(job.sides["even"].batches))
        if row["at"] == 4:
            return [row]
        ctx.output(EVEN, row)
        return None

    job = Running(ProcessSpec(unkeyed(aside), timed=True), sides=["even"], config=JobConfig(max_batch_rows=2))
    assert job.process(at({"at": t} for t in range(6))) == [{"at": 4}]
    assert job.times == [4]
    assert waiting == [0, 0, 1, 1, 2, 2]
    assert job.sides["even"].timestamps == [row["at"] for row in job.side("even")] == [0, 1, 2, 3, 5]


def test_an_error_of_the_operator_behind_is_not_taken_for_the_functions() -> None:
    class Broken(RecordingCollector):
        def collect(self, batch: Batch) -> None:
            raise OSError("behind")

    job = Running(ProcessSpec(unkeyed(lambda self, row, ctx: [row])), config=JobConfig(max_batch_rows=1))
    with pytest.raises(OSError, match="behind"):
        job.operator.process_batch(plain([{"n": 1}]), 0, Broken())


def test_tags_that_declare_other_columns_are_refused() -> None:
    def emit(tag: OutputTag) -> Any:
        def process(self: Any, row: Row, ctx: Context) -> None:
            ctx.output(tag, row)

        return ProcessSpec(unkeyed(process))

    read = {"even": pa.schema([("n", pa.string())])}
    with pytest.raises(RecordError, match=r"side output 'even'.*\(n: int64\), and read with one of \(n: string\)"):
        Running(emit(OutputTag("even", {"n": "int64"})), ["even"], side_schemas=read).process(plain([{"n": 1}]))
    with pytest.raises(RecordError, match=r"side output 'even'.*'n'"):
        Running(emit(EVEN), ["even"], side_schemas=read).process(plain([{"n": 1}]))

    def both(self: Any, row: Row, ctx: Context) -> None:
        for kind in ("int64", "string"):
            ctx.output(OutputTag("even", {"n": kind}), row)

    with pytest.raises(RecordError, match=r"\(n: string\), and emitted to before with one of \(n: int64\)"):
        Running(ProcessSpec(unkeyed(both)), ["even"]).process(plain([{"n": 1}]))


def test_what_cannot_be_copied_is_an_error_with_a_remedy() -> None:
    class Locked(ProcessFunction):
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def process_element(self, row: Row, ctx: Context) -> Rows:
            return None

    with pytest.raises(SerializationError, match="pass the class"):
        Running(ProcessSpec(Locked()))
    assert Running(ProcessSpec(Locked)).process(plain([{"n": 1}])) == []


def test_rows_of_other_columns_are_refused_however_they_are_cut() -> None:
    for batches in ([plain([{"n": 1}, {"n": 2}])], [plain([{"n": 1}]), plain([{"n": 2}])]):
        job = Running(ProcessSpec(unkeyed(lambda self, row, ctx: [{"a": 1} if row["n"] == 1 else {"b": 1}])))
        for batch in batches[:-1]:
            job.process(batch)
        with pytest.raises(RecordError, match=r"'tested', subtask 0: row . has the key 'b'"):
            job.process(batches[-1])


class _Empty(ProcessFunction):
    pass


class _Keyed(KeyedProcessFunction):
    def process_element(self, row: Row, ctx: Context) -> Rows:
        return None


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (_Empty, "_Empty does not implement process_element"),
        (_Keyed(), r"takes a ProcessFunction .* not _Keyed; .* goes behind key_by"),
        (RunningSum, r"takes a ProcessFunction .* not RunningSum"),
        (None, r"takes a ProcessFunction .* not None"),
        (lambda row: row, r"takes a ProcessFunction .* a plain function into map"),
    ],
)
def test_no_usable_function_is_an_error_while_the_program_is_built(function: Any, problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        ProcessSpec(function)
