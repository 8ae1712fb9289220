"""The environment and the streams: bad programs and settings are refused while they are written, with a hint."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import (
    DataGenSource,
    FileSink,
    Sequence,
    StreamEnvironment,
    checkpoints,
    col,
    count,
    session,
    sliding,
    tumbling,
)
from penstock.engine.api.program import Program
from penstock.engine.api.streams import DataStream
from penstock.engine.checkpointing.store import Claim
from penstock.engine.errors import (
    CheckpointError,
    ColumnTypeError,
    ConfigurationError,
    GraphError,
    MissingColumnError,
    SinkNotReadyError,
)
from penstock.engine.job.status import JobStatus
from penstock.savepoints.store import FolderJobStore
from tests.engine.helpers import RecordingSink, local_environment

Build = Callable[[DataStream], Any]


def flights(env: StreamEnvironment) -> DataStream:
    return env.from_collection([{"carrier": "UA", "distance": 1400, "share": 0.5, "at": 0, "tags": ["x"]}])


def timed(stream: DataStream) -> DataStream:
    return stream.assign_timestamps("at")


# Settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"runtime": "rey"}, r"runtime must be one of ray, local \(did you mean 'ray'\?\)"),
        ({"parallelism": 0}, "parallelism must be a whole number of 1 or more, not 0"),
        ({"parallelism": -1}, "parallelism must be a whole number of 1 or more, not -1"),
        ({"parallelism": 2.0}, "parallelism must be a whole number of 1 or more, not 2.0"),
        ({"parallelism": True}, "parallelism must be a whole number of 1 or more, not True"),
        ({"parallelism": 129}, "parallelism 129 is over the maximum of 128; raise max_parallelism"),
        ({"max_parallelism": 0}, "max_parallelism must be a whole number from 1 to 32768, not 0"),
        ({"max_parallelism": 32_769}, "max_parallelism must be a whole number from 1 to 32768"),
        ({"max_batch_rows": 0}, "max_batch_rows must be a whole number from 1"),
        ({"max_batch_bytes": "8MB"}, "max_batch_bytes must be a whole number"),
        ({"channel_credits": 0}, "channel_credits must be a whole number from 1"),
        ({"slot_cpus": 0}, "slot_cpus must be a number from"),
        ({"slot_cpus": "1"}, "slot_cpus must be a number from 0.001 to 1024, not '1'"),
        ({"buffer_timeout": "50"}, "buffer_timeout: '50' is no duration"),
        ({"buffer_timeout": 50}, "buffer_timeout: 50 is no duration"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        StreamEnvironment(**{"runtime": "local", **settings})


def test_all_settings_that_cannot_be_used_are_named_at_once() -> None:
    with pytest.raises(ConfigurationError, match=r"max_batch_rows.*channel_credits"):
        StreamEnvironment(runtime="local", max_batch_rows=0, channel_credits=0)
    with pytest.raises(ConfigurationError) as raised:
        StreamEnvironment(
            runtime="rey",  # type: ignore[arg-type]
            buffer_timeout="5x",
            slot_timeout="60",
            max_batch_rows=0,
            max_parallelism=0,
            parallelism=0,
        )
    messages = str(raised.value).split("; ")
    for start in (
        "runtime must be",
        "buffer_timeout: '5x' is no duration",
        "slot_timeout: '60' is no duration",
        "max_parallelism must be",
        "max_batch_rows must be",
        "StreamEnvironment: parallelism must be",
    ):
        assert len([message for message in messages if message.startswith(start)]) == 1, start


def test_a_parallelism_is_compared_with_the_maximum_that_was_asked_for() -> None:
    with pytest.raises(ConfigurationError) as raised:
        StreamEnvironment(runtime="local", parallelism=200, max_parallelism=256, max_batch_rows=0)
    assert "; " not in str(raised.value)


# Parallelism


def parallelism_of(env: StreamEnvironment, **arguments: Any) -> int:
    sink = RecordingSink()
    flights(env).rebalance().sink_to(sink)
    env.execute(**arguments)
    return len([event for event in sink.events if event.startswith("open")])


def test_the_environments_parallelism_goes_before_that_of_execute_and_of_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_PARALLELISM", "4")
    assert parallelism_of(local_environment(2), parallelism=3) == 2
    assert parallelism_of(local_environment(None), parallelism=3) == 3
    assert parallelism_of(local_environment(None)) == 4


def test_without_a_word_there_is_a_subtask_for_each_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_PARALLELISM", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert parallelism_of(local_environment(None)) == 3


def test_more_cpus_than_the_maximum_parallelism_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_PARALLELISM", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 192)
    env = StreamEnvironment(runtime="local", max_parallelism=3)
    assert parallelism_of(env) == 3


@pytest.mark.parametrize("text", ["many", "0", "-1", ""])
def test_a_variable_that_is_no_parallelism_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("PENSTOCK_PARALLELISM", text)
    with pytest.raises(ConfigurationError, match=r"PENSTOCK_PARALLELISM.*whole number of 1 or more"):
        parallelism_of(local_environment(None))


@pytest.mark.parametrize("parallelism", [0, -1, "2", 129])
def test_a_parallelism_of_execute_that_cannot_be_used_is_refused(parallelism: Any) -> None:
    with pytest.raises(ConfigurationError, match="execute: parallelism"):
        parallelism_of(local_environment(None), parallelism=parallelism)


@pytest.mark.parametrize("parallelism", [0, -1, 1.5, True, 40_000])
def test_an_operators_parallelism_that_cannot_be_used_is_refused_with_its_name(parallelism: Any) -> None:
    stream = flights(local_environment()).map(lambda row: row).name("same")
    with pytest.raises(ConfigurationError, match="operator 'same': parallelism"):
        stream.set_parallelism(parallelism)


@pytest.mark.parametrize(
    ("verb", "view"),
    [
        ("set_parallelism", lambda s: s.union(s).set_parallelism(2)),
        ("name", lambda s: s.rebalance().name("x")),
        ("uid", lambda s: s.union(s).uid("x")),
        ("disable_chaining", lambda s: s.broadcast().disable_chaining()),
        ("start_new_chain", lambda s: s.forward().start_new_chain()),
    ],
)
def test_what_is_no_operator_has_no_settings(verb: str, view: Build) -> None:
    with pytest.raises(GraphError, match=rf"{verb}\(\) sets something of an operator; call it right behind the verb"):
        view(flights(local_environment()))


# Programs


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.select("carier"),
        lambda s: s.filter(col("carier") == "UA"),
        lambda s: s.with_columns(x=col("carier")),
        lambda s: s.key_by("carier"),
        lambda s: s.assign_timestamps("carier"),
        lambda s: s.key_by("distance").aggregate(n=count("carier")),
        lambda s: timed(s).key_by("distance").window(tumbling("1h")).aggregate(n=count("carier")),
    ],
)
def test_a_missing_column_is_refused_with_its_nearest_name(build: Build) -> None:
    with pytest.raises(MissingColumnError, match=r"no column 'carier' \(did you mean 'carrier'\?\); the stream has"):
        build(flights(local_environment()))


def _executed(stream: DataStream, name: Any) -> None:
    env = local_environment()
    env.from_collection([{"n": 1}]).print()
    env.execute(name)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda s: s.key_by("share"), ColumnTypeError, "key_by: column 'share' is double.*cast it"),
        (lambda s: s.key_by("tags"), ColumnTypeError, "key_by: column 'tags' is list.*cannot be a key"),
        (lambda s: s.key_by(), GraphError, "key_by: give at least one column"),
        (lambda s: s.key_by("carrier", "carrier"), GraphError, "a column is given twice"),
        (lambda s: s.key_by(col("carrier")), GraphError, "key_by takes column names"),
        (lambda s: s.key_by(lambda row: row["carrier"]), GraphError, "key_by takes column names"),
        (lambda s: s.filter(), GraphError, "filter: give at least one predicate"),
        (lambda s: s.assign_timestamps("share"), ColumnTypeError, "holds no event time"),
        (
            lambda s: s.key_by("carrier").window(tumbling("1h")),
            GraphError,
            "the stream has no timestamps; call assign_timestamps before, or",
        ),
        (lambda s: timed(s).key_by("carrier").window("1h"), GraphError, "window takes a WindowAssigner"),
        (lambda s: s.key_by("carrier").aggregate(), GraphError, "give at least one aggregate"),
        (
            lambda s: s.key_by("carrier").aggregate(carrier=count()),
            GraphError,
            "two result columns are named 'carrier'",
        ),
        (
            lambda s: timed(s).key_by("carrier").window(session("1h")).aggregate(window_end=count()),
            GraphError,
            "window_end is the name of a window column",
        ),
        (
            lambda s: (
                s.with_columns(window_start=1)
                .assign_timestamps("at")
                .key_by("window_start")
                .window(sliding("2h", "1h"))
                .aggregate(n=count())
            ),
            GraphError,
            "window_start is the name of a window column",
        ),
        (lambda s: s.union(s.select("carrier")), GraphError, r"union: the columns differ: \(carrier: string, .*select"),
        (lambda s: s.union(timed(s)), GraphError, "some streams have timestamps and others not"),
        (lambda s: s.union(flights(local_environment())), GraphError, "belong to different programs"),
        (
            lambda s: s.map_batches(lambda b: b, num_gpus=-1),
            ConfigurationError,
            "num_gpus must be .* 0 or more, not -1",
        ),
        (
            lambda s: s.map_batches(lambda b: b, num_cpus="2"),
            ConfigurationError,
            "num_cpus must be a number .* not '2'",
        ),
        (lambda s: s.map_batches(lambda b: b, num_cpus=float("nan")), ConfigurationError, "num_cpus must be a number"),
        (lambda s: s.map(5), GraphError, r"map: needs a function that takes a row .*, not 5"),
        (lambda s: s.flat_map("x"), GraphError, r"flat_map: needs a function that takes a row .*, not 'x'"),
        (lambda s: s.union(5), GraphError, "union takes streams, not 5"),
        (
            lambda s: s.assign_timestamps("at", "5s"),
            GraphError,
            "'5s' is no WatermarkStrategy; .*for_bounded_out_of_or",
        ),
        (lambda s: s.assign_timestamps(col("at")), GraphError, r"takes the name of a column, not .*with_columns"),
        (
            lambda s: s.map(lambda row: row).union(s.select("carrier"), s.select("distance")),
            GraphError,
            r"the columns differ: \(carrier: string\) and \(distance: int64\)",
        ),
        (lambda s: s.sink_to("out.csv"), GraphError, "sink_to takes a Sink, not 'out.csv'; write files by FileSink"),
        *(
            (build, ConfigurationError, rf"'{where}: {verb}\(\) takes a text .* such as 'orders', not ")
            for verb in ("name", "uid")
            for given in ("", 5, None, b"x")
            for where, build in (
                ("map.*'", lambda s, verb=verb, given=given: getattr(s.map(lambda row: row), verb)(given)),
                ("print'", lambda s, verb=verb, given=given: getattr(s.print(), verb)(given)),
            )
        ),
        (lambda s: local_environment().sql(5), GraphError, "sql takes a statement as a text, .*, not 5"),
        (lambda s: local_environment().from_source(DataGenSource({"n": Sequence()}), 5), ConfigurationError, "not 5"),
        (
            lambda s: local_environment().register_cached_file(5, "model"),
            ConfigurationError,
            "register_cached_file: a path is a text or a Path, not 5",
        ),
        (lambda s: _executed(s, 5), ConfigurationError, "execute: name takes a text .*, not 5"),
    ],
)
def test_a_program_that_makes_no_sense_is_refused_where_it_is_written(
    build: Build, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        build(flights(local_environment()))


@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    ("keys", "aggregates", "message"),
    [
        (["carrier"], {"n": 5}, r"n=5 is no aggregate; give one such as penstock\.count\(\)"),
        (["carrier"], {"n": count}, r"n=.* is no aggregate; give one such as penstock\.count\(\)"),
        (["carrier"], {"n": col("distance").sum()}, r"is no aggregate; give penstock\.sum\('distance'\)"),
        (["carrier"], {}, "give at least one aggregate"),
        (["carrier"], {"carrier": count()}, "two result columns are named 'carrier'"),
        (["carrier"], {"__n": count()}, "the name '__n' begins with '__'"),
    ],
)
def test_aggregates_are_checked_also_where_the_columns_are_not_known(
    known: bool, windowed: bool, keys: list[str], aggregates: dict[str, Any], message: str
) -> None:
    stream = timed(flights(local_environment()))
    keyed = (stream if known else stream.map(lambda row: row)).key_by(*keys)
    with pytest.raises(GraphError, match=message):
        (keyed.window(tumbling("1h")) if windowed else keyed).aggregate(**aggregates)


@pytest.mark.parametrize("group", [DataStream.key_by, DataStream.group_by])
def test_an_aggregate_without_a_name_is_refused_and_it_is_said_how_to_name_it(group: Callable[..., Any]) -> None:
    grouped = group(flights(local_environment()), "carrier")
    with pytest.raises(
        GraphError, match=r"aggregate: count\(\*\) comes without a name .* aggregate\(n=penstock\.count"
    ):
        grouped.aggregate(count())


def test_what_is_no_source_is_refused() -> None:
    with pytest.raises(GraphError, match=r"from_source takes a Source, not 'flights\.csv'"):
        local_environment().from_source("flights.csv")  # type: ignore[arg-type]


def test_windows_keep_their_timestamps_for_the_next_windows() -> None:
    env = local_environment(2)
    hourly = timed(flights(env)).key_by("carrier").window(tumbling("1h")).aggregate(n=count())
    daily = hourly.key_by("carrier").window(tumbling("1d")).aggregate(hours=count()).collect()
    assert daily.to_arrow().column("hours").to_pylist() == [1]


def test_a_running_aggregate_keeps_the_timestamps_of_its_stream() -> None:
    env = local_environment()
    updates = timed(flights(env)).key_by("carrier").aggregate(n=count())
    assert updates.key_by("carrier").window(tumbling("1d")).aggregate(k=count()).collect().to_arrow().num_rows == 1


def test_columns_are_known_behind_each_verb() -> None:
    stream = flights(local_environment())
    assert stream.select("carrier", km=col("distance") * 2).schema == pa.schema(
        [("carrier", pa.string()), ("km", pa.int64())]
    )
    assert stream.map(lambda row: row).schema is None
    assert stream.map(lambda row: row, returns={"x": "int64"}).schema == pa.schema([("x", pa.int64())])


# Several programs


def test_a_submitted_program_takes_no_more_operators() -> None:
    env = local_environment()
    stream = flights(env)
    stream.collect()
    env.execute("first")
    for build in (lambda: stream.select("carrier"), lambda: stream.name("late"), stream.collect):
        with pytest.raises(GraphError, match="was submitted as job 'first' and takes no more operators"):
            build()


def test_an_environment_runs_one_program_after_another() -> None:
    env = local_environment()
    for distance in (1, 2):
        result = env.from_collection([{"distance": distance}]).collect()
        assert env.execute(f"job {distance}").status() is JobStatus.FINISHED
        assert result.to_arrow().to_pydict() == {"distance": [distance]}


class Unready(RecordingSink):
    """Refuses the first preparation."""

    def prepare(self) -> None:
        self.events.append("prepare")
        if self.events == ["prepare"]:
            raise ConfigurationError("the disk is full")


def test_a_program_that_could_not_start_stays_and_may_be_submitted_again() -> None:
    env = local_environment()
    stream = flights(env)
    stream.sink_to(Unready())
    distances = stream.select("distance").collect()
    with pytest.raises(ConfigurationError, match="the disk is full"):
        env.execute()
    carriers = stream.select("carrier").collect()
    job = env.submit("second")
    assert distances.to_arrow().to_pydict() == {"distance": [1400]}
    assert carriers.to_arrow().to_pydict() == {"carrier": ["UA"]}
    assert job.status() is JobStatus.FINISHED


def test_a_result_submits_its_own_program() -> None:
    env = local_environment()
    old = flights(env).select("distance").collect()
    env._program, program = Program(env._submit), env._program
    new = flights(env).select("carrier").collect()
    assert old.to_arrow().to_pydict() == {"distance": [1400]}
    assert program.job is not None
    assert env._program.job is None
    assert new.to_arrow().to_pydict() == {"carrier": ["UA"]}


def test_explaining_prepares_no_sink_and_a_job_prepares_each_once_before_its_writers(tmp_path: Path) -> None:
    (tmp_path / "part-1.csv").write_text("a\n1\n")
    env = local_environment()
    recording = RecordingSink()
    recording.prepare = lambda: recording.events.append("prepare")  # type: ignore[method-assign]
    stream = flights(env).select("distance")
    stream.sink_to(FileSink(tmp_path, "csv", mode="overwrite"))
    stream.sink_to(FileSink(tmp_path / "new", "csv"))
    stream.sink_to(recording)
    env.explain()
    assert os.listdir(tmp_path) == ["part-1.csv"]
    assert recording.events == []
    env.execute()
    assert recording.events == ["prepare", "open 0", "finish 0", "close 0"]
    assert (tmp_path / "part-1.csv").exists() is False
    assert len(list(tmp_path.glob("part-*.csv"))) == len(list(tmp_path.glob("new/part-*.csv"))) == 1


def test_a_program_that_cannot_be_planned_prepares_no_sink() -> None:
    class Picky(RecordingSink):
        def check(self, schema: object) -> None:
            raise ConfigurationError("not this")

    env = local_environment()
    first = RecordingSink()
    first.prepare = lambda: first.events.append("prepare")  # type: ignore[method-assign]
    flights(env).sink_to(first)
    flights(env).sink_to(Picky())
    with pytest.raises(ConfigurationError, match="not this"):
        env.execute()
    assert first.events == []


def test_streams_of_a_finished_program_do_not_mix_with_the_next() -> None:
    env = local_environment()
    old = flights(env)
    old.collect()
    env.execute()
    with pytest.raises(GraphError):
        flights(env).union(old)


def test_print_shows_each_row_behind_its_label(capsys: pytest.CaptureFixture[str]) -> None:
    env = local_environment()
    stream = env.from_collection([{"x": 1}, {"x": 2}])
    stream.print("label")
    env.execute()
    assert capsys.readouterr().out == "label> {'x': 1}\nlabel> {'x': 2}\n"


def test_a_program_that_cannot_run_can_be_forgotten() -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.from_collection([1]).uid("same").filter(col("value") > 0).uid("same").collect()
    with pytest.raises(GraphError, match="uid"):
        env.submit()
    env.clear()
    assert list(env.from_collection([2]).collect()) == [{"value": 2}]


def test_a_sink_that_waits_for_checkpoints_that_never_come_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for rows, settings in ((10, None), (None, checkpoints("1s", str(tmp_path / "checkpoints"))), (None, None)):
        assert "may keep its rows" not in caplog.text
        env = StreamEnvironment(runtime="local", checkpoints=settings)
        env.from_source(DataGenSource({"n": Sequence()}, rows=rows)).sink_to(FileSink(str(tmp_path / "out"), "json"))
        env.submit("quiet").cancel()
    assert "job 'quiet' has an input without end and takes no checkpoints: files(" in caplog.text
    assert "begin it with -Dexecution.checkpointing.interval=10s, or in Python with checkpoints=" in caplog.text


def test_a_job_whose_storage_is_refused_leaves_the_old_rows_of_its_sink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(store: FolderJobStore) -> Claim:
        raise CheckpointError("the folder is another manager's")

    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "part-1.csv").write_text("a\n1\n")
    env = StreamEnvironment(runtime="local", checkpoints=checkpoints("1s", str(tmp_path / "checkpoints")))
    flights(env).select("carrier").sink_to(FileSink(str(tmp_path / "out"), "csv", mode="overwrite"))
    with monkeypatch.context() as refused:
        refused.setattr(FolderJobStore, "claim", refuse)
        with pytest.raises(CheckpointError, match="another manager's"):
            env.submit("refused")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["part-1.csv"]


def test_a_job_whose_sink_cannot_be_made_ready_leaves_no_checkpoints(tmp_path: Path) -> None:
    env = StreamEnvironment(runtime="local", checkpoints=checkpoints("1s", str(tmp_path / "checkpoints")))
    flights(env).select("carrier").sink_to(FullFolder(str(tmp_path / "out"), "json"))
    with pytest.raises(SinkNotReadyError, match="the disk is full"):
        env.submit("full")
    assert {path.name for path in tmp_path.glob("checkpoints/*/*")} <= {"claims", "log"}


class FullFolder(FileSink):
    """Files that cannot be written, as shows when the job begins."""

    def prepare(self) -> None:
        raise ConfigurationError("the disk is full")


def test_of_a_job_that_cannot_be_started_only_the_error_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = StreamEnvironment(runtime="local")
    endless = env.from_source(DataGenSource({"n": Sequence()}, rows=None))
    endless.sink_to(FullFolder(str(tmp_path), "json"))
    with pytest.raises(ConfigurationError, match="the disk is full"):
        env.submit("quiet")
    assert "may keep its rows" not in caplog.text


def test_a_program_that_nobody_runs_is_told_of_when_the_process_ends() -> None:
    script = """
import penstock as ps

def built(end):
    env = ps.StreamEnvironment(runtime="local", parallelism=1)
    env.from_collection([{"n": 1}]).sink_to(ps.FileSink(end, "csv"))
    return env

forgotten, explained, cleared = built("forgotten"), built("explained"), built("cleared")
explained.explain()
cleared.clear()
refused = built("refused")
try:
    refused.submit(resume="latest")
except ps.PenstockError:
    pass
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert "a program that ends in files(forgotten, csv) was never run: call env.execute" in line
