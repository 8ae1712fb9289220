"""The handle of a job: waiting, results, iterating, and what it raises."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pytest

from penstock import DataGenSource, Sequence, StreamEnvironment
from penstock.engine.clock import SystemClock
from penstock.engine.elements import Batch
from penstock.engine.errors import JobCancelledError, JobFailedError, PenstockError, RecordError
from penstock.engine.job.handle import CollectedRows, CollectResult, JobHandle, ResultConsumer
from penstock.engine.job.status import TRANSITIONS, JobStatus, transition
from penstock.engine.metrics import JobMetrics
from tests.engine.helpers import local_environment, numbers


class ScriptedJob(JobHandle):
    """A job that gives one batch a poll, and then ends as told."""

    def __init__(
        self,
        consumers: Mapping[int, ResultConsumer],
        batches: list[tuple[int, Batch]],
        end: JobStatus = JobStatus.FINISHED,
        error: PenstockError | None = None,
    ) -> None:
        super().__init__("scripted", consumers)
        self.batches, self.end, self.error = batches, end, error
        self.state = JobStatus.RUNNING
        self.polls: list[float] = []

    def status(self) -> JobStatus:
        return self.state

    def metrics(self) -> JobMetrics:
        return JobMetrics(())

    def cancel(self) -> None:
        self.state = JobStatus.CANCELLED

    def checkpoint(self) -> str:
        return "chk"

    def savepoint(self, directory: str | None = None) -> str:
        return "savepoint"

    def stop(self, directory: str | None = None) -> str:
        return "stopped"

    def drain(self, directory: str | None = None) -> str:
        return "drained"

    def rescale(self, parallelism: int) -> float:
        return 0.0

    def _poll(self, seconds: float) -> list[tuple[int, Batch]]:
        self.polls.append(seconds)
        if self.batches:
            return [self.batches.pop(0)]
        if self.state is JobStatus.RUNNING:
            self.state = self.end
        return []

    @property
    def _drained(self) -> bool:
        return self.state.ended and not self.batches

    @property
    def _error(self) -> PenstockError | None:
        return self.error


@dataclass
class Submitted:
    """A program that has a job already, or must not be submitted."""

    job: JobHandle | None

    def submit_once(self) -> JobHandle:
        return self.job or pytest.fail("submitted")


class EndlessJob(ScriptedJob):
    """A job that gives a row a poll, for ever."""

    def __init__(self, consumers: Mapping[int, ResultConsumer]) -> None:
        super().__init__(consumers, [])
        self.number = 0

    def _poll(self, seconds: float) -> list[tuple[int, Batch]]:
        self.polls.append(seconds)
        self.number += 1
        return [(1, numbers([self.number]))]


def collected(schema: pa.Schema | None = None) -> CollectedRows:
    return CollectedRows(schema)


def test_waiting_brings_every_row_to_its_consumer() -> None:
    first, second = collected(), collected()
    job = ScriptedJob({1: first, 2: second}, [(1, numbers([1])), (2, numbers([2])), (1, numbers([3]))])
    job.wait()
    assert list(first.take_rows()) == [{"n": 1}, {"n": 3}]
    assert list(second.take_rows()) == [{"n": 2}]


def test_waiting_ends_at_the_timeout_and_says_how_to_end_the_job() -> None:
    job = EndlessJob({1: collected()})
    with pytest.raises(TimeoutError, match=r"job 'scripted' still runs after 0 s; cancel\(\) ends it"):
        job.wait(timeout=0)
    assert job.status() is JobStatus.RUNNING
    assert job.polls == [0.0]


def test_waiting_never_polls_for_longer_than_the_timeout() -> None:
    job = ScriptedJob({}, [])
    job.wait(timeout=0.25)
    assert len(job.polls) == 1
    assert 0.0 < job.polls[0] <= 0.25


def test_a_failed_job_says_which_and_why_and_has_its_cause() -> None:
    error = RecordError("a.csv:3: not a number")
    job = ScriptedJob({}, [], JobStatus.FAILED, error)
    with pytest.raises(JobFailedError, match=r"^job 'scripted' failed: a\.csv:3: not a number$") as failure:
        job.wait()
    assert failure.value.__cause__ is error
    assert str(pickle.loads(pickle.dumps(failure.value))) == str(failure.value)


def test_a_cancelled_job_says_so() -> None:
    job = ScriptedJob({}, [], JobStatus.CANCELLED)
    with pytest.raises(JobCancelledError, match="job 'scripted' was cancelled"):
        job.wait()


def test_rows_that_came_before_the_failure_reach_their_consumer() -> None:
    rows = collected()
    job = ScriptedJob({1: rows}, [(1, numbers([1]))], JobStatus.FAILED, RecordError("bad"))
    with pytest.raises(JobFailedError):
        job.wait()
    assert list(rows.take_rows()) == [{"n": 1}]


def test_the_result_is_the_table_of_the_only_collect() -> None:
    job = ScriptedJob({1: collected()}, [(1, numbers([1])), (1, numbers([2]))])
    assert job.result().to_pydict() == {"n": [1, 2]}


@pytest.mark.parametrize("collects", [0, 2])
def test_the_result_of_none_or_several_collects_is_refused(collects: int) -> None:
    job = ScriptedJob({number: collected() for number in range(collects)}, [])
    with pytest.raises(PenstockError, match=rf"result\(\) needs one collect\(\) .* has {collects}"):
        job.result()


def test_rows_are_read_once() -> None:
    rows = collected(pa.schema([("n", pa.int64())]))
    rows.accept(numbers([1]))
    assert rows.take_table().to_pydict() == {"n": [1]}
    assert rows.take_table().equals(pa.table({"n": pa.array([], pa.int64())}))


def test_no_rows_of_unknown_columns_are_a_table_without_columns() -> None:
    assert collected().take_table().num_columns == 0


def test_a_column_of_nulls_in_one_batch_takes_the_type_of_the_others() -> None:
    rows = collected()
    rows.accept(Batch(pa.record_batch({"n": pa.nulls(1)})))
    rows.accept(numbers([1]))
    assert rows.take_table().schema.field("n").type == pa.int64()


def test_iterating_gives_rows_while_the_job_runs() -> None:
    rows = collected()
    job = EndlessJob({1: rows})
    read = list(itertools.islice(CollectResult(rows, Submitted(job)), 3))
    assert read == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert job.number == 3


def test_a_reader_that_stops_ends_the_job() -> None:
    rows = collected()
    job = EndlessJob({1: rows})
    reading = iter(CollectResult(rows, Submitted(job)))
    next(reading)
    reading.close()  # type: ignore[attr-defined]
    assert job.status() is JobStatus.CANCELLED


def test_iterating_raises_at_the_end_if_the_job_failed() -> None:
    rows = collected()
    job = ScriptedJob({1: rows}, [(1, numbers([1]))], JobStatus.FAILED, RecordError("bad"))
    reading = iter(CollectResult(rows, Submitted(job)))
    assert next(reading) == {"n": 1}
    with pytest.raises(JobFailedError, match="bad"):
        next(reading)


def test_taking_rows_of_a_failed_job_raises_when_all_have_been_taken() -> None:
    rows = collected()
    job = ScriptedJob({1: rows}, [(1, numbers([1]))], JobStatus.FAILED, RecordError("bad"))
    result = CollectResult(rows, Submitted(job))
    assert job.pump()
    with pytest.raises(JobFailedError, match="bad"):
        job.pump()
    assert result.take().to_pydict() == {"n": [1]}, "what came before the failure"
    with pytest.raises(JobFailedError, match="bad"):
        result.take()


def test_a_loop_that_waits_by_pumping_hears_why_its_job_failed() -> None:
    job = ScriptedJob({1: collected()}, [(1, numbers([1]))], JobStatus.FAILED, RecordError("a.csv:3: not a number"))
    assert job.pump(), "it runs still"
    for _ in range(2):
        with pytest.raises(JobFailedError, match=r"job 'scripted' failed: a\.csv:3: not a number"):
            job.pump()


@pytest.mark.parametrize("end", [JobStatus.FINISHED, JobStatus.CANCELLED])
def test_taking_rows_of_a_job_that_ended_otherwise_gives_none(end: JobStatus) -> None:
    rows = collected(pa.schema([("n", pa.int64())]))
    job = ScriptedJob({1: rows}, [], end)
    result = CollectResult(rows, Submitted(job))
    assert not job.pump()
    assert result.take().num_rows == 0
    assert CollectResult(rows, Submitted(None)).take().num_rows == 0, "taking submits nothing"


def test_reading_submits_the_program_once() -> None:
    env = local_environment()
    stream = env.from_collection([{"x": 1}])
    first, second = stream.collect(), stream.collect()
    assert list(first) == [{"x": 1}]
    assert second.to_arrow().to_pydict() == {"x": [1]}


def test_reading_after_execute_does_not_run_the_program_again() -> None:
    env = local_environment()
    calls: list[int] = []
    result = env.from_collection([{"x": 1}]).map(lambda row: calls.append(1) or row).collect()
    job = env.execute()
    assert job.result().to_pydict() == {"x": [1]}
    assert calls == [1]
    assert result.to_arrow().num_rows == 0


def test_rows_as_pandas() -> None:
    pytest.importorskip("pandas")
    frame = local_environment().from_collection([{"x": 1}, {"x": 2}]).collect().to_pandas()
    assert frame["x"].tolist() == [1, 2]


def test_a_job_goes_forward_and_ends_once() -> None:
    allowed = {(current.value, following.value) for current, all_ in TRANSITIONS.items() for following in all_}
    assert allowed == {
        ("created", "deploying"),
        ("deploying", "running"),
        ("running", "finished"),
        *((broken, "restarting") for broken in ("deploying", "running")),
        ("restarting", "running"),
        *((now, end) for now in ("created", "deploying", "running", "restarting") for end in ("failed", "cancelled")),
    }
    assert [status for status in JobStatus if status.ended] == [
        JobStatus.FINISHED,
        JobStatus.FAILED,
        JobStatus.CANCELLED,
    ]


def test_a_step_that_the_table_does_not_have_is_an_error_of_the_runtime() -> None:
    assert transition(JobStatus.CREATED, JobStatus.DEPLOYING) is JobStatus.DEPLOYING
    with pytest.raises(AssertionError, match="finished cannot become running"):
        transition(JobStatus.FINISHED, JobStatus.RUNNING)


@pytest.mark.parametrize("kind", [pa.timestamp("ms", "UTC"), pa.timestamp("s"), pa.timestamp("ns")])
def test_a_time_that_python_cannot_hold_is_told_with_its_column(kind: pa.DataType) -> None:
    value = 1 if kind.unit == "ns" else 2**52
    rows = collected()
    rows.accept(Batch(pa.record_batch({"window_end": pa.array([value], kind)})))
    with pytest.raises(RecordError, match=r"collect\(\).*to_arrow\(\).* column 'window_end' is timestamp"):
        list(rows.take_rows())


def test_rows_whose_columns_differ_are_refused() -> None:
    rows = collected()
    rows.accept(numbers([1]))
    with pytest.raises(RecordError, match=r"collect\(\): column 'n'.* others m;"):
        rows.accept(Batch(pa.record_batch({"m": [1]})))


def test_rows_that_the_client_cannot_take_end_the_job() -> None:
    env = local_environment()
    ones = env.from_collection([1])
    ones.map(lambda row: {"x": 1}).union(ones.map(lambda row: {"x": 0.5})).collect()
    job = env.submit("mixed")
    with pytest.raises(RecordError, match="x"):
        job.wait()
    assert job.status() is JobStatus.CANCELLED


def test_collected_rows_can_be_read_once() -> None:
    rows = local_environment().from_collection([1, 2]).collect()
    assert len(list(rows)) == 2
    with pytest.raises(PenstockError, match="have been read"):
        rows.to_arrow()
    with pytest.raises(PenstockError, match="have been read"):
        list(rows)


def test_waiting_for_a_slow_source_ends_with_the_timeout_and_not_with_its_next_row() -> None:
    asked: list[float] = []

    class Watching(SystemClock):
        def wait_until(self, deadline: float) -> None:
            asked.append(deadline - self.monotonic())
            super().wait_until(deadline)

    env = StreamEnvironment(runtime="local", parallelism=1, clock=Watching())
    env.from_source(DataGenSource({"n": Sequence()}, rate=0.01)).collect()
    with pytest.raises(TimeoutError):
        env.submit("slow").wait(timeout=0.05)
    assert asked
    assert max(asked) <= 0.05


def test_looking_at_collected_rows_runs_nothing_and_takes_none() -> None:
    rows = collected(pa.schema({"name": pa.string()}))
    result = CollectResult(rows, Submitted(None))
    assert repr(result).startswith("<rows of collect() (name: string): none has come so far")
    rows.accept(Batch(pa.record_batch({"name": ["<b>", None]})))
    rows.accept(Batch(pa.record_batch({"name": [f"n{number}" for number in range(50)]})))
    shown = result._repr_html_()
    assert "<td>&lt;b&gt;</td></tr><tr><td></td>" in shown, "texts are no markup, and null is nothing"
    assert shown.count("<tr>") == 1 + 20
    assert "rows that have come: 52" in shown
    assert "rows that have come: 52" in repr(result)
    assert rows.take_table().num_rows == 52


def test_rows_that_were_read_say_so_and_a_time_that_python_cannot_hold_is_shown() -> None:
    rows = collected()
    rows.accept(Batch(pa.record_batch({"at": pa.array([2**62], pa.timestamp("s"))})))
    job = ScriptedJob({1: rows}, [])
    result = CollectResult(rows, Submitted(job))
    assert "rows that have come: 1" in result._repr_html_()
    result.to_arrow()
    assert "they have been read" in result._repr_html_()
