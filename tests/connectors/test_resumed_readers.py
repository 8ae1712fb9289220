"""Positions of sources: whoever reads on from one gets the very rows that would have come."""

from __future__ import annotations

import bz2
import gzip
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.collection import CollectionSource
from penstock.connectors.datagen import DataGenSource, RandomInt, Sequence
from penstock.connectors.files import readers
from penstock.connectors.files.source import FileSource
from penstock.engine.clock import ManualClock
from penstock.engine.connectors import ConnectorContext, Position, Source, SourceReader, Wait, row_of, row_position
from penstock.engine.errors import RestoreError
from tests.draws import drawn

ROWS = 57
CONTEXT = ConnectorContext("source", 0, 1, ManualClock())


def rows_of(reader: SourceReader, max_rows: int = 10) -> list[object]:
    """All rows that the reader gives from here on."""
    rows: list[object] = []
    while (batch := reader.next_batch(max_rows)) is not None:
        assert not isinstance(batch, Wait)
        rows += batch.to_pylist()
    reader.close()
    return rows


def through_json(position: Position) -> Position:
    """As a checkpoint keeps it."""
    kept: Position = json.loads(json.dumps(position))
    return kept


def check_all_positions(source: Source, parallelism: int, max_rows: int) -> None:
    """At each position of each split, a new reader goes on as the old one would have."""
    for split in source.splits(parallelism):
        expected = rows_of(source.open(split, CONTEXT))
        reader = source.open(split, CONTEXT)
        read = 0
        while True:
            again = source.open_at(split, through_json(reader.position()), CONTEXT)
            assert rows_of(again) == expected[read:]
            batch = reader.next_batch(max_rows)
            if batch is None:
                break
            assert isinstance(batch, pa.RecordBatch)
            read += batch.num_rows
        reader.close()


def ids_of(source: Source, parallelism: int) -> list[str]:
    return [split.split_id for split in source.splits(parallelism)]


@given(max_rows=st.integers(1, 20), pieces=st.lists(st.integers(0, 9), min_size=1, max_size=6))
@settings(max_examples=drawn(20))
def test_a_collection_goes_on_at_any_row(max_rows: int, pieces: list[int]) -> None:
    tables = [pa.table({"n": pa.array(range(size), pa.int64())}) for size in pieces]
    source = CollectionSource.of(pa.concat_tables(tables))
    check_all_positions(source, 1, max_rows)
    check_all_positions(pickle.loads(pickle.dumps(source)), 1, max_rows)


@given(max_rows=st.integers(1, 20), parallelism=st.integers(1, 4))
@settings(max_examples=drawn(20))
def test_a_generator_goes_on_at_any_row(max_rows: int, parallelism: int) -> None:
    source = DataGenSource({"n": Sequence(), "r": RandomInt(0, 100)}, rows=ROWS)
    check_all_positions(source, parallelism, max_rows)


def test_a_generator_with_a_rate_goes_on_at_that_rate_from_now() -> None:
    clock = ManualClock()
    context = ConnectorContext("source", 0, 1, clock)
    source = DataGenSource({"n": Sequence()}, rate=100)
    clock.advance(1000.0)
    reader = source.open_at(source.splits(1)[0], {"row": 500}, context)
    given_now = reader.next_batch(1000)
    assert isinstance(given_now, pa.RecordBatch)
    assert given_now.column("n").to_pylist() == [500]
    assert isinstance(reader.next_batch(1000), Wait)
    clock.advance(0.1)
    later = reader.next_batch(1000)
    assert isinstance(later, pa.RecordBatch)
    assert later.column("n").to_pylist() == list(range(501, 511))


def write_csv(path: Path) -> None:
    text = "n,text\n" + "".join(f'{n},"line {n}\nand another"\n' for n in range(ROWS))
    path.write_bytes(compressor(path)(text.encode()))


def write_json(path: Path) -> None:
    text = "".join(f"{json.dumps({'n': n, 'text': 'x' * n})}\n{'' if n % 5 else ' '}\n" for n in range(ROWS))
    path.write_bytes(compressor(path)(text.encode()))


def write_parquet(path: Path) -> None:
    pq.write_table(pa.table({"n": range(ROWS), "text": [str(n) for n in range(ROWS)]}), path, row_group_size=20)


def compressor(path: Path) -> Callable[[bytes], bytes]:
    if path.suffix == ".gz":
        return lambda data: gzip.compress(data)
    return bz2.compress if path.suffix == ".bz2" else bytes


WRITERS = {
    "a.csv": write_csv,
    "a.csv.gz": write_csv,
    "a.json": write_json,
    "a.json.bz2": write_json,
    "a.parquet": write_parquet,
}


@pytest.mark.parametrize("name", WRITERS)
def test_files_go_on_at_any_row(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("csv_reader", "json_reader"):
        monkeypatch.setattr(f"penstock.connectors.files.{module}.BLOCK_BYTES", 200)
    assert readers.BLOCK_BYTES > 200
    WRITERS[name](tmp_path / name)
    source = FileSource.of(tmp_path / name, schema={"n": "int64", "text": "string"})
    check_all_positions(source, 1, max_rows=7)


def test_an_inner_position_of_a_parquet_file_is_one_of_its_row_group(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet")
    source = FileSource.of(tmp_path / "a.parquet")
    second = source.splits(4)[1]
    reader = source.open(second, CONTEXT)
    reader.next_batch(3)
    assert reader.position() == {"row": 3}
    assert rows_of(source.open_at(second, {"row": 19}, CONTEXT)) == [{"n": 39, "text": "39"}]


def test_splits_have_the_same_ids_each_time_the_program_is_built(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet")
    builds: list[Callable[[], Source]] = [
        lambda: CollectionSource.of([{"n": 1}]),
        lambda: DataGenSource({"n": Sequence()}, rows=5),
        lambda: FileSource.of(tmp_path / "a.parquet"),
    ]
    for build in builds:
        ids = ids_of(build(), 3)
        assert ids == ids_of(build(), 3)
        assert len(set(ids)) == len(ids)
        assert build().rewindable


def test_the_position_of_another_source_is_refused() -> None:
    assert row_of(row_position(7), "collection") == 7
    source = CollectionSource.of([{"n": 1}])
    for position in ({"offset": 7}, {"row": -1}, {"row": "7"}, {"row": True}):
        with pytest.raises(RestoreError, match=r"split 'collection'.*give the new source a uid of its own"):
            source.open_at(source.splits(1)[0], position, CONTEXT)
