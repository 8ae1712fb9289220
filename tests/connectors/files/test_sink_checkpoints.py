"""Jobs that write files, with checkpoints and failures: what readers of the folder see, at any time and at the end."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.connectors.datagen import DataGenSource
from penstock.connectors.datagen import Sequence as Numbers
from penstock.connectors.files.rolling import Rolling
from penstock.connectors.files.sink import FileSink
from penstock.engine.checkpointing.store import JobFolder
from penstock.engine.clock import ManualClock
from penstock.engine.connectors import Committable, ConnectorContext, TransactionalSink, TransactionalWriter
from penstock.engine.elements import Batch
from penstock.engine.job.events import RescaleJob
from penstock.engine.job.status import JobStatus
from penstock.engine.local.manager import LocalManager
from penstock.recovery import checkpoints, fixed_delay
from penstock.savepoints.store import FolderJobStore
from tests.draws import drawn

ROWS = 60


@dataclass
class Faults:
    """What goes wrong, each thing once.

    Args:
        rows: the function before the sink fails at these rows.
        commits: commit number n (from 0) fails behind its first k files.
        kills: whether processes die without closing anything.
    """

    rows: set[int] = field(default_factory=set)
    commits: dict[int, int] = field(default_factory=dict)
    kills: bool = False
    calls: int = 0

    def at_row(self, row: dict[str, Any]) -> dict[str, Any]:
        if row["i"] in self.rows:
            self.rows.remove(row["i"])
            raise OSError(f"row {row['i']}")
        return row


class WatchedSink(TransactionalSink):
    """A sink whose commits fail, and whose writers die, as asked; knows which checkpoints each row was in."""

    def __init__(self, sink: TransactionalSink, faults: Faults) -> None:
        self.sink, self.faults = sink, faults
        self.epochs: dict[int, set[int]] = {}

    def open(self, context: ConnectorContext) -> TransactionalWriter:
        return _WatchedWriter(self, self.sink.open(context))

    def commit(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        call, self.faults.calls = self.faults.calls, self.faults.calls + 1
        if call in self.faults.commits:
            done = self.faults.commits[call]
            if committables[:done]:
                self.sink.commit(committables[:done], context)
            raise OSError(f"commit {call} ends behind {done} of {len(committables)}")
        self.sink.commit(committables, context)

    def discard(self, context: ConnectorContext) -> None:
        self.sink.discard(context)

    def describe(self) -> str:
        return "watched"


class _WatchedWriter(TransactionalWriter):
    def __init__(self, watched: WatchedSink, writer: TransactionalWriter) -> None:
        self._watched, self._writer = watched, writer
        self._rows: list[int] = []

    def write(self, batch: Batch) -> None:
        self._rows += batch.data["i"].to_pylist()
        self._writer.write(batch)

    def prepare(self, checkpoint: int) -> Sequence[Committable]:
        for row in self._rows:
            self._watched.epochs.setdefault(row, set()).add(checkpoint)
        self._rows = []
        return self._writer.prepare(checkpoint)

    def close(self) -> None:
        left = {}
        if self._watched.faults.kills:
            assert isinstance(self._watched.sink, FileSink)
            left = {path: path.read_bytes() for path in Path(self._watched.sink.path).glob(".part-*")}
        self._writer.close()
        for path, content in left.items():
            path.write_bytes(content)


class Reader:
    """Reads the visible files of a folder; each once, since they never change."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._folder, self._kind = folder, kind
        self._known: dict[str, list[int]] = {}

    def rows(self) -> list[int]:
        names = [name for name in os.listdir(self._folder) if not name.startswith(".")]
        for name in names:
            if name not in self._known:
                self._known[name] = self._read(self._folder / name)
        assert set(names) == set(self._known), "a visible file has gone"
        return [row for rows in self._known.values() for row in rows]

    def _read(self, path: Path) -> list[int]:
        if self._kind == "json":
            return [json.loads(line)["i"] for line in path.read_text().splitlines()]
        table = pq.read_table(path) if self._kind == "parquet" else pc.read_csv(path)
        rows: list[int] = table["i"].to_pylist()
        return rows


def _environment(folder: Path, parallelism: int, **settings: Any) -> ps.StreamEnvironment:
    return ps.StreamEnvironment(
        parallelism=parallelism,
        runtime="local",
        clock=ManualClock(),
        max_parallelism=8,
        buffer_timeout="0",
        max_batch_rows=4,
        checkpoints=checkpoints("10ms", str(folder / "checkpoints"), tolerable_failures=None, **settings),
        restart=fixed_delay(100, "1ms"),
    )


def _build(
    env: ps.StreamEnvironment, sink: TransactionalSink, function: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    numbers = env.from_source(DataGenSource({"i": Numbers()}, rows=ROWS, rate=1000)).uid("numbers")
    numbers.rebalance().map(function, returns={"i": "int64"}).uid("map").sink_to(sink).uid("out")


def _manager(folder: Path, sink: WatchedSink, parallelism: int, seed: int, mode: Any) -> LocalManager:
    env = _environment(folder, parallelism, mode=mode)
    _build(env, sink, sink.faults.at_row)
    program = env.program("files")
    store = FolderJobStore(str(folder / "checkpoints"), "files", "files")
    return LocalManager(program, ManualClock(), random.Random(seed), JobFolder(store, "files"))


@settings(max_examples=drawn(6))
@given(
    kind=st.sampled_from(["json", "csv", "parquet"]),
    max_bytes=st.sampled_from([None, 40]),
    mode=st.sampled_from(["exactly-once", "unaligned"]),
    seed=st.integers(0, 2**20),
    parallelism=st.integers(1, 3),
    rows=st.sets(st.integers(0, ROWS - 1), max_size=3),
    commits=st.dictionaries(st.integers(0, 8), st.integers(0, 2), max_size=3),
    kills=st.booleans(),
    rescales=st.dictionaries(st.integers(30, 500), st.integers(1, 4), max_size=2),
)
# The rescale is asked for before the first checkpoint is complete.
@example("json", None, "exactly-once", 0, 2, set(), {}, False, {30: 1})
def test_every_row_is_seen_once_and_only_when_its_checkpoint_is_complete(
    kind: Any,
    max_bytes: int | None,
    mode: Any,
    seed: int,
    parallelism: int,
    rows: set[int],
    commits: dict[int, int],
    kills: bool,
    rescales: dict[int, int],
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        out = folder / "out"
        sink = WatchedSink(FileSink(out, kind, roll=Rolling(max_bytes)), Faults(rows, commits, kills))
        out.mkdir()
        reader = Reader(out, kind)
        manager = _manager(folder, sink, parallelism, seed, mode)
        steps = 0
        while not manager.brain.ended:
            if steps in rescales:
                manager.ask(RescaleJob(rescales[steps]))
            manager.step(1.0)
            steps += 1
            seen = reader.rows()
            assert len(seen) == len(set(seen)), "a row is seen twice"
            complete = manager.brain.completed
            early = [row for row in seen if min(sink.epochs[row]) > complete]
            assert not early, f"rows {early} are seen, and {complete} is the newest complete checkpoint"
        assert manager.brain.status is JobStatus.FINISHED, manager.brain.error
        assert sorted(reader.rows()) == list(range(ROWS))
        # Neither what was not finished, nor what attempts that failed had prepared.
        assert [path.name for path in out.glob(".*")] == []


@pytest.mark.parametrize("mode", ["error", "append"])
def test_a_job_goes_on_in_the_same_folder_at_another_parallelism(tmp_path: Path, mode: Any) -> None:
    out = tmp_path / "out"
    first = _environment(tmp_path, 3)
    _build(first, FileSink(out, "json", mode=mode), lambda row: row)
    job = first.submit("first")
    while not list(out.glob(".*")):
        # Until the first rows are being written.
        assert job.pump(0.001)
    savepoint = job.stop(str(tmp_path / "savepoints"))
    reader = Reader(out, "json")
    written = reader.rows()
    assert 0 < len(written) < ROWS
    second = _environment(tmp_path, 2)
    _build(second, FileSink(out, "json", mode="append"), lambda row: row)
    second.execute("second", savepoint=savepoint)
    assert sorted(reader.rows()) == list(range(ROWS))
    assert list(out.glob(".*")) == []


def test_without_checkpoints_rows_are_seen_at_the_end(tmp_path: Path) -> None:
    env = ps.StreamEnvironment(runtime="local", parallelism=2, clock=ManualClock(), max_batch_rows=4)
    _build(env, FileSink(tmp_path, "json"), lambda row: row)
    env.execute()
    assert len(list(tmp_path.iterdir())) == 2
    assert sorted(Reader(tmp_path, "json").rows()) == list(range(ROWS))


_KILLED = """
import os, signal, sys
from pathlib import Path
from penstock import FileSink
from tests.connectors.files.test_sink_checkpoints import _build, _environment
def killed(row):
    if row["i"] == 45:
        os.kill(os.getpid(), signal.SIGKILL)
    return row
folder = Path(sys.argv[1])
env = _environment(folder, 2)
_build(env, FileSink(folder / "out", "json"), killed)
env.execute("killed")
"""


def test_a_killed_program_resumes_from_its_newest_checkpoint(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    out = tmp_path / "out"
    reader = Reader(out, "json")
    assert 0 < len(reader.rows()) < 45
    assert list(out.glob(".part-*"))
    newest = max((tmp_path / "checkpoints").glob("*/chk-*/manifest.json"), key=lambda path: path.parent.name).parent
    env = _environment(tmp_path, 3)
    _build(env, FileSink(out, "json", mode="append"), lambda row: row)
    env.execute("again", savepoint=str(newest))
    assert sorted(reader.rows()) == list(range(ROWS))
