"""What a job counts, as its user reads it: in every kind of function, and in its queues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock import KeyedProcessFunction, ProcessFunction, StreamEnvironment
from penstock.engine.metrics import OperatorMetrics, OperatorReport, SubtaskMetrics, report


class Reject(ProcessFunction):
    def open(self, context: Any) -> None:
        self.rejected = context.metrics.counter("rejected")

    def process_element(self, row: dict[str, Any], ctx: Any) -> Iterator[dict[str, Any]]:
        if row["n"] % 10 == 0:
            self.rejected.inc()
            return
        yield row


class Spread(KeyedProcessFunction):
    def open(self, context: Any) -> None:
        self.sizes = context.metrics.histogram("sizes")

    def process_element(self, row: dict[str, Any], ctx: Any) -> Iterator[dict[str, Any]]:
        self.sizes.update(row["n"])
        yield row


class Marked:
    def open(self, context: Any) -> None:
        self.rows = context.metrics.meter("rows")

    def __call__(self, data: pa.RecordBatch) -> pa.RecordBatch:
        self.rows.mark(data.num_rows)
        return data


def test_functions_count_what_they_like_and_the_job_tells() -> None:
    env = StreamEnvironment(runtime="local", parallelism=2)
    rows = env.from_collection([{"n": n} for n in range(100)])
    rows.process(Reject(), returns={"n": "int64"}).map_batches(Marked).key_by("n").process(
        Spread(), returns={"n": "int64"}
    ).collect()
    job = env.execute("counting")
    told = {reading.name: reading for operator in job.metrics().operators for reading in operator.metrics}
    assert {name: told[name].value for name in told} == {"rejected": 10, "rows": 90, "sizes": 90}
    assert (told["sizes"].lowest, told["sizes"].highest) == (1, 99)


def test_a_subtask_that_is_just_being_started_hides_no_other() -> None:
    known, begins = SubtaskMetrics(1, 1, [("map", OperatorMetrics(rows_in=7))]), SubtaskMetrics(1, 0)
    for subtasks in ([known, begins], [begins, known]):
        (operator,) = report(subtasks).operators
        assert (operator.name, operator.rows_in, operator.parallelism) == ("map", 7, 2)
    assert report([begins]).operators == ()


def test_event_time_is_not_told_while_a_subtask_is_missing() -> None:
    known = SubtaskMetrics(1, 1, [("map", OperatorMetrics(watermark=9, input_watermark=9))])
    (whole,), (partly,) = report([known]).operators, report([known, SubtaskMetrics(1, 0)]).operators
    assert (whole.current_watermark, whole.current_input_watermark) == (9, 9)
    assert (partly.current_watermark, partly.current_input_watermark) == (None, None)


def test_a_metric_that_is_not_there_is_named_with_those_that_are() -> None:
    operator = OperatorReport(1, 0, "map", 1, 0, 0, 0, 0.0, 0.0, None)
    with pytest.raises(KeyError, match="operator 'map' has no metric 'x'; it has: none"):
        operator.metric("x")


def test_the_queues_say_what_waits_and_what_has_gone() -> None:
    env = StreamEnvironment(runtime="local", parallelism=2)
    env.from_collection([{"n": n} for n in range(1000)]).key_by("n").aggregate(total=ps.sum("n")).collect()
    job: Any = env.submit("queues")
    job.wait()
    read = list(job._manager.execution.metrics())
    sources = [one for one in read if one.task == 1]
    assert sum(one.output.messages_sent for one in sources) > 0
    assert sum(one.output.bytes_sent for one in sources) >= 8000
    assert all((one.output.rows, one.output.bytes, one.output.full) == (0, 0, 0) for one in sources)
    assert [one.gate.channels for one in read if one.task == 2] == [len(sources)] * 2


def test_each_channel_says_what_has_come_into_it() -> None:
    env = StreamEnvironment(runtime="local", parallelism=2)
    numbers = env.from_source(ps.DataGenSource({"n": ps.Sequence()}, rows=None))
    counts = numbers.key_by("n").aggregate(total=ps.count())
    counts.map(lambda row: row, returns={"n": "int64", "total": "int64"}).start_new_chain().print()
    job: Any = env.submit("channels")
    while not all(one.operators[0][1].rows_out for one in job._manager.execution.metrics() if one.task < 3):
        job.pump(0.01)
    for subtask in range(2):
        task = job._manager.execution.task((1, subtask))
        channels, together = task.channels(), task.read_metrics().output
        assert [(channel.task, channel.subtask) for channel in channels] == [(2, 0), (2, 1)]
        assert sum(channel.output.bytes_sent for channel in channels) == together.bytes_sent
        assert sum(channel.rows for channel in channels) == task.metrics.operators[-1][1].rows_out > 0
        (forward,) = job._manager.execution.task((2, subtask)).channels()
        assert (forward.task, forward.subtask, forward.rows > 0) == (3, subtask, True)
    job.cancel()
