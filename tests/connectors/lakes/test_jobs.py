"""Jobs that write to tables, with checkpoints and failures: what readers see, at any time and at the end."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

import penstock as ps
from penstock.connectors.lakes import DeltaSink, IcebergSink
from penstock.engine.checkpointing.store import JobFolder
from penstock.engine.clock import ManualClock
from penstock.engine.connectors import TransactionalSink
from penstock.engine.errors import ColumnTypeError
from penstock.engine.job.events import RescaleJob
from penstock.engine.job.status import JobStatus
from penstock.engine.local.manager import LocalManager
from penstock.savepoints.store import FolderJobStore
from tests.connectors.files.test_sink_checkpoints import ROWS, Faults, WatchedSink, _build, _environment

COLUMNS = pa.schema({"i": pa.int64()})
Seen = Callable[[], list[int]]


def _delta(folder: Path) -> tuple[TransactionalSink, Seen]:
    path = folder / "table"
    deltalake.DeltaTable.create(path, deltalake.Schema.from_arrow(COLUMNS))
    return DeltaSink(path), lambda: deltalake.DeltaTable(path).to_pyarrow_table()["i"].to_pylist()


def _iceberg(folder: Path) -> tuple[TransactionalSink, Seen]:
    properties = {"type": "sql", "uri": f"sqlite:///{folder}/lake.db", "warehouse": f"file://{folder}/warehouse"}
    with load_catalog("lake", **properties) as catalog:
        catalog.create_namespace("db")
        catalog.create_table("db.t", COLUMNS)

    def seen() -> list[int]:
        with load_catalog("lake", **properties) as catalog:
            return list(catalog.load_table("db.t").scan().to_arrow()["i"].to_pylist())

    return IcebergSink("db.t", "lake", properties), seen


OTHER_SEED = pytest.mark.long("each kind of table by one seed, each seed by one kind of table")
MAKERS = pytest.mark.parametrize("make", [_delta, _iceberg])


@pytest.mark.parametrize(
    ("make", "seed"),
    [(_delta, 0), (_iceberg, 1), *(pytest.param(*case, marks=OTHER_SEED) for case in ((_delta, 1), (_iceberg, 0)))],
)
def test_every_row_is_seen_once_and_only_when_its_checkpoint_is_complete(make: Any, tmp_path: Path, seed: int) -> None:
    inner, seen = make(tmp_path)
    rng = random.Random(seed)
    faults = Faults({rng.randrange(ROWS) for _ in range(2)}, {1: 1, 4: seed})  # commit 1 fails when it is done
    sink = WatchedSink(inner, faults)
    env = _environment(tmp_path, 2, mode="exactly-once")
    _build(env, sink, faults.at_row)
    store = FolderJobStore(str(tmp_path / "checkpoints"), "lake", "lake")
    manager = LocalManager(env.program("lake"), ManualClock(), random.Random(seed), JobFolder(store, "lake"))
    steps, calls = 0, 0
    while not manager.brain.ended:
        if steps == 100:
            manager.ask(RescaleJob(3))
        manager.step(1.0)
        steps += 1
        if faults.calls != calls:
            calls = faults.calls
            rows = seen()
            assert len(rows) == len(set(rows)), "a row is seen twice"
            complete = manager.brain.completed
            assert not [row for row in rows if min(sink.epochs[row]) > complete], "a row is seen early"
    assert manager.brain.status is JobStatus.FINISHED, manager.brain.error
    assert sorted(seen()) == list(range(ROWS))


@MAKERS
def test_without_checkpoints_rows_are_seen_at_the_end(make: Any, tmp_path: Path) -> None:
    sink, seen = make(tmp_path)
    env = ps.StreamEnvironment(runtime="local", parallelism=2, clock=ManualClock(), max_batch_rows=4)
    _build(env, sink, lambda row: row)
    env.execute()
    assert sorted(seen()) == list(range(ROWS))


@MAKERS
def test_columns_are_checked_before_the_job(make: Any, tmp_path: Path) -> None:
    sink, _ = make(tmp_path)
    env = ps.StreamEnvironment(runtime="local")
    env.from_collection([{"i": "x"}]).sink_to(sink)
    with pytest.raises(ColumnTypeError, match="'i' is string, and int64 in the table"):
        env.execute()
