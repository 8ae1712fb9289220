from __future__ import annotations

import datetime
import gzip
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.files import sink as sink_module
from penstock.connectors.files.buckets import NULL_PARTITION, assigner_of, by_time, split
from penstock.connectors.files.rolling import Rolling
from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.source import FileSource
from penstock.engine.clock import ManualClock
from penstock.engine.connectors import ConnectorContext
from penstock.engine.elements import Batch
from penstock.engine.errors import ColumnTypeError, ConfigurationError, MissingColumnError, RecordError
from tests.connectors.reading import read_rows

FORMATS = ["parquet", "csv", "json", "avro"]


def _context(clock: ManualClock | None = None) -> ConnectorContext:
    return ConnectorContext("out", 0, 1, clock or ManualClock(), "job/sink")


def _write(sink: FileSink, *batches: Batch, clock: ManualClock | None = None) -> None:
    writer = sink.open(_context(clock))
    for batch in batches:
        writer.write(batch)
    sink.commit(writer.prepare(1), _context())
    writer.close()


def _files(folder: Path) -> list[str]:
    """The visible files, without the part of their names that is unique."""
    return sorted(str(path.parent.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_go_to_the_folders_of_hive(tmp_path: Path, kind: Any) -> None:
    sink = FileSink(tmp_path, kind, partition_by=["country", "day"])
    days = [datetime.date(2024, 1, 2), None, datetime.date(2024, 1, 2), datetime.date(2024, 1, 2)]
    batch = Batch(pa.record_batch({"country": ["CH", "a/b=c %d\u00fc", "CH", ""], "day": days, "i": [1, 2, 3, 4]}))
    sink.check(batch.data.schema)
    _write(sink, batch)
    assert _files(tmp_path) == sorted(
        [
            "country=CH/day=2024-01-02",
            f"country=a%2Fb%3Dc %25d\u00fc/day={NULL_PARTITION}",
            f"country={NULL_PARTITION}/day=2024-01-02",
        ]
    )
    assert read_rows(FileSource.of(tmp_path / "country=CH" / "day=2024-01-02"), 10) == [{"i": 1}, {"i": 3}]
    if kind == "parquet":
        table = ds.dataset(tmp_path, partitioning=ds.partitioning(flavor="hive")).to_table().sort_by("i")
        assert table["country"].to_pylist() == ["CH", "a/b=c %d\u00fc", "CH", None]


@given(
    values=st.lists(st.tuples(st.sampled_from(["", "a", "%/", None]), st.booleans()), min_size=1, max_size=30),
)
def test_partitions_are_those_of_a_loop(values: list[tuple[str | None, bool]]) -> None:
    batch = Batch(pa.record_batch({"k": pa.array([k for k, _ in values], pa.string()), "b": [b for _, b in values]}))
    rows = Batch(batch.data.append_column("i", pa.array(range(len(values)))))
    expected: dict[tuple[str | None, str], list[int]] = {}
    for i, (k, b) in enumerate(values):
        expected.setdefault((k or None, str(b).lower()), []).append(i)
    found = {}
    assigner = assigner_of(None, ["k", "b"])
    assert assigner is not None
    for folder, part in split(assigner, rows, 0):
        k, b = (unquote(piece.split("=", 1)[1]) for piece in folder.split("/"))
        found[(None if k == NULL_PARTITION else k, b)] = part["i"].to_pylist()
        assert part.schema.names == ["i"]
    assert found == expected


@given(
    milliseconds=st.lists(st.integers(-(10**13), 10**14).map(lambda moment: moment // 8 * 8), min_size=1, max_size=20),
    zone=st.sampled_from(["UTC", "Europe/Zurich", "Asia/Kolkata", "America/New_York"]),
    pattern=st.sampled_from(["%Y-%m-%d/%H", "dt=%Y%m%d/%M", "%H-%M-%S"]),
)
def test_buckets_of_time_are_those_of_a_loop(milliseconds: list[int], zone: str, pattern: str) -> None:
    batch = Batch(pa.record_batch({"i": pa.array(range(len(milliseconds)))}), pa.array(milliseconds, pa.int64()))
    expected: dict[str, list[int]] = {}
    for i, moment in enumerate(milliseconds):
        local = datetime.datetime.fromtimestamp(moment / 1000, ZoneInfo(zone))
        fields = {"%Y": local.year, "%m": local.month, "%d": local.day, "%H": local.hour, "%M": local.minute}
        text = pattern.replace("%S", f"{local.second:02d}")
        for name, value in fields.items():
            text = text.replace(name, f"{value:02d}")
        expected.setdefault(text, []).append(i)
    found = {folder: part["i"].to_pylist() for folder, part in split(by_time(pattern, timezone=zone), batch, 0)}
    assert found == expected


def test_processing_time_is_the_clocks(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    sink = FileSink(tmp_path, "json", bucket=by_time("%Y-%m-%d--%H", time="processing"))
    writer = sink.open(_context(clock))
    for _ in range(2):
        writer.write(Batch(pa.record_batch({"i": [1]})))
        clock.advance(3600)
    sink.commit(writer.prepare(1), _context())
    assert _files(tmp_path) == ["2023-11-14--22", "2023-11-14--23"]


def test_event_time_must_be_there(tmp_path: Path) -> None:
    writer = FileSink(tmp_path, "json", bucket=by_time()).open(_context())
    with pytest.raises(RecordError, match="'out', subtask 0: file sink: rows have no event time"):
        writer.write(Batch(pa.record_batch({"i": [1]})))


def test_a_function_chooses_the_folder(tmp_path: Path) -> None:
    sink = FileSink(tmp_path, "json", bucket=lambda rows: [f"odd={i % 2}" for i in rows["i"].to_pylist()])
    _write(sink, Batch(pa.record_batch({"i": [1, 2, 3]})))
    assert read_rows(FileSource.of(tmp_path / "odd=1"), 10) == [{"i": 1}, {"i": 3}]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda rows: ["../x"], "cannot be a bucket"),
        (lambda rows: ["/x"], "cannot be a bucket"),
        (lambda rows: ["a//b"], "cannot be a bucket"),
        (lambda rows: [".hidden"], "cannot be a bucket"),
        (lambda rows: ["a/"], "cannot be a bucket"),
        (lambda rows: ["/".join(["x" * 200] * 4)], "its path has more than 700 bytes"),
        (lambda rows: ["a/" + "x" * 256], "a folder's name more than 255"),
        (lambda rows: ["é" * 128], "a folder's name more than 255"),
        (lambda rows: [None], "without nulls"),
        (lambda rows: [1], "not int64"),
        (lambda rows: ["a", "b"], "gave 2 names for 1 rows"),
    ],
)
def test_a_folder_must_be_within_the_directory(
    tmp_path: Path, function: Callable[[pa.RecordBatch], list[str]], message: str
) -> None:
    writer = FileSink(tmp_path / "out", "json", bucket=function).open(_context())
    with pytest.raises(RecordError, match=message):
        writer.write(Batch(pa.record_batch({"i": [1]})))
    writer.close()


def test_the_longest_folders_can_be_made(tmp_path: Path) -> None:
    longest = "/".join(["x" * 255, "é" * 127, "x" * 189])
    assert len(longest.encode()) == 700
    _write(FileSink(tmp_path, "json", bucket=lambda rows: [longest]), Batch(pa.record_batch({"i": [1]})))
    assert _files(tmp_path) == [longest]


def test_a_value_that_makes_too_long_a_name_is_refused_before_the_checkpoint(tmp_path: Path) -> None:
    writer = FileSink(tmp_path, "json", partition_by=["k"]).open(_context())
    with pytest.raises(RecordError, match=r"'k=xxx.* shorten the values that it is made of"):
        writer.write(Batch(pa.record_batch({"k": ["x" * 300], "i": [1]})))
    writer.close()


def test_partition_columns_are_checked_before_the_job(tmp_path: Path) -> None:
    sink = FileSink(tmp_path, "parquet", partition_by=["k"])
    with pytest.raises(MissingColumnError, match="no column 'k'"):
        sink.check(pa.schema({"i": pa.int64()}))
    with pytest.raises(ColumnTypeError, match="'k' of type double"):
        sink.check(pa.schema({"k": pa.float64(), "i": pa.int64()}))
    with pytest.raises(ConfigurationError, match="no column is left"):
        sink.check(pa.schema({"k": pa.int64()}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition_by": "k"}, "must be a list of column names"),
        ({"partition_by": ["k", "k"]}, "names a column twice"),
        ({"partition_by": ["k"], "bucket": by_time()}, "not both"),
        ({"bucket": "day"}, "bucket must be"),
        ({"roll": "1h"}, "roll must be Rolling"),
        ({"compression": "gzop"}, "csv has no compression 'gzop'; choose 'none', 'gzip'"),
        ({"prefix": "_x"}, "cannot begin the names"),
        ({"prefix": "a/b"}, "cannot begin the names"),
        ({"suffix": "/b"}, "cannot end the names"),
    ],
)
def test_options_that_cannot_be_used_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        FileSink(tmp_path, "csv", **options)


def test_patterns_and_limits_that_cannot_be_used_are_refused() -> None:
    for make, message in [
        (lambda: by_time("/%Y"), "makes no names of folders"),
        (lambda: by_time(time="now"), "no time 'now'"),  # type: ignore[arg-type]
        (lambda: by_time(timezone="Mars/Olympus"), "no time zone 'Mars/Olympus'"),
        (lambda: Rolling(max_bytes=0), "max_bytes must be"),
        (lambda: Rolling(max_age="0s"), "max_age must be"),
    ]:
        with pytest.raises(ConfigurationError, match=message):
            make()


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=30),
    limit=st.integers(1, 100),
    age=st.integers(1, 20),
    waits=st.lists(st.integers(0, 8), min_size=30, max_size=30),
)
def test_files_end_when_they_are_full_or_old(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int, age: int, waits: Sequence[int]
) -> None:
    folder = tmp_path_factory.mktemp("out")
    clock = ManualClock()
    sink = FileSink(folder, "json", roll=Rolling(max_bytes=limit, max_age=f"{age}s"))
    writer = sink.open(_context(clock))
    expected: list[list[str]] = []
    is_open, written, begun, now = False, 0, 0, 0
    for size, wait in zip(sizes, waits, strict=False):
        text = "x" * size
        writer.write(Batch(pa.record_batch({"s": [text]})))
        if not is_open:
            expected.append([])
            is_open, written, begun = True, 0, now
        expected[-1].append(text)
        written += len(json.dumps({"s": text}, separators=(",", ":"))) + 1
        is_open = written < limit and now - begun < age
        clock.advance(wait)
        now += wait
    sink.commit(writer.prepare(1), _context())
    paths = sorted(folder.iterdir(), key=lambda path: int(path.stem.rsplit("-", 1)[1]))
    assert [[json.loads(line)["s"] for line in path.read_text().splitlines()] for path in paths] == expected


def test_files_that_were_full_are_shown_with_their_checkpoint_and_not_before(tmp_path: Path) -> None:
    sink = FileSink(tmp_path, "csv", roll=Rolling(max_bytes=1))
    writer = sink.open(_context())
    for i in range(3):
        writer.write(Batch(pa.record_batch({"i": [i]})))
    assert {path.suffix for path in tmp_path.iterdir()} == {".inprogress"}
    first = writer.prepare(1)
    writer.write(Batch(pa.record_batch({"i": [3]})))
    writer.close()
    sink.commit(first, _context())
    assert sorted(row["i"] for row in read_rows(FileSource.of(tmp_path))) == [0, 1, 2]
    assert list(tmp_path.glob(".*")) == []


def test_few_files_are_open_at_a_time(tmp_path: Path) -> None:
    most = sink_module._MOST_OPEN_FILES
    sink = FileSink(tmp_path, "json", partition_by=["k"])
    writer = sink.open(_context())
    before = len(os.listdir("/proc/self/fd"))
    for start in (0, most, 0):
        values = range(start, start + most)
        writer.write(Batch(pa.record_batch({"k": values, "i": values})))
        assert len(os.listdir("/proc/self/fd")) - before <= most
    sink.commit(writer.prepare(1), _context())
    assert len(_files(tmp_path)) == 3 * most
    assert read_rows(FileSource.of(tmp_path / "k=7")) == [{"i": 7}, {"i": 7}]


@pytest.mark.parametrize(
    ("kind", "compression", "suffix"),
    [
        ("csv", "gzip", ".csv.gz"),
        ("json", "zstd", ".json.zst"),
        ("json", "bz2", ".json.bz2"),
        ("parquet", "snappy", ".parquet"),
        ("avro", "bz2", ".avro"),
        ("avro", "none", ".avro"),
    ],
)
def test_files_are_compressed(tmp_path: Path, kind: Any, compression: str, suffix: str) -> None:
    sink = FileSink(tmp_path, kind, compression=compression)
    _write(sink, *(Batch(pa.record_batch({"s": ["x" * 10_000, str(i)]})) for i in range(5)))
    (path,) = tmp_path.iterdir()
    assert path.name.endswith(suffix)
    assert compression == "none" or path.stat().st_size < 10_000
    assert [row["s"] for row in read_rows(FileSource.of(tmp_path))][1::2] == list("01234")


def test_files_are_named_as_asked(tmp_path: Path) -> None:
    (tmp_path / "visits-1.txt").write_text("old")
    (tmp_path / "part-1.txt").write_text("another's")
    sink = FileSink(tmp_path, "csv", mode="overwrite", compression="gzip", prefix="visits", suffix=".log")
    sink.check(None)
    sink.prepare()
    _write(sink, Batch(pa.record_batch({"i": [1]})))
    names = sorted(os.listdir(tmp_path))
    assert names[0] == "part-1.txt"
    assert names[1].startswith("visits-00000-")
    assert names[1].endswith(".log")
    assert gzip.decompress((tmp_path / names[1]).read_bytes()) == b'"i"\n1\n'


def test_overwrite_empties_the_folders_within(tmp_path: Path) -> None:
    sink = FileSink(tmp_path, "csv", mode="overwrite", partition_by=["k"])
    _write(sink, Batch(pa.record_batch({"k": [1, 2], "i": [1, 2]})))
    (tmp_path / "k=1" / "notes").write_text("mine")
    sink.prepare()
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["notes"]
    FileSink(tmp_path / "none", "csv", mode="overwrite").prepare()
