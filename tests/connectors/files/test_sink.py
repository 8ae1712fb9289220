from __future__ import annotations

import datetime
import decimal
import io
import json
import math
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.connectors.files import encoders
from penstock.connectors.files.open_folder import open_folder
from penstock.connectors.files.part_files import PartFile
from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.source import FileSource
from penstock.engine.elements import Batch
from penstock.engine.errors import ColumnTypeError, ConfigurationError, RecordError
from tests.connectors.reading import context, read_rows, read_table

UTC = datetime.timezone.utc
FORMATS = ["parquet", "csv", "json"]


def _write(sink: FileSink, *batches: pa.RecordBatch, subtask: int = 0) -> None:
    writer = sink.open(context(subtask))
    for batch in batches:
        writer.write(Batch(batch))
    if prepared := writer.prepare(0):
        sink.commit(prepared, context(subtask))
    writer.close()


def _batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_written_is_read(tmp_path: Path, kind: Any) -> None:
    moment = datetime.datetime(1969, 12, 31, 23, 59, 59, 123000)
    table = pa.table(
        {
            "i": pa.array([1, None, -(2**63)]),
            "f": pa.array([0.1, None, -1e300]),
            "b": [True, None, False],
            "s": ["a \"b\",\n'c' \u00fc\U0001f600", None, ""],
            "t": pa.array([moment, None, datetime.datetime(9999, 12, 31)], pa.timestamp("ms")),
            "u": pa.array([moment, None, datetime.datetime(2024, 1, 1)], pa.timestamp("us", tz="UTC")),
            "d": pa.array([datetime.date(2024, 1, 1), None, datetime.date(1, 1, 1)]),
            "c": pa.array([datetime.time(1, 2, 3, 4), None, datetime.time()], pa.time64("us")),
            "m": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("-2.00")], pa.decimal128(10, 2)),
            "e": pa.array([5, None, -5], pa.duration("ms")),
            "k": pa.array(["x", None, "y"]).dictionary_encode(),
        }
    )
    sink = FileSink(tmp_path / "out", kind)
    sink.check(table.schema)
    sink.prepare()
    _write(sink, *table.to_batches(max_chunksize=2))
    assert read_rows(FileSource.of(tmp_path / "out", schema=table.schema), 2) == table.to_pylist()


@pytest.mark.parametrize("kind", FORMATS)
def test_one_column_with_nulls_keeps_its_rows(tmp_path: Path, kind: Any) -> None:
    _write(FileSink(tmp_path, kind), _batch(s=["a", None, "", None]))
    assert read_table(FileSource.of(tmp_path))["s"].to_pylist() == ["a", None, "", None]


def test_json_forms(tmp_path: Path) -> None:
    at = datetime.datetime(2024, 1, 2, 3, 4, 5, 678000)
    batch = pa.RecordBatch.from_pydict(
        {
            "t": pa.array([at], pa.timestamp("ms", tz="Europe/Paris")),
            "n": pa.array([1], pa.timestamp("ns")),
            "y": [b"\x00\x01\xff"],
            "m": [decimal.Decimal("1.50")],
            "f": [math.nan],
            "g": [math.inf],
            "l": [[math.inf, 1.5]],
            "s": [
                {"at": at.replace(tzinfo=UTC), "y": b"a", "m": decimal.Decimal("2.5"), "d": datetime.date(2024, 1, 2)}
            ],
            "p": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
            "u": ["\u00fc"],
            "w": pa.array([300_000_000_000_000], pa.timestamp("ms")),
            "h": pa.array([1.5], pa.float16()),
            "x": pa.array([[7]], pa.list_(pa.timestamp("ns"))),
        }
    )
    sink = FileSink(tmp_path, "json")
    sink.check(batch.schema)
    sink.prepare()
    _write(sink, batch)
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text()) == {
        "t": "2024-01-02T03:04:05.678Z",
        "n": "1970-01-01T00:00:00.000000001",
        "y": "AAH/",
        "m": "1.50",
        "f": None,
        "g": None,
        "l": [None, 1.5],
        "s": {"at": "2024-01-02T03:04:05.678000Z", "y": "YQ==", "m": "2.5", "d": "2024-01-02"},
        "p": {"a": 1},
        "u": "\u00fc",
        "w": "11476-08-15T05:20:00.000",
        "h": 1.5,
        "x": ["1970-01-01T00:00:00.000000007"],
    }
    assert "\u00fc" in path.read_text()


@pytest.mark.parametrize("kind", ["csv", "json"])
@pytest.mark.parametrize("column", [pa.timestamp("ms"), pa.timestamp("us", tz="UTC"), pa.timestamp("s"), pa.date64()])
def test_times_that_have_no_text_are_refused(tmp_path: Path, kind: Any, column: pa.DataType) -> None:
    writer = FileSink(tmp_path, kind).open(context())
    far = pa.array([0, None, -(2**63)]).view(column)
    with pytest.raises(RecordError, match=rf"written as {kind}.*column 't' holds a time beyond"):
        writer.write(Batch(_batch(t=far)))
    writer.close()


@pytest.mark.parametrize("kind", FORMATS)
def test_names_of_files(tmp_path: Path, kind: Any) -> None:
    sink = FileSink(tmp_path / "deep" / "out", kind)
    sink.prepare()
    for subtask in (0, 12):
        _write(sink, _batch(a=[subtask]), subtask=subtask)
    _write(sink, subtask=3)
    _write(sink, _batch(a=[]), subtask=4)
    names = sorted(os.listdir(tmp_path / "deep" / "out"))
    assert len(names) == 2
    assert names[0].startswith("part-00000-")
    assert names[1].startswith("part-00012-")
    assert all(name.endswith(f".{kind}") for name in names)
    assert sink.describe() == f"files(out, {kind})"


@pytest.mark.parametrize("kind", FORMATS)
def test_nothing_is_visible_before_the_commit_and_nothing_left_after_an_abort(tmp_path: Path, kind: Any) -> None:
    writer = FileSink(tmp_path, kind).open(context(2))
    writer.write(Batch(_batch(a=[1])))
    (name,) = os.listdir(tmp_path)
    assert name.startswith(".part-2.")
    assert name.endswith(".inprogress")
    writer.close()
    assert os.listdir(tmp_path) == []


def test_a_writer_without_rows_can_be_closed(tmp_path: Path) -> None:
    FileSink(tmp_path, "csv").open(context()).close()
    assert os.listdir(tmp_path) == []


def test_small_batches_share_a_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "_ROW_GROUP_ROWS", 40)
    _write(FileSink(tmp_path, "parquet"), *[_batch(a=[i]) for i in range(100)])
    (path,) = tmp_path.iterdir()
    metadata = pq.read_metadata(path)
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [40, 40, 20]
    assert metadata.row_group(0).column(0).compression == "ZSTD"
    assert read_table(FileSource.of(path))["a"].to_pylist() == list(range(100))


def test_modes(tmp_path: Path) -> None:
    _write(FileSink(tmp_path, "csv"), _batch(a=[1]))
    (tmp_path / ".hidden").write_text("h")
    (tmp_path / "notes.txt").write_text("n")
    with pytest.raises(ConfigurationError, match=rf"{tmp_path} is not empty \(it has 'notes\.txt'\)"):
        FileSink(tmp_path, "csv").check(None)
    appending = FileSink(tmp_path, "csv", mode="append")
    appending.check(None)
    appending.prepare()
    _write(appending, _batch(a=[2]))
    assert len(list(tmp_path.glob("part-*"))) == 2
    overwriting = FileSink(tmp_path, "csv", mode="overwrite")
    overwriting.check(None)
    assert len(list(tmp_path.glob("part-*"))) == 2
    overwriting.prepare()
    assert sorted(os.listdir(tmp_path)) == [".hidden", "notes.txt"]


def test_overwriting_removes_what_killed_processes_left(tmp_path: Path) -> None:
    for name in (".part-0.abc.inprogress", ".part-note", ".other.inprogress"):
        (tmp_path / name).write_text("left")
    FileSink(tmp_path, "csv", mode="append").prepare()
    assert len(os.listdir(tmp_path)) == 3
    FileSink(tmp_path, "csv", mode="overwrite").prepare()
    assert sorted(os.listdir(tmp_path)) == [".other.inprogress", ".part-note"]


def test_a_check_makes_no_directory(tmp_path: Path) -> None:
    FileSink(tmp_path / "out", "csv").check(pa.schema([("a", pa.int64())]))
    assert os.listdir(tmp_path) == []


def test_a_hidden_file_does_not_count(tmp_path: Path) -> None:
    (tmp_path / ".part-0.abc.inprogress").write_text("left by a crash")
    FileSink(tmp_path, "csv").check(None)


def test_a_refused_schema_removes_nothing(tmp_path: Path) -> None:
    (tmp_path / "part-1.csv").write_text("a\n1\n")
    with pytest.raises(ColumnTypeError):
        FileSink(tmp_path, "csv", mode="overwrite").check(pa.schema([("l", pa.list_(pa.int64()))]))
    assert os.listdir(tmp_path) == ["part-1.csv"]


def test_directories_that_cannot_be_used(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    for path in (file, file / "below"):
        with pytest.raises(ConfigurationError, match=rf"{path} cannot be written to"):
            FileSink(path, "csv").check(None)
        with pytest.raises(ConfigurationError, match=rf"{path} cannot be written to"):
            FileSink(path, "csv").prepare()
    with pytest.raises(ConfigurationError, match="/proc/self/none cannot be written to"):
        FileSink("/proc/self/none", "csv").prepare()


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("csv", pa.list_(pa.int64())),
        ("csv", pa.struct([("x", pa.int64())])),
        ("csv", pa.binary()),
        ("csv", pa.month_day_nano_interval()),
        ("parquet", pa.month_day_nano_interval()),
        ("json", pa.month_day_nano_interval()),
        ("json", pa.list_(pa.month_day_nano_interval())),
    ],
)
def test_types_that_the_format_cannot_store(tmp_path: Path, kind: Any, column: pa.DataType) -> None:
    schema = pa.schema([("ok", pa.int64()), ("bad", column)])
    with pytest.raises(ColumnTypeError, match=rf"{kind} cannot store column 'bad' of type"):
        FileSink(tmp_path, kind).check(schema)
    writer = FileSink(tmp_path, kind).open(context())
    row = pa.RecordBatch.from_arrays([pa.array([1]), pa.nulls(1, column)], schema=schema)
    with pytest.raises(ColumnTypeError):
        writer.write(Batch(row))
    writer.close()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", FORMATS)
def test_one_schema_a_file(tmp_path: Path, kind: Any) -> None:
    writer = FileSink(tmp_path, kind).open(context(3))
    writer.write(Batch(_batch(a=[1], b=["x"])))
    with pytest.raises(RecordError, match=r"subtask 3: .* had column 'b' of string, this one 'b' of int64.*returns="):
        writer.write(Batch(_batch(a=[1], b=[1])))
    with pytest.raises(RecordError, match="the first batch had 2 columns and this one has 1"):
        writer.write(Batch(_batch(a=[1])))
    writer.close()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("x", "xml"), "no format 'xml'"), (("x", "csv", "replace"), "no mode 'replace'")],
)
def test_arguments_are_checked(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        FileSink(*arguments)


def test_sinks_are_picklable_and_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sink = FileSink("out", "csv")
    monkeypatch.chdir("/")
    copy = pickle.loads(pickle.dumps(sink))
    assert copy == sink
    assert copy.path == str(tmp_path / "out")


def test_a_file_is_not_abandoned_while_a_thread_finishes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt may leave the threads of `prepare` at work, and Arrow's writers die of two threads at once."""
    order: list[str] = []
    abandoning = threading.Event()
    encoder = encoders.ENCODERS[encoders.FileFormat.PARQUET]
    close, abandon = encoder.close, encoder.abandon

    def slow_close(self: encoders.Encoder) -> None:
        abandoning.wait()
        order.append("closing")
        close(self)
        order.append("closed")

    def noted_abandon(self: encoders.Encoder) -> None:
        order.append("abandoned")
        abandon(self)

    monkeypatch.setattr(encoder, "close", slow_close)
    monkeypatch.setattr(encoder, "abandon", noted_abandon)
    folder = open_folder(str(tmp_path))
    rows = _batch(i=[1])
    part = PartFile(folder, "part", "part", encoders.Encoding.of(encoders.FileFormat.PARQUET, None), rows.schema, "s")
    part.write(rows)
    with ThreadPoolExecutor(2) as pool:
        finishing = pool.submit(part.finish)
        while not part._ending.locked():
            pass
        abandoned = pool.submit(part.abandon)
        abandoning.set()
        finishing.result()
        abandoned.result()
    assert order == ["closing", "closed", "abandoned"]
    assert os.listdir(tmp_path) == []


def test_few_rows_of_each_batch_keep_no_whole_batches_in_memory() -> None:
    """As rows of a bucket that few of them belong to."""
    rows = _batch(i=list(range(10_000)))
    encoding = encoders.Encoding.of(encoders.FileFormat.PARQUET, None)
    encoder = encoders.ENCODERS[encoding.format](io.BytesIO(), rows.schema, encoding)
    before = pa.total_allocated_bytes()
    for _ in range(20):
        encoder.write(rows.take(pa.array(range(10_000))).slice(7, 1))
    assert encoder.held_bytes == 20 * 8
    assert pa.total_allocated_bytes() - before < rows.nbytes
    encoder.close()
