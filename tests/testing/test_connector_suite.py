"""Our own connectors that need no server keep the rules of the connector API."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from penstock.connectors.collection import CollectionSource
from penstock.connectors.datagen import DataGenSource, EventTime, RandomInt
from penstock.connectors.datagen import Sequence as SequenceField
from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.source import FileSource
from penstock.engine.clock import Clock, ManualClock
from penstock.engine.connectors import Source, TransactionalSink
from penstock.testing.connector_suite import Rows, SourceSuite, TransactionalSinkSuite
from tests.connectors.reading import read_table

ROWS: list[dict[str, Any]] = [
    {
        "id": number,
        "name": None if number % 7 == 3 else f"name {number}",
        "share": number / 8,
        "at": datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(minutes=number),
    }
    for number in range(60)
]
SCHEMA = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("share", pa.float64()), ("at", pa.timestamp("ms", tz="UTC"))]
)
TABLE = pa.Table.from_pylist(ROWS, SCHEMA)


def _write_json(rows: pa.Table, path: Path) -> None:
    path.write_text("".join(f"{json.dumps(row, default=datetime.datetime.isoformat)}\n" for row in rows.to_pylist()))


WRITERS: Mapping[str, Callable[[pa.Table, Path], None]] = {
    "csv": pyarrow.csv.write_csv,
    "json": _write_json,
    "parquet": partial(pq.write_table, row_group_size=12),
}


class TestCollection(SourceSuite):
    def source(self) -> Source:
        return CollectionSource.of(TABLE)

    def expected(self) -> pa.Table:
        return TABLE


class TestDataGen(SourceSuite):
    @pytest.fixture(autouse=True, params=[None, 200.0])
    def _rate(self, request: pytest.FixtureRequest) -> None:
        self.rate: float | None = request.param

    def source(self) -> Source:
        return self._source(self.rate)

    def expected(self) -> pa.Table:
        return read_table(self._source(None))

    def clock(self) -> Clock:
        return ManualClock()

    @staticmethod
    def _source(rate: float | None) -> Source:
        fields = {"n": SequenceField(), "key": RandomInt(0, 9), "at": EventTime(delayed=0.5, max_delay_ms=100)}
        return DataGenSource(fields, rows=61, rate=rate)


class TestFiles(SourceSuite):
    """Three files of uneven lengths."""

    @pytest.fixture(autouse=True, params=["csv", "json", "parquet"])
    def _files(self, request: pytest.FixtureRequest, tmp_path: Path) -> None:
        self.folder = tmp_path
        for number, (first, count) in enumerate([(0, 31), (31, 0), (31, 29)]):
            WRITERS[request.param](TABLE.slice(first, count), tmp_path / f"{number}.{request.param}")

    def source(self) -> Source:
        return FileSource.of(self.folder, schema=SCHEMA)

    def expected(self) -> pa.Table:
        return TABLE


class TestFileSink(TransactionalSinkSuite):
    @pytest.fixture(autouse=True, params=[("csv", "error"), ("json", "error"), ("parquet", "overwrite")])
    def _folder(self, request: pytest.FixtureRequest, tmp_path: Path) -> None:
        self.folder, self.targets = tmp_path, 0
        self.format, self.mode = request.param

    def sink(self) -> TransactionalSink:
        self.targets += 1
        return FileSink(self.folder / str(self.targets), self.format, mode=self.mode)

    def read_back(self, sink: TransactionalSink) -> Rows:
        assert isinstance(sink, FileSink)
        if not list(Path(sink.path).glob("part-*")):
            return []
        return read_table(FileSource.of(sink.path, schema=self.rows(0, 0).schema))

    def clock(self) -> Clock:
        return ManualClock()
