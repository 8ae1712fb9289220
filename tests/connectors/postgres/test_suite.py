"""The connectors of PostgreSQL keep the rules of the connector API."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.connectors.postgres import PostgresLookup, PostgresSink, PostgresSource
from penstock.engine.clock import Clock, ManualClock
from penstock.engine.connectors import LookupTable, Source, TransactionalSink
from penstock.testing.connector_suite import LookupTableSuite, SourceSuite, TransactionalSinkSuite
from tests.connectors.postgres.tables import Database
from tests.draws import drawn

COUNT = 40


class TestPostgresSink(TransactionalSinkSuite):
    """Appended, what is committed twice is there twice."""

    seeds = (1,)
    most_crashes = drawn(4)

    @pytest.fixture(
        autouse=True,
        params=[
            "append",
            pytest.param("upsert", marks=pytest.mark.long("appended rows show more; test_commits.py merges by keys")),
        ],
    )
    def _server(self, request: pytest.FixtureRequest, database: Database) -> None:
        self.database, self.mode = database, request.param

    def sink(self) -> TransactionalSink:
        table = self.database.create("id bigint, name text" + ", primary key (id)" * (self.mode == "upsert"))
        return PostgresSink(self.database.dsn, table, mode=self.mode, markers=self.database.new_name("m"))

    def read_back(self, sink: TransactionalSink) -> list[dict[str, Any]]:
        assert isinstance(sink, PostgresSink)
        found = self.database.ask(f"SELECT id, name FROM {sink.table}")
        return [{"id": number, "name": name} for number, name in found]


class TestPostgresSource(SourceSuite):
    seeds = (1,)
    most_positions = drawn(6)

    @pytest.fixture(
        autouse=True,
        params=[
            "ranges",
            pytest.param("endless", marks=pytest.mark.long("test_source.py: rows that come later, where they begin")),
        ],
    )
    def _table(self, request: pytest.FixtureRequest, database: Database) -> None:
        self.database, self.kind = database, request.param
        self.table = database.create("id serial primary key, tenth int")
        database.run(f"INSERT INTO {self.table} (tenth) SELECT n / 10 FROM generate_series(1, {COUNT}) AS n")

    def source(self) -> Source:
        ranges = [1, 3] if self.kind == "ranges" else []
        poll = "10ms" if self.kind == "endless" else None
        return PostgresSource(self.database.dsn, self.table, column="tenth", ranges=ranges, poll=poll)

    def expected(self) -> list[dict[str, Any]]:
        return [{"id": number, "tenth": number // 10} for number in range(1, COUNT + 1)]

    def clock(self) -> Clock:
        return ManualClock()


class TestPostgresLookup(LookupTableSuite):
    @pytest.fixture(autouse=True)
    def _table(self, database: Database) -> None:
        self.dsn, self.name = database.dsn, database.create("id int, name text")
        database.run(f"INSERT INTO {self.name} VALUES (1, 'a'), (2, 'b'), (2, 'c'), (NULL, 'd')")

    def table(self) -> LookupTable:
        return PostgresLookup(self.dsn, self.name, keys="id")

    def expected(self) -> list[dict[str, Any]]:
        return [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 2, "name": "c"}]

    def absent(self) -> list[dict[str, Any]]:
        return [{"id": 3}]
