"""Question 10, sorting: TeraSort's records of 100 B, from Parquet files to others in order, beside PySpark or Flink.

The records are as gensort's: a random key of 10 B, and 90 B that tell the record's number. The output is judged as
valsort does it. Run by `perf/run.py terasort`.

Source: Chris Nyberg, "Sort Benchmark Data Generator and Output Validator" (www.ordinal.com/gensort.html).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from penstock import FileSink, FileSource, StreamEnvironment
from perf.batch_jobs import INPUT_FILES, BatchQuestion, in_turns
from perf.harness import BenchmarkError, Options, Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEY_BYTES: Final = 10
_RECORD_BYTES: Final = 100
_HEX: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_DIGITS: Final = 32
_FILLERS: Final = 12
"""Letters or digits behind the number, four times each."""
_Bytes = npt.NDArray[np.uint8]


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure the variants whose name contains `wanted`."""
    yield from in_turns([TeraSort()], options, wanted)


class TeraSort(BatchQuestion):
    """All records in the order of their keys."""

    name = "terasort"
    variant = "100 B records"
    row_bytes = _RECORD_BYTES

    def prepare(self, folder: Path, rows: int) -> None:
        draw = np.random.default_rng(7)
        for number, part in enumerate(np.array_split(np.arange(rows), INPUT_FILES)):
            pq.write_table(_table(records(draw, part)), folder / f"records-{number}.parquet")

    def ours(self, env: StreamEnvironment, given: Path, output: Path) -> None:
        env.from_source(FileSource.of(given)).sort("key").sink_to(FileSink(output, "parquet"))

    def plain(self, session: SparkSession, given: Path, output: Path) -> None:
        session.read.parquet(str(given)).orderBy("key").write.parquet(str(output))

    def check(self, given: Path, ours: Path, theirs: Path) -> None:
        expected = Summary.of(given)
        for name, folder in (("ours", ours), ("theirs", theirs)):
            found = Summary.of(folder)
            if found.disorder is not None:
                raise BenchmarkError(f"terasort: {name}: {found.disorder}")
            if (found.rows, found.checksum) != (expected.rows, expected.checksum) or not found.rows:
                raise BenchmarkError(
                    f"terasort: {name}: {found.rows} records with the checksum {found.checksum:x} came of "
                    f"{expected.rows} with {expected.checksum:x}"
                )


def records(draw: np.random.Generator, numbers: npt.NDArray[np.int64]) -> _Bytes:
    """The records with these numbers: a row of 100 bytes each."""
    made = np.empty((len(numbers), _RECORD_BYTES), np.uint8)
    made[:, :_KEY_BYTES] = draw.integers(0, 256, (len(numbers), _KEY_BYTES), np.uint8)
    made[:, 10:12] = np.frombuffer(b"\x00\x11", np.uint8)
    made[:, 12:44] = _HEX[0]
    for digit in range(16):
        made[:, 12 + _DIGITS - 1 - digit] = _HEX[numbers >> 4 * digit & 15]
    made[:, 44:48] = np.frombuffer(b"\x88\x99\xaa\xbb", np.uint8)
    made[:, 48:96] = np.repeat(_HEX[draw.integers(0, 16, (len(numbers), _FILLERS))], 4, axis=1)
    made[:, 96:] = np.frombuffer(b"\xcc\xdd\xee\xff", np.uint8)
    return made


def _table(made: _Bytes) -> pa.Table:
    key, payload = made[:, :_KEY_BYTES], made[:, _KEY_BYTES:]
    columns = [
        pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(part.shape[1]), len(part), [None, pa.py_buffer(np.ascontiguousarray(part))]
        ).cast(pa.binary())
        for part in (key, payload)
    ]
    return pa.Table.from_arrays(columns, names=["key", "payload"])


@dataclass(frozen=True, slots=True)
class Summary:
    """What valsort says of a folder of records.

    Args:
        rows: how many there are.
        checksum: the sum of the CRC-32 of all records, whatever their order.
        disorder: where a record comes that belongs before another, if there is one.
    """

    rows: int
    checksum: int
    disorder: str | None

    @classmethod
    def of(cls, folder: Path) -> Summary:
        """Read the files of a folder in the order of their names."""
        rows, checksum, disorder, last = 0, 0, None, b""
        for path in map(Path, sorted(ds.dataset(folder, format="parquet").files)):
            made = _records(pq.read_table(path, columns=["key", "payload"]))
            if not len(made):
                continue
            rows += len(made)
            checksum += sum(map(zlib.crc32, made))
            place = _first_disorder(made[:, :_KEY_BYTES])
            if place is not None:
                disorder = disorder or f"record {place} of {path.name} belongs before the one before it"
            if made[0, :_KEY_BYTES].tobytes() < last:
                disorder = disorder or f"{path.name} begins before the end of the file before it"
            last = made[-1, :_KEY_BYTES].tobytes()
        return cls(rows, checksum, disorder)


def _records(table: pa.Table) -> _Bytes:
    """The records of a table; each is 100 bytes, in a row."""
    widths = (_KEY_BYTES, _RECORD_BYTES - _KEY_BYTES)
    parts = [
        np.frombuffer(table.column(name).cast(pa.binary(width)).combine_chunks().buffers()[1], np.uint8)
        for name, width in zip(("key", "payload"), widths, strict=True)
    ]
    return np.hstack([part.reshape(-1, width)[: len(table)] for part, width in zip(parts, widths, strict=True)])


def _first_disorder(keys: _Bytes) -> int | None:
    """The first record that belongs before the one before it."""
    high = np.ascontiguousarray(keys[:, :8]).view(">u8")[:, 0]
    low = np.ascontiguousarray(keys[:, 8:]).view(">u2")[:, 0]
    falls = (high[1:] < high[:-1]) | ((high[1:] == high[:-1]) & (low[1:] < low[:-1]))
    return int(np.argmax(falls)) + 1 if falls.any() else None
