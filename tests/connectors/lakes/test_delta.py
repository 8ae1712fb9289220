from __future__ import annotations

import datetime
import secrets
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import deltalake
import obstore
import pyarrow as pa
import pytest

from penstock.connectors.files.object_store import locate
from penstock.connectors.lakes import DeltaSink
from penstock.engine.connectors import Committable
from penstock.engine.elements import Batch
from penstock.engine.errors import (
    CheckpointCorruptError,
    ColumnTypeError,
    ConfigurationError,
    MissingColumnError,
    RecordError,
)
from penstock.testing.services import S3
from tests.connectors.reading import context

COLUMNS = pa.schema({"i": pa.int64(), "day": pa.date32(), "name": pa.string()})
DAY = datetime.date(2024, 1, 2)


def _table(folder: Path, partition_by: Sequence[str] = (), columns: pa.Schema = COLUMNS) -> DeltaSink:
    path = folder / "table"
    deltalake.DeltaTable.create(path, deltalake.Schema.from_arrow(columns), partition_by=list(partition_by))
    return DeltaSink(path)


def _batch(*values: int, **columns: Any) -> Batch:
    given = {"i": pa.array(values, pa.int64()), "day": pa.array([DAY] * len(values)), "name": ["n"] * len(values)}
    return Batch(pa.record_batch(given | columns))


def _rows(sink: DeltaSink) -> list[dict[str, Any]]:
    table = deltalake.DeltaTable(sink.table).to_pyarrow_table()
    return sorted(table.to_pylist(), key=lambda row: row["i"])


def _seen(sink: DeltaSink) -> list[int]:
    return [row["i"] for row in _rows(sink)]


def _prepared(sink: DeltaSink, *epochs: Sequence[int]) -> list[Committable]:
    writer = sink.open(context())
    committables: list[Committable] = []
    for checkpoint, values in enumerate(epochs, 1):
        writer.write(_batch(*values))
        committables += writer.prepare(checkpoint)
    writer.close()
    return committables


def test_rows_are_seen_when_they_are_committed_and_once(tmp_path: Path) -> None:
    sink = _table(tmp_path)
    first, second = _prepared(sink, [1, 2], [3])
    assert _seen(sink) == []
    sink.commit([first], context())
    assert _seen(sink) == [1, 2]
    for _ in range(2):
        sink.commit([first, second], context(1, 2))
        assert _seen(sink) == [1, 2, 3]
    assert deltalake.DeltaTable(sink.table).version() == 2
    assert deltalake.DeltaTable(sink.table).history(1)[0]["penstock.checkpoint"] == "2"


def test_rows_that_were_rewritten_are_not_added_again(tmp_path: Path) -> None:
    sink = _table(tmp_path)
    committables = _prepared(sink, [1], [2])
    sink.commit(committables, context())
    deltalake.DeltaTable(sink.table).optimize.compact()
    sink.commit(committables, context())
    assert _seen(sink) == [1, 2]


def test_rows_go_to_their_partitions(tmp_path: Path) -> None:
    moments = [datetime.datetime(2024, 1, 2, 3, 4, 5, 6), None, datetime.datetime(1969, 12, 31)]
    columns = pa.schema({"i": pa.int64(), "day": pa.date32(), "name": pa.string(), "at": pa.timestamp("us")})
    sink = _table(tmp_path, ["name", "day", "at"], columns)
    names = ["a/b =%20é", None, ""]
    batch = _batch(1, 2, 3, name=names, day=pa.array([DAY, None, DAY]), at=pa.array(moments, pa.timestamp("ns")))
    sink.check(batch.data.schema)
    writer = sink.open(context())
    writer.write(batch)
    sink.commit(writer.prepare(1), context())
    writer.close()
    table = deltalake.DeltaTable(sink.table)
    assert len(table.file_uris()) == 3
    # An empty text and null are the same partition value in Delta.
    expected = [row | {"name": row["name"] or None} for row in batch.data.to_pylist()]
    assert [{**row, "name": row["name"] or None} for row in _rows(sink)] == expected


def test_a_time_that_a_partition_is_of_says_that_it_is_utc(tmp_path: Path) -> None:
    moments = [datetime.datetime(2024, 1, 2, 3, 4, 5, 6, datetime.timezone.utc), None]
    sink = _table(tmp_path, ["at"], pa.schema({"i": pa.int64(), "at": pa.timestamp("us", "UTC")}))
    rows = pa.record_batch({"i": [1, 2], "at": pa.array(moments, pa.timestamp("ns", "Europe/Paris"))})
    writer = sink.open(context())
    writer.write(Batch(rows))
    sink.commit(writer.prepare(1), context())
    writer.close()
    assert _rows(sink) == [{"i": 1, "at": moments[0]}, {"i": 2, "at": None}]
    # Spark takes a text without a zone for a time of its session's.
    log = (tmp_path / "table" / "_delta_log" / f"{1:020}.json").read_text()
    assert '"at":"2024-01-02T03:04:05.000006Z"' in log


@pytest.mark.parametrize(
    ("said", "taken"),
    [("100", 1), ("1k", 1), ("1kb", 1), ("100b", 1), ("100mb", 0), ("1 GiB", 0), ("0", 0), ("large", 0), ("1.5g", 0)],
)
def test_files_are_of_the_size_that_the_table_says(
    tmp_path: Path, said: str, taken: int, caplog: pytest.LogCaptureFixture
) -> None:
    sink = _table(tmp_path)
    deltalake.DeltaTable(sink.table).alter.set_table_properties(
        {"delta.targetFileSize": said}, raise_if_not_exists=False
    )
    writer = sink.open(context())
    for _ in range(3):
        writer.write(_batch(*range(20_000), name=[str(n) * 9 for n in range(20_000)]))
    (committable,) = writer.prepare(1)
    writer.close()
    assert (committable.data.num_rows > 1) == bool(taken)
    warned = [record.getMessage() for record in caplog.records]
    assert bool(warned) == (said in {"0", "large", "1.5g"})
    assert all(repr(said) in text and "512 MiB" in text for text in warned)


def test_an_empty_text_is_no_partition_where_the_table_takes_no_nulls(tmp_path: Path) -> None:
    columns = pa.schema([("i", pa.int64()), ("day", pa.date32()), pa.field("name", pa.string(), nullable=False)])
    writer = _table(tmp_path, ["name"], columns).open(context())
    with pytest.raises(RecordError, match="partition column 'name' is an empty text in a row, which is null for Delta"):
        writer.write(_batch(1, 2, name=["a", ""]))
    writer.close()


def test_two_that_commit_the_same_rows_at_once_add_them_once(tmp_path: Path) -> None:
    sink = _table(tmp_path)
    committables = _prepared(sink, [1], [2])
    others = [_prepared(sink, [n]) for n in (3, 4)]
    both = [
        threading.Thread(target=sink.commit, args=(part, context())) for part in [committables, committables, *others]
    ]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert _seen(sink) == [1, 2, 3, 4]


def test_a_rival_that_commits_between_look_and_commit_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = _table(tmp_path)
    committables = _prepared(sink, [1])
    stale = deltalake.DeltaTable(sink.table)
    sink.commit(committables, context())
    tables = [stale]
    load = DeltaSink._load
    monkeypatch.setattr(DeltaSink, "_load", lambda self: tables.pop() if tables else load(self))
    sink.commit(committables, context())
    assert _seen(sink) == [1]


def test_a_table_in_a_bucket(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    bucket = f"delta-{secrets.token_hex(6)}"
    s3.create_bucket(bucket)
    url = f"s3://{bucket}/lake/table"
    deltalake.DeltaTable.create(url, deltalake.Schema.from_arrow(COLUMNS))
    sink = DeltaSink(url)
    sink.check(COLUMNS)
    committables = _prepared(sink, [1], [2])
    for _ in range(2):
        sink.commit(committables, context())
        assert _seen(sink) == [1, 2]
    writer = sink.open(context())
    writer.write(_batch(1))
    writer.close()
    store, _ = locate(url)
    keys = [entry["path"] for page in obstore.list(store, "lake/table/") for entry in page]
    assert len([key for key in keys if key.endswith(".parquet")]) == 2


def test_what_was_not_prepared_is_removed(tmp_path: Path) -> None:
    sink = _table(tmp_path)
    writer = sink.open(context())
    writer.write(_batch(1))
    writer.close()
    assert list((tmp_path / "table").glob("*.parquet")) == []


def test_a_data_file_that_is_gone_is_named(tmp_path: Path) -> None:
    sink = _table(tmp_path)
    committables = _prepared(sink, [1])
    (path,) = (tmp_path / "table").glob("*.parquet")
    path.unlink()
    with pytest.raises(CheckpointCorruptError, match=f"'test', subtask 0: Delta sink.*{path.name} is gone"):
        sink.commit(committables, context())
    assert _seen(sink) == []


def test_columns_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    sink = _table(tmp_path)
    sink.check(pa.schema({"i": pa.int32()}))
    with pytest.raises(MissingColumnError, match=r"'nam'.*did you mean 'name'"):
        sink.check(pa.schema({"nam": pa.string()}))
    with pytest.raises(ColumnTypeError, match="'i' is string, and int64 in the table"):
        sink.check(pa.schema({"i": pa.string()}))
    with pytest.raises(ConfigurationError, match="no such table; create it"):
        DeltaSink(tmp_path / "none").check(None)


def test_a_table_with_rules_is_refused(tmp_path: Path) -> None:
    sink = _table(tmp_path)
    deltalake.DeltaTable(sink.table).alter.add_constraint({"positive": "i > 0"})
    with pytest.raises(ConfigurationError, match=r"rules for its rows \(delta\.constraints\.positive\)"):
        sink.check(None)
