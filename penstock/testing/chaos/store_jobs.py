"""The jobs from a generator over keyed state into stores, exactly once: files in a bucket, and a table of PostgreSQL.

`penstock chaos run --job s3|postgres` and our tests run them, against servers of `penstock.testing.services`. The rows
are read back by obstore and psycopg alone.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.connectors.datagen import DataGenSource
from penstock.connectors.files.sink import FileSink
from penstock.connectors.postgres import PostgresSink
from penstock.engine.api.streams import DataStream
from penstock.engine.connectors import Committable, ConnectorContext, Sink, TransactionalSink, TransactionalWriter
from penstock.environment import StreamEnvironment
from penstock.testing.chaos.harness import ChaosServer
from penstock.testing.chaos.jobs import KEYS
from penstock.testing.chaos.server_jobs import Trial, check_counted, count_events, user_name
from penstock.testing.services import S3, Postgres

_SUBTASKS: Final[Mapping[str, float]] = {"subtask": 5, "two": 1, "manager": 1, "pause": 2}
_BUCKET: Final = "chaos"


def _fed() -> nullcontext[Callable[[], None]]:
    """The generator gives the rows by itself."""
    return nullcontext(lambda: None)


def _events(env: StreamEnvironment, rows: int, rate: float) -> DataStream:
    source = DataGenSource({"user": _user, "number": _number}, rows, rate)
    return count_events(env.from_source(source, "events").uid("events"))


def _user(rows: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array([user_name(int(row) % KEYS) for row in rows], pa.string())


def _number(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return rows // KEYS


# Files in a bucket


@dataclass(frozen=True)
class S3Job:
    """Counted events into files of JSON lines in a bucket.

    Args:
        s3: the running server, which keeps its objects in memory: it may be stopped, and must not be killed.
    """

    s3: S3

    @property
    def name(self) -> str:
        return "s3"

    @property
    def servers(self) -> Mapping[str, ChaosServer]:
        return {"s3": self.s3}

    @property
    def weights(self) -> Mapping[str, float]:
        return {**_SUBTASKS, "pause-server": 1}

    def begin(self, env: StreamEnvironment, rows: int, rate: float) -> Trial:
        self.s3.create_bucket(_BUCKET)
        folder = f"run-{secrets.token_hex(4)}"
        sink = WithEnvironment(FileSink(f"s3://{_BUCKET}/{folder}", "json"), self.s3.environment)
        _events(env, rows, rate).sink_to(sink).uid("out")
        return Trial(_fed, lambda: check_counted(self._read(folder), rows))

    def _read(self, folder: str) -> Sequence[dict[str, Any]]:
        """The rows of all visible files. A reader sees no order among files, so each user's are put into theirs."""
        from obstore.store import S3Store

        store = S3Store(
            _BUCKET,
            endpoint=self.s3.endpoint,
            access_key_id=self.s3.access_key,
            secret_access_key=self.s3.secret_key,
            region=self.s3.region,
            client_options={"allow_http": True},
        )
        paths = [entry["path"] for entries in store.list(folder) for entry in entries]
        visible = [path for path in paths if not path.rpartition("/")[2].startswith(".")]
        lines = [line for path in visible for line in bytes(store.get(path).bytes()).splitlines()]
        return sorted(map(json.loads, lines), key=lambda row: (row["user"], row["number"]))


@dataclass(frozen=True)
class WithEnvironment(TransactionalSink):
    """A sink that finds variables in the environment, whatever processes of the cluster have.

    Args:
        sink: does the work.
        variables: by name.
    """

    sink: TransactionalSink
    variables: Mapping[str, str]

    def check(self, schema: pa.Schema | None) -> None:
        os.environ.update(self.variables)
        self.sink.check(schema)

    def prepare(self) -> None:
        os.environ.update(self.variables)
        self.sink.prepare()

    def resumed(self) -> Sink:
        sink = self.sink.resumed()
        assert isinstance(sink, TransactionalSink)
        return replace(self, sink=sink)

    def open(self, context: ConnectorContext) -> TransactionalWriter:
        os.environ.update(self.variables)
        return self.sink.open(context)

    def commit(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        os.environ.update(self.variables)
        self.sink.commit(committables, context)

    def describe(self) -> str:
        return self.sink.describe()


# A table of PostgreSQL


@dataclass(frozen=True)
class PostgresJob:
    """Counted events, appended to a table.

    Args:
        postgres: the running server.
    """

    postgres: Postgres

    @property
    def name(self) -> str:
        return "postgres"

    @property
    def servers(self) -> Mapping[str, ChaosServer]:
        return {"postgres": self.postgres}

    @property
    def weights(self) -> Mapping[str, float]:
        return {**_SUBTASKS, "kill-server": 1, "restart-server": 1, "pause-server": 1}

    def begin(self, env: StreamEnvironment, rows: int, rate: float) -> Trial:
        table = f"counts_{secrets.token_hex(4)}"
        self._ask(f'CREATE TABLE {table} (place bigserial, "user" text, number bigint, count bigint)')
        # A process that is stopped within a commit keeps its successor waiting for this long.
        sink = PostgresSink(self.postgres.dsn, table, mode="append", stuck_timeout="2s")
        _events(env, rows, rate).sink_to(sink).uid("out")
        query = f'SELECT "user", number, count FROM {table} ORDER BY place'  # noqa: S608 - the name is ours
        names = ("user", "number", "count")
        return Trial(
            _fed, lambda: check_counted([dict(zip(names, row, strict=True)) for row in self._ask(query)], rows)
        )

    def _ask(self, statement: str) -> Sequence[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(self.postgres.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []
