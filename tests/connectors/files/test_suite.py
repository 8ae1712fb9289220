"""The file sources and sinks keep the rules of the connector API: in folders and in buckets, in each format."""

from __future__ import annotations

import datetime
import io
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from penstock.connectors.files.buckets import by_time
from penstock.connectors.files.encoders import ENCODERS, Encoding
from penstock.connectors.files.formats import parse_format
from penstock.connectors.files.listing import find_paths
from penstock.connectors.files.object_store import is_url, locate
from penstock.connectors.files.rolling import Rolling
from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.source import FileSource
from penstock.engine.clock import Clock, ManualClock
from penstock.engine.connectors import Source, TransactionalSink
from penstock.testing.connector_suite import Rows, SourceSuite, TransactionalSinkSuite
from tests.connectors.reading import read_table
from tests.draws import drawn

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


LONG = pytest.mark.long("the suite on folders; test_object_storage.py has buckets")
OTHER_FORMATS = pytest.mark.long("the suite in the formats that are left; each format's own tests")


class _Content(io.BytesIO):
    """Bytes that can be read when the writer of a file has closed it."""

    def close(self) -> None:
        pass


def _put(place: str, rows: pa.Table, kind: str) -> None:
    """Write a file of a folder or a bucket."""
    content = _Content()
    if kind == "parquet":
        pq.write_table(rows, content, row_group_size=12)
    else:
        file_format = parse_format(kind, "test")
        encoder = ENCODERS[file_format](content, rows.schema, Encoding.of(file_format, None))
        for batch in rows.to_batches():
            encoder.write(batch)
        encoder.close()
    if is_url(place):
        store, key = locate(place)
        obstore.put(store, key, content.getvalue())
    else:
        Path(place).write_bytes(content.getvalue())


def _place(request: pytest.FixtureRequest, where: str) -> str:
    return str(request.getfixturevalue("tmp_path" if where == "folder" else "bucket"))


class TestFiles(SourceSuite):
    """Three files of uneven lengths."""

    seeds = (1,)
    most_positions = drawn(6)

    @pytest.fixture(
        autouse=True,
        params=[
            "folder csv",
            pytest.param("folder json", marks=OTHER_FORMATS),
            "folder parquet",
            "folder avro",
            pytest.param("bucket csv", marks=LONG),
        ],
    )
    def _files(self, request: pytest.FixtureRequest) -> None:
        where, kind = request.param.split()
        self.place = _place(request, where)
        for number, (first, count) in enumerate([(0, 31), (31, 0), (31, 29)]):
            _put(f"{self.place}/{number}.{kind}", TABLE.slice(first, count), kind)

    def source(self) -> Source:
        return FileSource.of(self.place, schema=SCHEMA)

    def expected(self) -> pa.Table:
        return TABLE


class TestWatchedFiles(SourceSuite):
    """Five files, of which each reader has some."""

    seeds = (1,)
    most_positions = drawn(6)

    @pytest.fixture(autouse=True, params=["folder json", pytest.param("bucket parquet", marks=LONG)])
    def _files(self, request: pytest.FixtureRequest) -> None:
        where, self.kind = request.param.split()
        self.place = _place(request, where)
        for number in range(5):
            _put(f"{self.place}/{number}.{self.kind}", TABLE.slice(number * 12, 12), self.kind)

    def source(self) -> Source:
        return FileSource.of(self.place, schema=SCHEMA, monitor="10ms", readers=2)

    def expected(self) -> pa.Table:
        return TABLE

    def clock(self) -> Clock:
        return ManualClock()


SINKS: dict[str, dict[str, Any]] = {
    "folder csv": {},
    "folder json": {"roll": Rolling(max_bytes=40), "compression": "gzip"},
    "folder parquet": {"mode": "overwrite"},
    "folder avro": {"mode": "append"},
    "folder parquet partitioned": {"partition_by": ["shard"]},
    "folder parquet by-time": {"bucket": by_time("dt=%Y-%m-%d", "processing")},
    "bucket json": {"roll": Rolling(max_bytes=40)},
    "bucket avro": {"mode": "overwrite"},
}


SELDOM = {
    "folder csv": OTHER_FORMATS,
    "folder avro": OTHER_FORMATS,
    "folder parquet by-time": pytest.mark.long("folder parquet partitioned; tests of the buckets by time"),
    "bucket avro": LONG,
    "bucket json": LONG,
}


class TestFileSink(TransactionalSinkSuite):
    seeds = (1,)
    most_crashes = drawn(6)

    @pytest.fixture(
        autouse=True, params=[pytest.param(name, marks=[SELDOM[name]] if name in SELDOM else []) for name in SINKS]
    )
    def _folder(self, request: pytest.FixtureRequest) -> None:
        where, self.format, *_ = request.param.split()
        self.place, self.options = _place(request, where), SINKS[request.param]
        self.targets = 0

    def sink(self) -> TransactionalSink:
        self.targets += 1
        return FileSink(f"{self.place}/{self.targets}", self.format, **self.options)

    def rows(self, first: int, count: int) -> pa.Table:
        rows = super().rows(first, count)
        shards = [f"s{number % 3}" for number in range(first, first + count)]
        return rows.append_column("shard", pa.array(shards, pa.string()))

    def read_back(self, sink: TransactionalSink) -> Rows:
        assert isinstance(sink, FileSink)
        path = str(sink.path)
        if self.options.keys() & {"partition_by", "bucket"}:
            shown = ds.dataset(path, format="parquet", partitioning="hive")
            return shown.to_table() if shown.files else []
        return read_table(FileSource.of(path, schema=self.rows(0, 0).schema)) if find_paths(path) else []

    def clock(self) -> Clock:
        return ManualClock()
