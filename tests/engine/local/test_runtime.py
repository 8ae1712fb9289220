"""The local runtime: repeatable order, backpressure, errors that say where, and nothing left open."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.connectors.datagen import DataGenSource, Sequence
from penstock.engine.aggregates.functions import count
from penstock.engine.aggregates.functions import sum as total
from penstock.engine.clock import ManualClock
from penstock.engine.connectors import ConnectorContext, SinkWriter, Wait
from penstock.engine.elements import Batch
from penstock.engine.errors import JobCancelledError, JobFailedError, RecordError, SubtaskError, UserCodeError
from penstock.engine.functions import Context, OutputTag, ProcessFunction, Rows
from penstock.engine.job.status import JobStatus
from penstock.engine.windows.assigners import tumbling
from penstock.environment import StreamEnvironment
from penstock.recovery import checkpoints, fixed_delay
from tests.engine.helpers import RecordingSink, Row, ScriptedSource, local_environment, numbers


def values(n: int) -> list[Row]:
    return [{"k": x % 5, "x": x} for x in range(n)]


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: tuple(str(value) for value in row.values()))


# Order


def test_the_same_seed_gives_the_same_order() -> None:
    def trace(seed: int) -> list[Row]:
        sink = RecordingSink()
        env = local_environment(3, seed=seed, max_batch_rows=2)
        env.from_collection(values(60)).rebalance().map(lambda row: row).sink_to(sink)
        env.execute()
        return sink.rows

    assert trace(1) == trace(1)
    assert trace(1) != trace(2)
    assert in_order(trace(1)) == in_order(trace(2)) == in_order(values(60))


def test_running_totals_end_the_same_for_any_seed_and_any_batches() -> None:
    finals = []
    for seed in range(10):
        env = local_environment(3, seed=seed, max_batch_rows=random.Random(seed).choice([1, 3, 7, 1000]))
        updates = env.from_collection(values(60)).key_by("k").aggregate(n=count(), s=total("x")).collect()
        finals.append({row["k"]: row for row in updates})
    assert finals == [{k: {"k": k, "n": 12, "s": 12 * k + 5 * 66} for k in range(5)}] * 10


def test_windows_over_one_ordered_stream_are_the_same_for_any_seed() -> None:
    def results(seed: int) -> list[Row]:
        env = local_environment(3, seed=seed, max_batch_rows=seed + 1)
        keyed = env.from_collection(values(60)).assign_timestamps("x").set_parallelism(1).key_by("k")
        return in_order(
            keyed.window(tumbling("20ms")).aggregate(n=count(), s=total("x")).collect().to_arrow().to_pylist()
        )

    first = results(0)
    assert [row["n"] for row in first] == [4] * 15
    assert all(results(seed) == first for seed in range(1, 8))


# Backpressure


class SlowSink(RecordingSink):
    """Works for a second on each batch, and looks at how many rows are under way to it."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.taken = 0
        self.looks: list[int] = []
        self.generated = 0

    def open(self, context: ConnectorContext) -> SinkWriter:
        sink = self

        class Writer(SinkWriter):
            def write(self, batch: Batch) -> None:
                sink.taken += batch.num_rows
                sink.looks.append(sink.generated - sink.taken)
                sink.clock.advance(1.0)

        return Writer()


@pytest.mark.parametrize("credit", [1, 4])
@pytest.mark.parametrize("seed", range(3))
def test_a_slow_sink_holds_the_source_back(credit: int, seed: int) -> None:
    batch_rows, rows = 1_000, 1_000_000
    clock = ManualClock()
    sink = SlowSink(clock)

    def number(n: Any) -> Any:
        sink.generated += len(n)
        return n

    env = local_environment(1, seed, clock, channel_credits=credit, max_batch_rows=batch_rows, buffer_timeout="0ms")
    source = DataGenSource({"n": number}, rows=rows)
    sink.generated = 0
    env.from_source(source).rebalance().sink_to(sink)
    env.execute()
    # Under way: one batch for each credit, and one that fills up at the sender.
    assert max(sink.looks) <= (credit + 1) * batch_rows
    assert sink.taken == sink.generated == rows


def test_a_slow_client_holds_the_job_back() -> None:
    env = local_environment(1, channel_credits=2, max_batch_rows=10, buffer_timeout="0ms")
    result = env.from_source(DataGenSource({"n": Sequence()})).collect()
    rows = iter(result)
    assert [next(rows)["n"] for _ in range(25)] == list(range(25))
    job = result._program.submit_once()
    assert job.metrics().operators[0].rows_out <= (3 + 2 + 2) * 10
    rows.close()  # type: ignore[attr-defined]
    assert job.status() is JobStatus.CANCELLED


# Errors


def test_an_error_of_the_user_says_where_with_which_row_and_shows_the_users_code() -> None:
    def divide(row: Row) -> Row:
        return {"y": 10 // row["x"]}

    env = local_environment(2)
    env.from_collection([{"x": 1}, {"x": 0}]).rebalance().map(divide).name("division").print()
    with pytest.raises(JobFailedError, match="job 'sums' failed") as failure:
        env.execute("sums")
    message = str(failure.value)
    assert "operator 'division', subtask 1" in message
    assert "ZeroDivisionError" in message
    assert "{'x': 0}" in message
    assert 'return {"y": 10 // row["x"]}' in message
    assert isinstance(failure.value.__cause__, UserCodeError)


def test_bad_data_fails_the_job_with_its_own_message() -> None:
    env = local_environment()
    env.from_source(ScriptedSource({"a": [numbers([1]).data, RecordError("a.csv:3: not a number")]})).collect()
    with pytest.raises(JobFailedError, match=r"a\.csv:3: not a number"):
        env.execute()


def test_an_error_of_a_connector_is_wrapped_with_its_place() -> None:
    env = local_environment()
    env.from_collection([{"x": 1}]).sink_to(RecordingSink(fails_after=0)).name("disk")
    with pytest.raises(JobFailedError, match="no space left on device") as failure:
        env.execute()
    assert isinstance(failure.value.__cause__, SubtaskError)
    assert "disk" in str(failure.value)


def test_a_failed_job_closes_every_sink_and_finishes_none() -> None:
    sink = RecordingSink(fails_after=10)
    env = local_environment(3)
    env.from_source(DataGenSource({"n": Sequence()})).sink_to(sink)
    job = env.submit()
    with pytest.raises(JobFailedError):
        job.wait()
    assert job.status() is JobStatus.FAILED
    assert sorted(sink.events) == [f"{what} {subtask}" for what in ("close", "open") for subtask in range(3)]


def test_a_failed_job_closes_the_readers_that_are_open() -> None:
    source = ScriptedSource({"a": [numbers([1]).data, OSError("gone")], "b": [numbers([2]).data]}, interleaved=True)
    env = local_environment()
    env.from_source(source).collect()
    with pytest.raises(JobFailedError, match="gone"):
        env.execute()
    assert sorted(source.events) == ["close a", "close b", "open a", "open b"]


class FailingToOpen(RecordingSink):
    def open(self, context: ConnectorContext) -> SinkWriter:
        if context.subtask == 1:
            raise OSError("no such directory")
        return super().open(context)


def test_a_sink_that_cannot_be_opened_fails_the_job_and_closes_the_others() -> None:
    sink = FailingToOpen()
    env = local_environment(2)
    env.from_source(DataGenSource({"n": Sequence()}, rows=10)).sink_to(sink)
    with pytest.raises(JobFailedError, match="no such directory"):
        env.execute()
    assert sink.events == ["open 0", "close 0"]


class FailingToClose(RecordingSink):
    def open(self, context: ConnectorContext) -> SinkWriter:
        class Writer(SinkWriter):
            def write(self, batch: Batch) -> None:
                raise OSError("first error")

            def close(self) -> None:
                raise OSError("second error")

        return Writer()


def test_the_first_error_is_the_one_that_is_told() -> None:
    env = local_environment()
    env.from_collection([{"x": 1}]).sink_to(FailingToClose())
    with pytest.raises(JobFailedError, match="first error"):
        env.execute()


class Wordless(Exception):
    """Has no text."""

    def __str__(self) -> str:
        return str(self.args[1])


def test_an_error_without_a_text_fails_the_job() -> None:
    class Failing(RecordingSink):
        def open(self, context: ConnectorContext) -> SinkWriter:
            raise Wordless("only one argument")

    env = local_environment()
    env.from_collection([{"x": 1}]).sink_to(Failing())
    with pytest.raises(JobFailedError, match=r"Wordless: \(its __str__ raises IndexError"):
        env.execute()


def test_a_sink_that_cannot_be_closed_fails_the_job() -> None:
    env = local_environment()
    env.from_collection([{"x": 1}]).filter(lambda row: False).sink_to(FailingToClose())
    with pytest.raises(JobFailedError, match="second error"):
        env.execute()


# Ends


def test_a_finished_job_has_finished_and_closed_its_sinks() -> None:
    sink = RecordingSink()
    env = local_environment(2)
    env.from_collection(values(10)).rebalance().sink_to(sink)
    job = env.execute()
    assert job.status() is JobStatus.FINISHED
    assert in_order(sink.rows) == in_order(values(10))
    assert sorted(sink.events) == [f"{what} {i}" for what in ("close", "finish", "open") for i in range(2)]


def test_a_cancelled_job_finishes_no_sink_but_closes_all() -> None:
    sink = RecordingSink()
    env = local_environment()
    env.from_source(DataGenSource({"n": Sequence()})).sink_to(sink)
    job = env.submit()
    with pytest.raises(TimeoutError):
        job.wait(timeout=0)
    job.cancel()
    job.cancel()
    assert job.status() is JobStatus.CANCELLED
    assert sink.events == ["open 0", "close 0"]
    with pytest.raises(JobCancelledError):
        job.wait()


def test_cancelling_a_finished_job_changes_nothing() -> None:
    env = local_environment()
    result = env.from_collection([{"x": 1}]).collect()
    job = env.execute()
    job.cancel()
    assert job.status() is JobStatus.FINISHED
    assert result.to_arrow().to_pylist() == [{"x": 1}]


def test_time_that_a_source_waits_for_passes_at_once_on_a_manual_clock() -> None:
    clock = ManualClock()
    env = local_environment(clock=clock)
    source = ScriptedSource({"a": [numbers([1]).data, Wait(3600.0), numbers([2]).data]})
    assert [row["n"] for row in env.from_source(source).collect()] == [1, 2]
    assert clock.monotonic() >= 3600.0


@pytest.mark.parametrize(("waits", "seconds"), [([0.01, 0.015, 0.02, 0.022, 0.026], 0.02), ([], 0.005)])
def test_a_row_goes_at_once_and_those_behind_it_by_the_buffer_timeout_or_where_none_comes(
    waits: list[float], seconds: float
) -> None:
    clock = ManualClock()
    env = local_environment(clock=clock, buffer_timeout="20ms")
    batches = [numbers([number]).data for number in range(3)]
    source = ScriptedSource(
        {"a": [batches[0], Wait(0.005), batches[1], *(Wait(at) for at in waits), Wait(3600.0), batches[2]]}
    )
    rows = iter(env.from_source(source).collect())
    assert next(rows) == {"n": 0}
    assert clock.monotonic() == 0.0
    assert next(rows) == {"n": 1}
    assert clock.monotonic() == pytest.approx(seconds)
    assert list(rows) == [{"n": 2}]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_source_reads_on_as_fast_as_it_can_however_long_rows_may_wait(parallelism: int) -> None:
    clock = ManualClock()
    env = local_environment(parallelism, clock=clock, buffer_timeout="60s")
    pages = [(numbers(range(50)).data, Wait(0.005 * number)) for number in range(1, 201)]
    source = ScriptedSource({"a": [answer for page in pages for answer in page]})
    assert len(list(env.from_source(source).rebalance().collect())) == 10_000
    assert clock.monotonic() == pytest.approx(1.0)


@pytest.mark.parametrize("channel_credits", [1, 4])
def test_the_end_of_a_source_does_not_wait_for_a_task_that_rests(channel_credits: int) -> None:
    clock, sink = ManualClock(), RecordingSink()
    env = local_environment(2, clock=clock, buffer_timeout="60s", channel_credits=channel_credits)
    first, second = numbers([1]).data, numbers([2]).data
    source = ScriptedSource({"a": [first, Wait(20.0)], "b": [Wait(10.0), second, Wait(20.0)]})
    env.from_source(source).global_().sink_to(sink)
    env.execute()
    assert clock.monotonic() == pytest.approx(20.0)


# What is computed


def test_behind_a_global_exchange_all_rows_are_in_the_first_subtask() -> None:
    sink = RecordingSink()
    env = local_environment(3)
    env.from_collection(values(10)).global_().sink_to(sink)
    env.execute()
    assert sink.by_subtask == {0: values(10)}


def test_a_broadcast_stream_is_in_every_subtask() -> None:
    sink = RecordingSink()
    env = local_environment(3)
    env.from_collection(values(10)).broadcast().sink_to(sink)
    env.execute()
    assert sink.by_subtask == {subtask: values(10) for subtask in range(3)}


def test_a_union_has_the_rows_of_all_even_of_the_same_stream_twice() -> None:
    env = local_environment(2)
    stream = env.from_collection([{"x": 1}, {"x": 2}])
    assert sorted(row["x"] for row in stream.union(stream, env.from_collection([{"x": 3}])).collect()) == [
        1,
        1,
        2,
        2,
        3,
    ]


def test_a_job_without_rows_has_empty_results_with_their_columns() -> None:
    env = local_environment(2)
    result = env.from_collection([], schema={"k": "int64", "x": "int64"}).key_by("k").aggregate(n=count()).collect()
    assert result.to_arrow().equals(pa.table({"k": pa.array([], pa.int64()), "n": pa.array([], pa.int64())}))


def test_metrics_count_rows_on_both_sides_of_each_operator() -> None:
    env = local_environment(2)
    stream = env.from_collection(values(10)).filter(lambda row: row["x"] < 4).name("few")
    stream.key_by("k").aggregate(n=count()).name("counts").sink_to(RecordingSink())
    metrics = env.execute().metrics()
    seen = {
        operator.name: (operator.parallelism, operator.rows_in, operator.rows_out) for operator in metrics.operators
    }
    assert seen == {
        "collection(10 rows)": (1, 0, 10),
        "few": (2, 10, 4),
        "counts": (2, 4, 4),
        "recording": (2, 4, 0),
    }


def test_metrics_count_late_rows() -> None:
    env = local_environment(max_batch_rows=1)
    timed = env.from_collection([{"k": 1, "x": x} for x in (5, 100, 6)]).assign_timestamps("x")
    timed.key_by("k").window(tumbling("10ms")).aggregate(n=count()).sink_to(RecordingSink())
    assert env.execute().metrics().late_rows == 1


# Failures that are got over


def test_a_failure_that_is_got_over_is_told_with_its_cause(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    failures = iter([True])

    def once(row: dict[str, Any]) -> dict[str, Any]:
        if next(failures, False):
            raise ValueError("no such carrier")
        return row

    env = StreamEnvironment(
        runtime="local", checkpoints=checkpoints("1s", str(tmp_path)), restart=fixed_delay(attempts=3, delay="0s")
    )
    rows = env.from_collection([{"x": 1}]).map(once, returns={"x": "int64"}).collect()
    with caplog.at_level(logging.WARNING):
        assert list(rows) == [{"x": 1}]
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert "is restarted (restart-strategy.type sets how often): " in told[0]
    assert "ValueError: no such carrier" in told[0]


def test_a_local_job_says_how_it_stands(tmp_path: Path) -> None:
    failed = []

    def once(row: Row) -> Row:
        if row["x"] == 50 and not failed:
            failed.append(row)
            raise ValueError("no")
        return row

    settings = {"checkpoints": checkpoints("5m", str(tmp_path)), "restart": fixed_delay(1, "0s")}
    # So few rows at a time that the checkpoint is there long before row 50 comes.
    env = local_environment(2, max_batch_rows=4, **settings)
    env.from_collection(values(60)).map(once).uid("once").sink_to(RecordingSink())
    job = env.submit("orders")
    job.checkpoint()
    running = job.info()
    assert (running.name, running.status, running.restarts, running.parallelism) == ("orders", JobStatus.RUNNING, 0, 2)
    assert running.completed_checkpoints == 1
    assert "once" in [operator.uid for task in running.tasks for operator in task.operators]
    job.wait()
    ended = job.info()
    assert (ended.status, ended.restarts, ended.restart_history[0].kind) == (JobStatus.FINISHED, 1, "failure")


# Rescales


ODD = OutputTag("odd")


class Split(ProcessFunction):
    """Odd numbers go another way."""

    def process_element(self, row: Row, ctx: Context) -> Rows:
        if row["x"] % 2:
            ctx.output(ODD, row)
        else:
            yield row


@pytest.mark.parametrize("mode", ["exactly-once", "unaligned"])
def test_a_rescale_that_brings_operators_together_in_a_task_gives_each_row_once(mode: Any, tmp_path: Path) -> None:
    for seed in range(3):
        storage = checkpoints("10m", str(tmp_path), mode=mode)
        env = local_environment(3, seed, checkpoints=storage, max_batch_rows=2, buffer_timeout="0s")
        split = env.from_collection(values(200)).process(Split()).set_parallelism(1)
        odd = split.get_side_output(ODD).map(lambda row: row)
        rows = odd.union(split.map(lambda row: row)).collect()
        job = env.submit()
        for _ in range(20):
            job.pump(0.001)
        job.rescale(1)
        assert in_order(list(rows)) == in_order(values(200))
