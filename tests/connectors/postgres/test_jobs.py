"""Whole jobs between tables, with failures and other parallelisms: rows equal the oracle, and are seen once."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.connectors.datagen import DataGenSource
from penstock.connectors.datagen import Sequence as Numbers
from penstock.connectors.postgres import PostgresLookup, PostgresSink, PostgresSource
from penstock.engine.checkpointing.store import JobFolder
from penstock.engine.clock import ManualClock
from penstock.engine.connectors import Committable, ConnectorContext, TransactionalSink, TransactionalWriter
from penstock.engine.job.events import RescaleJob
from penstock.engine.job.status import JobStatus
from penstock.engine.local.manager import LocalManager
from penstock.recovery import checkpoints, fixed_delay
from penstock.savepoints.store import FolderJobStore
from tests.connectors.postgres.tables import Database
from tests.draws import drawn

ROWS = 60


class FailingSink(TransactionalSink):
    """A sink whose commits fail as asked, before or behind their work; keeps what zombies would commit again.

    Args:
        failures: of commit number n (from 0): whether its work is done.
    """

    def __init__(self, sink: PostgresSink, failures: dict[int, bool]) -> None:
        self.sink, self.failures, self.calls = sink, failures, 0
        self.seen: list[Sequence[Committable]] = []

    def open(self, context: ConnectorContext) -> TransactionalWriter:
        return self.sink.open(context)

    def commit(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        call, self.calls = self.calls, self.calls + 1
        if self.failures.get(call, True):
            self.sink.commit(committables, context)
            self.seen.append(committables)
        if call in self.failures:
            raise OSError(f"commit {call}")

    def describe(self) -> str:
        return "failing"


def _manager(folder: Path, sink: FailingSink, rows: set[int], parallelism: int, seed: int) -> LocalManager:
    env = ps.StreamEnvironment(
        parallelism=parallelism,
        runtime="local",
        clock=ManualClock(),
        max_parallelism=8,
        buffer_timeout="0",
        max_batch_rows=4,
        checkpoints=checkpoints("10ms", str(folder), tolerable_failures=None),
        restart=fixed_delay(100, "1ms"),
    )

    def fail(row: dict[str, Any]) -> dict[str, Any]:
        if row["i"] in rows:
            rows.remove(row["i"])
            raise OSError(f"row {row['i']}")
        return row

    numbers = env.from_source(DataGenSource({"i": Numbers()}, rows=ROWS, rate=1000)).uid("numbers")
    mapped = numbers.rebalance().map(fail, returns={"i": "int64"}).uid("map")
    if sink.sink.mode == "upsert":
        mapped = mapped.with_columns(k=ps.col("i") % 7).key_by("k").aggregate(n=ps.count(), total=ps.sum("i")).uid("n")
    mapped.sink_to(sink).uid("out")
    store = FolderJobStore(str(folder), "job", "job")
    return LocalManager(env.program("job"), ManualClock(), random.Random(seed), JobFolder(store, "job"))


@settings(max_examples=drawn(3), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    mode=st.sampled_from(["append", "upsert"]),
    seed=st.integers(0, 2**20),
    parallelism=st.integers(1, 3),
    rows=st.sets(st.integers(0, ROWS - 1), max_size=2),
    commits=st.dictionaries(st.integers(0, 8), st.booleans(), max_size=3),
    rescales=st.dictionaries(st.integers(30, 400), st.integers(1, 4), max_size=2),
)
def test_the_table_equals_the_oracle(
    database: Database,
    mode: Any,
    seed: int,
    parallelism: int,
    rows: set[int],
    commits: dict[int, bool],
    rescales: dict[int, int],
) -> None:
    table = database.create("i bigint" if mode == "append" else "k bigint primary key, n bigint, total bigint")
    sink = FailingSink(PostgresSink(database.dsn, table, mode=mode, markers=database.new_name("m")), dict(commits))
    sink.sink.prepare()
    with tempfile.TemporaryDirectory() as folder:
        manager, steps = _manager(Path(folder), sink, set(rows), parallelism, seed), 0
        while not manager.brain.ended:
            if steps in rescales:
                manager.ask(RescaleJob(rescales[steps]))
            manager.step(1.0)
            steps += 1
    assert manager.brain.status is JobStatus.FINISHED, manager.brain.error
    for zombie in sink.seen:
        sink.sink.commit(zombie, ConnectorContext("zombie", 0, 1, ManualClock()))
    found = sorted(database.ask(f"SELECT * FROM {table}"))
    if mode == "append":
        assert found == [(number,) for number in range(ROWS)]
    else:
        groups = [[number for number in range(ROWS) if number % 7 == key] for key in range(7)]
        assert found == [(key, len(group), sum(group)) for key, group in enumerate(groups)]


def test_a_job_from_table_to_table_with_a_lookup(database: Database) -> None:
    users = database.create("id bigint primary key, name text")
    orders = database.create("id bigint primary key, customer bigint, amount numeric(8,2)")
    totals = database.create("name text primary key, total numeric(12,2), note text default 'kept'")
    database.run(f"INSERT INTO {users} SELECT n, 'user ' || n FROM generate_series(0, 3) AS n")
    database.run(f"INSERT INTO {orders} SELECT n, n % 5, n / 4.0 FROM generate_series(1, 200) AS n")
    source = PostgresSource(database.dsn, orders, column="id", ranges=[50, 150])
    lookup = PostgresLookup(database.dsn, users, keys="id")
    sink = PostgresSink(database.dsn, totals, markers=database.new_name("m"))
    expected = database.ask(
        f"SELECT name, sum(amount::numeric(12,2)), 'kept' FROM {orders} JOIN {users} AS u ON customer = u.id GROUP BY 1"
    )
    for _ in range(2):  # Once more changes nothing.
        env = ps.StreamEnvironment(runtime="local", parallelism=2, max_batch_rows=16)
        named = env.from_source(source).lookup_join(lookup, on={"customer": "id"})
        named.key_by("name").aggregate(total=ps.sum("amount")).sink_to(sink)
        assert database.postgres.password not in env.explain()
        env.execute()
        assert sorted(database.ask(f"SELECT * FROM {totals}")) == sorted(expected)


@pytest.mark.parametrize(
    ("kind", "held", "asked", "unknown"),
    [
        ("uuid", "0a1b2c3d-0000-0000-0000-00000000000a", "0A1B2C3D-0000-0000-0000-00000000000A", f"{0:032}"),
        ("char(5)", "ab", "ab", "a"),
    ],
)
def test_a_row_is_found_by_each_text_that_the_server_takes_for_its_key(
    database: Database, kind: str, held: str, asked: str, unknown: str
) -> None:
    table = database.create(f"n int, k {kind} primary key")
    database.run(f"INSERT INTO {table} VALUES (7, '{held}')")
    env = ps.StreamEnvironment(runtime="local")
    rows = env.from_collection([(asked,), (held,), (unknown,), (None,)], schema={"u": "string"})
    found = rows.lookup_join(PostgresLookup(database.dsn, table, keys="k"), on={"u": "k"}).collect()
    assert sorted((row["u"], row["n"]) for row in found) == sorted([(asked, 7), (held, 7)])
