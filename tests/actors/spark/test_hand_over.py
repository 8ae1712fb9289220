"""History in batch mode, then what comes live in streaming mode: together the result of one job over all of it.

Without Spark: the stages run in this process. `test_hand_over_jobs.py` has Spark.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import FileSource, StreamEnvironment, WatermarkStrategy, savepoints
from penstock.actors.spark.hand_over import HandOver, Suspension
from penstock.engine.errors import CheckpointError, JobFailedError
from penstock.engine.graph.physical import PhysicalGraph
from penstock.savepoints.storage import LocalBlobs
from tests.actors.spark.simulated import Gathered, run_job, run_to_savepoint
from tests.property.programs import Program, programs

Row = dict[str, Any]


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(programs(), st.integers(0, 40), st.sampled_from([(1, 1), (2, 3), (3, 2)]))
def test_a_streaming_job_resumes_where_the_history_ends(
    program: Program, cut: int, parallelisms: tuple[int, int]
) -> None:
    history, live = (StreamEnvironment(parallelism=number, runtime="local") for number in parallelisms)
    program.build(history, slice(cut))
    result = program.build(live, slice(cut, None))
    with tempfile.TemporaryDirectory() as folder:
        url = Path(folder, "savepoint").as_uri()
        (before,) = run_to_savepoint(history.program().physical(), url).values()
        live.execute(savepoint=url)
    assert program.rows_of([*before, *result]) == program.expected()


def hours(env: StreamEnvironment, rows: list[Row]) -> ps.DataStream:
    """Rows by the hour; they come in the order of their times."""
    stream = env.from_collection(rows, schema={"k": "string", "at": "int64", "n": "int64"})
    return stream.assign_timestamps("at", WatermarkStrategy.for_monotonous_timestamps()).set_parallelism(1)


def minutes(*numbers: int) -> list[Row]:
    return [{"k": "ab"[number % 2], "at": number * 60_000, "n": number} for number in numbers]


def both(
    tmp_path: Path, build: Callable[[StreamEnvironment, bool], ps.CollectResult], **live_settings: Any
) -> tuple[list[Row], list[Row]]:
    """The rows of a program that reads its history, and those that it goes on to give."""
    history = StreamEnvironment(parallelism=2, runtime="local")
    live = StreamEnvironment(parallelism=3, runtime="local", **live_settings)
    build(history, False)
    result = build(live, True)
    url = (tmp_path / "savepoint").as_uri()
    (before,) = run_to_savepoint(history.program().physical(), url).values()
    live.execute(savepoint=url)
    return before, list(result)


def test_a_window_that_the_history_did_not_complete_is_emitted_once_with_all_its_rows(tmp_path: Path) -> None:
    def build(env: StreamEnvironment, is_live: bool) -> ps.CollectResult:
        rows = minutes(70, 130) if is_live else minutes(0, 2, 62)
        return hours(env, rows).key_by("k").window(ps.tumbling("1h")).aggregate(total=ps.sum("n")).collect()

    before, after = both(tmp_path, build)
    assert [row["total"] for row in before] == [2]
    assert [row["total"] for row in after] == [132, 130]


def test_event_time_is_that_of_the_stream_that_is_furthest_behind(tmp_path: Path) -> None:
    def build(env: StreamEnvironment, is_live: bool) -> ps.CollectResult:
        far, behind = (minutes(300), minutes(90)) if is_live else (minutes(0, 200), minutes(2, 30))
        stream = hours(env, far).union(hours(env, behind))
        return stream.key_by("k").window(ps.tumbling("1h")).aggregate(total=ps.sum("n")).collect()

    before, after = both(tmp_path, build)
    assert before == []
    assert [row["total"] for row in after] == [32, 90, 200, 300]


def test_a_stream_without_rows_holds_nothing_back(tmp_path: Path) -> None:
    def build(env: StreamEnvironment, is_live: bool) -> ps.CollectResult:
        stream = hours(env, minutes(122) if is_live else minutes(0, 60)).union(hours(env, []))
        return stream.key_by("k").window(ps.tumbling("1h")).aggregate(total=ps.sum("n")).collect()

    before, after = both(tmp_path, build)
    assert [row["total"] for row in before] == [0]
    assert [row["total"] for row in after] == [60, 122]


def test_a_file_without_rows_holds_nothing_back_though_it_is_read_last(tmp_path: Path) -> None:
    for name, rows in (("a", minutes(0, 60)), ("b", [])):
        columns = {column: [row[column] for row in rows] for column in ("k", "at", "n")}
        table = pa.table(columns, pa.schema({"k": pa.string(), "at": pa.int64(), "n": pa.int64()}))
        pq.write_table(table, tmp_path / f"{name}.parquet")

    def build(env: StreamEnvironment, is_live: bool) -> ps.CollectResult:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("at")
        files = FileSource.of([tmp_path / "a.parquet", tmp_path / "b.parquet"])
        history = env.from_source(files, watermarks=strategy).set_parallelism(1)
        stream = hours(env, minutes(122)) if is_live else history
        return stream.key_by("k").window(ps.tumbling("1h")).aggregate(total=ps.sum("n")).uid("totals").collect()

    before, after = both(tmp_path, build)
    assert [row["total"] for row in before] == [0]
    assert [row["total"] for row in after] == [60, 122]


def test_running_results_come_at_the_hand_over_and_go_on_from_there(tmp_path: Path) -> None:
    def build(env: StreamEnvironment, is_live: bool) -> ps.CollectResult:
        stream = env.from_collection([{"k": "a", "n": 5}] if is_live else [{"k": "a", "n": n} for n in range(4)])
        counted = stream.key_by("k").aggregate(total=ps.sum("n")).key_by("k")
        return counted.reduce(lambda one, two: {**one, "total": one["total"] + two["total"]}).collect()

    before, after = both(tmp_path, build)
    assert before == [{"k": "a", "total": 6}]
    assert after == [{"k": "a", "total": 17}]


@pytest.mark.parametrize("descending", [True, False])
def test_rows_to_be_sorted_wait_for_those_that_come_live(tmp_path: Path, descending: bool) -> None:
    def build(env: StreamEnvironment, is_live: bool) -> ps.CollectResult:
        numbers = range(50, 100) if is_live else range(50)
        rows = env.from_collection([{"n": n * 37 % 100} for n in numbers]).rebalance().filter(ps.col("n") >= 0)
        return rows.sort("n", descending=descending).collect()

    before, after = both(tmp_path, build)
    assert before == []
    assert [row["n"] for row in after] == sorted(range(100), reverse=descending)


def test_rows_of_a_join_wait_for_those_that_come_live(tmp_path: Path) -> None:
    def build(env: StreamEnvironment, is_live: bool) -> ps.CollectResult:
        left, right = (minutes(200), minutes(14, 202)) if is_live else (minutes(0, 10), minutes(2, 4))
        one, other = hours(env, left).key_by("k"), hours(env, right).key_by("k")
        return one.interval_join(other, lower="-5m", upper="5m").collect()

    before, after = both(tmp_path, build)
    pairs = [sorted((row["n"], row["n_right"]) for row in rows) for rows in (before, after)]
    assert pairs == [[(0, 2), (0, 4)], [(10, 14), (200, 202)]]


def test_any_backend_restores_the_files_of_another(tmp_path: Path) -> None:
    class Total(ps.KeyedProcessFunction):
        def open(self, context: ps.RuntimeContext) -> None:
            self.total = context.get_state(ps.ValueStateDescriptor("total", "int64"))

        def process_element(self, row: Any, ctx: ps.Context) -> Iterator[Row]:
            self.total.update((self.total.value() or 0) + row["n"])
            yield {"total": self.total.value()}

    def build(env: StreamEnvironment, is_live: bool) -> ps.CollectResult:
        stream = env.from_collection([{"k": "a", "n": n} for n in ([10] if is_live else [1, 2])])
        return stream.key_by("k").process(Total(), returns={"total": "int64"}).collect()

    before, after = both(tmp_path, build, state_backend="rocksdb")
    assert (before, after) == ([{"total": 1}, {"total": 3}], [{"total": 13}])


def test_the_savepoint_has_the_operators_and_not_the_sources(tmp_path: Path) -> None:
    env = StreamEnvironment(parallelism=2, runtime="local")
    windowed = hours(env, minutes(0, 1, 62)).key_by("k").window(ps.tumbling("1h"))
    windowed.aggregate(total=ps.sum("n")).uid("totals").collect()
    url = (tmp_path / "savepoint").as_uri()
    run_to_savepoint(env.program().physical(), url)
    found = savepoints.read(url)
    assert found.verify() == 3, "open windows of one subtask, and of both which windows they are"
    assert "which ended behind it" in found.describe()
    assert [operator.uid for operator in found.operators if operator.all_states] == ["totals"]
    assert not any("collection" in operator.name for operator in found.operators)
    assert found.operator("totals").watermark == 62 * 60_000 - 1


def test_a_folder_belongs_to_one_job_until_that_has_ended(tmp_path: Path) -> None:
    env = StreamEnvironment(parallelism=1, runtime="local")
    env.from_collection([{"n": 1}]).collect()
    graph, url = env.program().physical(), (tmp_path / "savepoint").as_uri()
    first = HandOver.begun(url, "first", graph)
    with pytest.raises(CheckpointError, match="is there already, written by another"):
        HandOver.begun(url, "second", graph)
    first.discard()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def small_job(env: StreamEnvironment) -> PhysicalGraph:
    """One with state."""
    env.from_collection([{"k": "ab"[n % 2], "n": n} for n in range(4)]).key_by("k").aggregate(n=ps.count()).collect()
    return env.program().physical()


@pytest.fixture
def graph() -> PhysicalGraph:
    return small_job(StreamEnvironment(parallelism=2, runtime="local"))


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_folder_that_another_job_has_filled_meanwhile_is_refused_and_left_as_it_is(
    graph: PhysicalGraph, tmp_path: Path
) -> None:
    url = tmp_path.as_uri()
    run_to_savepoint(graph, url)
    written = files_in(tmp_path)
    with pytest.raises(CheckpointError, match=rf"{tmp_path.name} is not empty any more .*name another"):
        HandOver.begun(url, "second", graph)
    assert files_in(tmp_path) == written
    assert savepoints.read(url).verify()


def test_what_rivals_try_the_folder_with_does_not_count(graph: PhysicalGraph, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in (".probe-0123", "data/.partial-0123"):
        (tmp_path / name).write_bytes(b"")
    HandOver.begun(tmp_path.as_uri(), "first", graph)
    assert "data/claim" in files_in(tmp_path)


def test_a_savepoint_that_another_has_written_outlives_the_job_that_meets_it(
    graph: PhysicalGraph, tmp_path: Path
) -> None:
    url = tmp_path.as_uri()
    over, handles = HandOver.begun(url, "first", graph), Gathered()
    run_job(graph, Suspension(url, "first", cast(Any, handles)))
    (tmp_path / "manifest.json").write_bytes(b"another's")
    with pytest.raises(JobFailedError, match=r"all sinks have committed, but .* is there already"):
        over.complete(graph, handles.value)
    written = files_in(tmp_path)
    over.discard()
    assert files_in(tmp_path) == written - {"data/claim"}


def test_a_manifest_that_was_written_although_that_failed_goes(
    graph: PhysicalGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = tmp_path.as_uri()
    over, handles = HandOver.begun(url, "first", graph), Gathered()
    run_job(graph, Suspension(url, "first", cast(Any, handles)))
    create = LocalBlobs.create

    def create_and_fail(blobs: LocalBlobs, path: str, data: Any) -> None:
        create(blobs, path, data)
        raise CheckpointError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(LocalBlobs, "create", create_and_fail)
        with pytest.raises(JobFailedError, match="no answer"):
            over.complete(graph, handles.value)
    over.discard()
    assert not files_in(tmp_path)


def test_the_claim_goes_last_and_although_other_files_cannot(
    graph: PhysicalGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = tmp_path.as_uri()
    over = HandOver.begun(url, "first", graph)
    run_job(graph, Suspension(url, "first", cast(Any, Gathered())))
    kept, delete = files_in(tmp_path) - {"data/claim"}, LocalBlobs.delete
    asked: list[list[str]] = []

    def refuse(blobs: LocalBlobs, paths: Iterable[str]) -> None:
        asked.append(sorted(paths))
        if asked[-1] != ["data/claim"]:
            raise CheckpointError("not allowed")
        delete(blobs, asked[-1])

    monkeypatch.setattr(LocalBlobs, "delete", refuse)
    over.discard()
    assert kept
    assert asked == [sorted(kept), ["data/claim"]]
    assert files_in(tmp_path) == kept
    assert "leaves files behind" in caplog.text
    assert "not allowed" in caplog.text
