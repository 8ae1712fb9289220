from __future__ import annotations

import datetime
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform, IdentityTransform, Transform

from penstock.connectors.lakes import IcebergSink
from penstock.engine.connectors import Committable
from penstock.engine.elements import Batch
from penstock.engine.errors import CheckpointCorruptError, ColumnTypeError, ConfigurationError, MissingColumnError
from tests.connectors.reading import context

COLUMNS = pa.schema({"i": pa.int64(), "at": pa.timestamp("us"), "day": pa.date32(), "name": pa.string()})
AT = datetime.datetime(2024, 1, 2, 3, 4, 5)


class Lake:
    """A catalog in a file, and a table of it."""

    def __init__(self, folder: Path) -> None:
        self.properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        }
        self.catalog = load_catalog("lake", **self.properties)
        self.catalog.create_namespace("db")

    def sink(self, *partition_by: tuple[str, Transform[Any, Any]], columns: pa.Schema = COLUMNS) -> IcebergSink:
        table = self.catalog.create_table("db.t", columns)
        if partition_by:
            with table.update_spec() as update:
                for name, transform in partition_by:
                    update.add_field(name, transform, f"{name}_part")
        return IcebergSink("db.t", "lake", self.properties)

    @property
    def table(self) -> Table:
        return self.catalog.load_table("db.t")

    def seen(self) -> list[int]:
        return sorted(self.table.scan().to_arrow()["i"].to_pylist())


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path)
    yield lake
    lake.catalog.close()


def _batch(*values: int, **columns: Any) -> Batch:
    count = len(values)
    given = {
        "i": pa.array(values, pa.int64()),
        "at": pa.array([AT] * count, pa.timestamp("ms")),
        "day": pa.array([AT.date()] * count),
        "name": pa.array(["n"] * count),
    }
    return Batch(pa.record_batch(given | columns))


def _prepared(sink: IcebergSink, *epochs: Sequence[int]) -> list[Committable]:
    writer = sink.open(context())
    committables: list[Committable] = []
    for checkpoint, values in enumerate(epochs, 1):
        writer.write(_batch(*values))
        committables += writer.prepare(checkpoint)
    writer.close()
    return committables


def test_rows_are_seen_when_they_are_committed_and_once(lake: Lake) -> None:
    sink = lake.sink()
    first, second = _prepared(sink, [1, 2], [3])
    assert lake.seen() == []
    sink.commit([first], context())
    assert lake.seen() == [1, 2]
    for _ in range(2):
        sink.commit([first, second], context(1, 2))
        assert lake.seen() == [1, 2, 3]
    summaries = [snapshot.summary for snapshot in lake.table.snapshots()]
    key = f"penstock.checkpoint.{first.writer}"
    assert [summary[key] for summary in summaries if summary] == ["1", "2"]


def test_rows_that_were_rewritten_are_not_added_again(lake: Lake) -> None:
    sink = lake.sink()
    committables = _prepared(sink, [1], [2])
    sink.commit(committables, context())
    lake.table.overwrite(lake.table.scan().to_arrow())
    sink.commit(committables, context())
    assert lake.seen() == [1, 2]


def test_rows_go_to_their_partitions(lake: Lake) -> None:
    sink = lake.sink(("name", IdentityTransform()), ("at", HourTransform()), ("day", DayTransform()))
    moments = [AT, None, datetime.datetime(1969, 12, 31, 23, 59, 59), AT.replace(minute=59), AT]
    names = ["a/b =%20é" * 40, None, "", "x", "x"]
    batch = _batch(1, 2, 3, 4, 5, name=names, at=pa.array(moments, pa.timestamp("ms")))
    sink.check(batch.data.schema)
    writer = sink.open(context())
    writer.write(batch)
    sink.commit(writer.prepare(1), context())
    writer.close()
    table = lake.table
    files = list(table.scan().plan_files())
    assert len(files) == 4
    rows = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["i"])
    assert rows == batch.data.to_pylist()
    assert table.scan(row_filter="name = 'x'").to_arrow()["i"].to_pylist() == [4, 5]
    assert table.scan(row_filter="at < '1970-01-01T00:00:00'").to_arrow()["i"].to_pylist() == [3]


def test_two_that_commit_the_same_rows_at_once_add_them_once(lake: Lake) -> None:
    sink = lake.sink()
    committables = _prepared(sink, [1], [2])
    other = _prepared(sink, [3])
    threads = [
        threading.Thread(target=sink.commit, args=(part, context())) for part in (committables, committables, other)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lake.seen() == [1, 2, 3]


def test_a_rival_that_commits_between_look_and_commit_is_noticed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = lake.sink()
    committables = _prepared(sink, [1])
    add_files = Table.transaction
    rivals = [committables]

    def transaction(self: Table) -> Any:
        if rivals:
            sink.commit(rivals.pop(), context())
        return add_files(self)

    monkeypatch.setattr(Table, "transaction", transaction)
    sink.commit(committables, context())
    assert lake.seen() == [1]


def test_what_was_not_prepared_is_removed(lake: Lake, tmp_path: Path) -> None:
    writer = lake.sink().open(context())
    writer.write(_batch(1))
    assert list(tmp_path.rglob("*.parquet"))
    writer.close()
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_data_file_that_is_gone_is_named(lake: Lake, tmp_path: Path) -> None:
    sink = lake.sink()
    committables = _prepared(sink, [1])
    (path,) = tmp_path.rglob("*.parquet")
    path.unlink()
    with pytest.raises(CheckpointCorruptError, match=f"'test', subtask 0: Iceberg sink 'db.t': .*{path.name}"):
        sink.commit(committables, context())
    assert lake.seen() == []


def test_what_does_not_fit_is_refused(lake: Lake) -> None:
    sink = lake.sink(("i", BucketTransform(4)))
    with pytest.raises(ConfigurationError, match=r"partitioned by bucket\[4\] of field 'i_part'"):
        sink.check(None)
    with pytest.raises(ConfigurationError, match="catalog 'lake' has no such table"):
        IcebergSink("db.none", "lake", lake.properties).check(None)
    wrong = lake.properties | {"type": "nonsense", "token": "hush-hush"}
    with pytest.raises(ConfigurationError, match="catalog 'lake' cannot be opened") as caught:
        IcebergSink("db.none", "lake", wrong).check(None)
    assert "hush" not in str(caught.value)
    assert "hush" not in repr(IcebergSink("db.none", "lake", wrong))
    with pytest.raises(ConfigurationError, match=r"'db.none': catalog is the name .* goes into properties="):
        IcebergSink("db.none", lake.properties)  # type: ignore[arg-type]


def test_columns_that_do_not_fit_are_refused(lake: Lake) -> None:
    sink = lake.sink()
    sink.check(pa.schema({"i": pa.int32(), "at": pa.timestamp("ns")}))
    with pytest.raises(MissingColumnError, match=r"'nam'.*did you mean 'name'"):
        sink.check(pa.schema({"nam": pa.string()}))
    with pytest.raises(ColumnTypeError, match="'i' is string, and int64 in the table"):
        sink.check(pa.schema({"i": pa.string()}))
