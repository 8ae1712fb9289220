"""A disk without room: the error names the file, nothing is left behind, and the writer can be closed.

The limit of the process on the size of its files stands for the disk: it fails the same calls, with another number.
"""

from __future__ import annotations

import contextlib
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pytest

from penstock.connectors.files.sink import FileSink
from penstock.connectors.lakes import DeltaSink
from penstock.engine.connectors import TransactionalSink
from penstock.engine.elements import Batch
from penstock.engine.errors import WriteError
from tests.connectors.lakes.test_iceberg import Lake
from tests.connectors.reading import context

COLUMNS = pa.schema({"i": pa.int64()})


@contextlib.contextmanager
def room_for(length: int) -> Iterator[None]:
    """No file can be longer."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def _delta(folder: Path) -> TransactionalSink:
    deltalake.DeltaTable.create(folder, deltalake.Schema.from_arrow(COLUMNS))
    return DeltaSink(folder)


def _iceberg(folder: Path) -> TransactionalSink:
    lake = Lake(folder)
    sink = lake.sink(columns=COLUMNS)
    lake.catalog.close()
    return sink


SINKS: dict[str, Callable[[Path], TransactionalSink]] = {
    **{kind: lambda folder, kind=kind: FileSink(folder, kind) for kind in ("csv", "json", "parquet", "avro")},  # type: ignore[misc]
    "gzip": lambda folder: FileSink(folder, "csv", compression="gzip"),
    "delta": _delta,
    "iceberg": _iceberg,
}


@pytest.mark.parametrize("kind", SINKS)
def test_a_full_disk_is_named_and_what_was_written_is_removed(tmp_path: Path, kind: str) -> None:
    sink = SINKS[kind](tmp_path)
    sink.check(COLUMNS)
    sink.prepare()
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    numbers: Any = np.random.default_rng(0).integers(0, 2**60, 100_000)
    writer = sink.open(context())
    with room_for(100_000), pytest.raises(WriteError, match=r"'test', subtask 0: .*cannot be written: .*too large$"):  # noqa: PT012
        writer.write(Batch(pa.record_batch({"i": numbers})))
        writer.prepare(1)
    writer.close()
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before
