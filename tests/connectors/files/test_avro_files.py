from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.source import FileSource
from penstock.engine.elements import Batch
from penstock.engine.errors import ColumnTypeError, ConfigurationError, RecordError
from tests.connectors.reading import context, read_batches, read_rows, read_table

UTC = datetime.timezone.utc
AT = datetime.datetime(2024, 1, 2, 3, 4, 5, 678000)


def _write(folder: Path, *batches: pa.RecordBatch) -> Path:
    sink = FileSink(folder, "avro", mode="append")
    writer = sink.open(context())
    for batch in batches:
        writer.write(Batch(batch))
    sink.commit(writer.prepare(1), context())
    writer.close()
    (path,) = folder.iterdir()
    return path


def test_every_type_is_read_as_it_was_written(tmp_path: Path) -> None:
    far = datetime.datetime(9999, 12, 31, 23, 59, 59)
    table = pa.table(
        {
            "i": pa.array([1, None, -(2**63)]),
            "small": pa.array([1, None, -128], pa.int8()),
            "f": pa.array([0.5, None, -1e300]),
            "b": [True, None, False],
            "s": ["a \u00fc\U0001f600", None, ""],
            "y": [b"\x00\xff", None, b""],
            "k": pa.array(["x", None, "y"]).dictionary_encode(),
            "t": pa.array([AT, None, far], pa.timestamp("ms")),
            "u": pa.array([AT, None, far], pa.timestamp("us", tz="UTC")),
            "n": pa.array([0, None, -(2**63) + 1], pa.timestamp("ns")),
            "d": pa.array([AT.date(), None, datetime.date(1, 1, 1)]),
            "c": pa.array([datetime.time(1, 2, 3, 4), None, datetime.time()], pa.time64("us")),
            "m": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("-2.00")], pa.decimal128(10, 2)),
            "list": pa.array([[1, None], None, []], pa.list_(pa.int64())),
            "struct": pa.array([{"x": 1, "at": AT}, None, {"x": None, "at": None}]),
        }
    )
    sink = FileSink(tmp_path, "avro")
    sink.check(table.schema)
    _write(tmp_path, *table.to_batches(max_chunksize=2))
    assert read_rows(FileSource.of(tmp_path, schema=table.schema), 2) == table.to_pylist()
    inferred = FileSource.of(tmp_path).schema
    assert inferred.field("t").type == pa.timestamp("ms")
    assert inferred.field("u").type == pa.timestamp("us", tz="UTC")
    assert inferred.field("m").type == pa.decimal128(10, 2)


def test_others_read_times_as_times(tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        pa.record_batch(
            {
                "u": pa.array([AT.replace(tzinfo=UTC)], pa.timestamp("us", tz="UTC")),
                "d": pa.array([AT.date()]),
                "c": pa.array([AT.time()], pa.time64("us")),
                "m": pa.array([decimal.Decimal("1.50")]),
            }
        ),
    )
    with path.open("rb") as file:
        assert list(fastavro.reader(file)) == [
            {"u": AT.replace(tzinfo=UTC), "d": AT.date(), "c": AT.time(), "m": decimal.Decimal("1.50")}
        ]


@given(rows=st.integers(0, 400), skipped=st.integers(0, 420), block=st.sampled_from([1, 64, 10_000]))
def test_a_reader_goes_on_at_any_row(
    tmp_path_factory: pytest.TempPathFactory, rows: int, skipped: int, block: int
) -> None:
    path = tmp_path_factory.mktemp("avro") / "x.avro"
    schema = {"type": "record", "name": "r", "fields": [{"name": "i", "type": "long"}]}
    with path.open("wb") as file:
        fastavro.writer(file, schema, [{"i": i} for i in range(rows)], sync_interval=block)
    source = FileSource.of(path)
    (split,) = source.splits(1)
    reader = source.open_at(split, {"row": skipped}, context())
    values: list[int] = []
    while (batch := reader.next_batch(7)) is not None:
        assert isinstance(batch, pa.RecordBatch)
        values += batch["i"].to_pylist()
    reader.close()
    assert values == list(range(skipped, rows))


def test_batches_are_no_larger_than_asked(tmp_path: Path) -> None:
    _write(tmp_path, pa.record_batch({"i": range(40_000)}))
    batches = read_batches(FileSource.of(tmp_path), 1000)
    assert max(batch.num_rows for batch in batches) == 1000
    assert read_table(FileSource.of(tmp_path))["i"].to_pylist() == list(range(40_000))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (pa.duration("ms"), "avro cannot store column 'x' of type duration"),
        (pa.uint64(), "avro cannot store column 'x' of type uint64"),
        (pa.map_(pa.int64(), pa.int64()), "avro cannot store column 'x' of type map"),
        (pa.struct({"a b": pa.int64()}), "'a b' is no name in Avro"),
    ],
)
def test_types_that_avro_lacks_are_refused(tmp_path: Path, kind: pa.DataType, message: str) -> None:
    with pytest.raises(ColumnTypeError, match=message):
        FileSink(tmp_path, "avro").check(pa.schema({"x": kind}))


@pytest.mark.parametrize("content", [b"", b"Obj\x01", b"no avro at all", None])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = _write(tmp_path, pa.record_batch({"i": range(1000)}))
    source = FileSource.of(path)
    path.write_bytes(path.read_bytes()[:-20] if content is None else content)
    with pytest.raises(RecordError, match=rf"{path}: (the rows from number 1 on are no Avro|cannot be read)"):
        read_rows(source)


def test_columns_are_checked(tmp_path: Path) -> None:
    path = _write(tmp_path, pa.record_batch({"i": [1, 300], "s": ["a", "b"]}))
    assert read_rows(FileSource.of(path, schema={"s": "string"})) == [{"s": "a"}, {"s": "b"}]
    with pytest.raises(RecordError, match=r"\.avro: no column 'x'"):
        read_rows(FileSource.of(path, schema={"x": "int64"}))
    with pytest.raises(RecordError, match=r"\.avro, column 'i': int64 cannot become int8"):
        read_rows(FileSource.of(path, schema={"i": "int8"}))
    path = path.rename(tmp_path / "x.avro.gz")
    with pytest.raises(ConfigurationError, match="an Avro file cannot be read through compression"):
        FileSource.of(path)


@pytest.mark.parametrize("schema", ['"string"', ["null", "int", "string"]])
def test_a_schema_without_columns_is_refused(tmp_path: Path, schema: Any) -> None:
    record = {"type": "record", "name": "r", "fields": [{"name": "x", "type": ["int", "string"]}]}
    path = tmp_path / "x.avro"
    with path.open("wb") as file:
        if isinstance(schema, list):
            fastavro.writer(file, record, [{"x": 1}])
        else:
            fastavro.writer(file, "string", ["a"])
    with pytest.raises(RecordError, match=rf"{path}: .*(must be a record|a union of several types)"):
        FileSource.of(path)


@pytest.mark.parametrize("compression", ["none", "deflate", "bz2", "zstd", "snappy"])
def test_a_compression_writes_files_or_is_refused_before_anything_runs(tmp_path: Path, compression: str) -> None:
    rows = pa.record_batch({"x": [1, 2]})
    sink = FileSink(tmp_path, "avro", compression=compression)
    try:
        sink.check(rows.schema)
    except ConfigurationError:
        with pytest.raises(ConfigurationError, match=r"needs a library .*pip install 'fastavro\[\w+\]', on every"):
            sink.check(rows.schema)
        return
    writer = sink.open(context())
    writer.write(Batch(rows))
    sink.commit(writer.prepare(1), context())
    writer.close()
    assert read_rows(FileSource.of(tmp_path), 2) == [{"x": 1}, {"x": 2}]
