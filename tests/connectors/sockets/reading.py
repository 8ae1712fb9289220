"""Reads live sources as the engine would, for the tests of sockets, WebSockets and HTTP."""

from __future__ import annotations

from typing import Any

from penstock.engine.clock import SystemClock
from penstock.engine.connectors import ConnectorContext, Source, SourceReader, Wait


def open_reader(source: Source) -> SourceReader:
    (split,) = source.splits(3)
    return source.open(split, ConnectorContext("read", 0, 1, SystemClock()))


def read(reader: SourceReader, most: int | None = None, max_rows: int = 100) -> list[dict[str, Any]]:
    """The rows up to the end, or the first `most` and what came with them; closes the reader at the end."""
    clock, rows = SystemClock(), list[dict[str, Any]]()
    while most is None or len(rows) < most:
        batch = reader.next_batch(max_rows)
        if batch is None:
            reader.close()
            break
        if isinstance(batch, Wait):
            clock.wait_until(batch.until)
            continue
        assert 0 < batch.num_rows <= max_rows
        rows += batch.to_pylist()
    return rows
