"""The size of an Arrow file is known before it is read, and one that would fill the memory is refused."""

from __future__ import annotations

import io
import random
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest

from penstock.engine.checkpointing.handles import FileHandle, SegmentHandle
from penstock.engine.elements import Batch
from penstock.engine.errors import CheckpointCorruptError
from penstock.savepoints.arrow_sizes import bytes_of_stream, rows_and_bytes
from penstock.savepoints.segments import decode_batches, decode_segment, decode_table, encode_batches

FILE = FileHandle("shared/x.arrow", 1, "0" * 64)
TABLE = pa.table(
    {
        "n": pa.array(range(10_000)),
        "s": pa.array([None, "x"] * 5_000),
        "d": pa.array(["p", "q"] * 5_000).dictionary_encode(),
        "l": pa.array([[1, 2], None] * 5_000),
        "z": pa.nulls(10_000),
    }
)


def file_of(table: pa.Table, compression: Literal["lz4", "zstd"] | None = None, rows: int = 3_000) -> pa.Buffer:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)
    return pa.py_buffer(sink.getvalue())


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_the_size_is_that_of_the_table(compression: Literal["lz4", "zstd"] | None) -> None:
    rows, size = rows_and_bytes(file_of(TABLE, compression))
    assert rows == TABLE.num_rows
    assert TABLE.nbytes <= size <= TABLE.nbytes + 4_000
    table = decode_table(file_of(TABLE, compression), FILE, "file:///x")
    assert table.equals(TABLE)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_file_that_would_fill_the_memory_is_refused_before_it_does(compression: Literal["lz4", "zstd"]) -> None:
    zeros = pa.table({"n": pa.array([0]).take(pa.array(np.zeros(8_000_000, np.int64)))})
    bomb = file_of(zeros, compression, rows=8_000_000)
    assert bomb.size < 400_000
    before = pa.total_allocated_bytes()
    with pytest.raises(CheckpointCorruptError, match=r"with \d+ bytes, it would take 64\d+ of memory"):
        decode_table(bomb, FILE, "file:///x")
    assert pa.total_allocated_bytes() <= before


def test_streams_are_measured_as_well() -> None:
    batches = [Batch(batch) for batch in TABLE.to_batches(max_chunksize=3_000)]
    data = encode_batches(batches)
    assert bytes_of_stream(data) >= TABLE.nbytes
    assert sum(batch.num_rows for batch in decode_batches(data, FILE, "file:///x")) == TABLE.num_rows


def test_a_segment_has_the_rows_that_its_manifest_says() -> None:
    data = file_of(TABLE)
    assert decode_segment(data, SegmentHandle(FILE, 10_000), "file:///x").num_rows == 10_000
    with pytest.raises(CheckpointCorruptError, match="has 10000 rows, and its manifest says 9999"):
        decode_segment(data, SegmentHandle(FILE, 9_999), "file:///x")


def test_a_file_of_any_bytes_is_an_error_and_nothing_else() -> None:
    chance, good = random.Random(7), file_of(TABLE.slice(0, 50), "zstd").to_pybytes()
    for _ in range(400):
        changed = bytearray(good)
        for _ in range(chance.randrange(1, 8)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        try:
            rows_and_bytes(pa.py_buffer(bytes(changed[: chance.randrange(20, len(changed) + 1)])))
        except ValueError:
            continue
