"""Reads sources to their end as the engine would, for the tests of this folder."""

from __future__ import annotations

import pyarrow as pa

from penstock.engine.clock import Clock, ManualClock
from penstock.engine.connectors import ConnectorContext, Source, Wait


def context(subtask: int = 0, parallelism: int = 1, clock: Clock | None = None) -> ConnectorContext:
    return ConnectorContext("test", subtask, parallelism, clock or ManualClock())


def read_batches(source: Source, max_rows: int = 65_536, parallelism: int = 1) -> list[pa.RecordBatch]:
    """All batches, split after split; each is checked against the source's schema and `max_rows`."""
    batches = []
    for split in source.splits(parallelism):
        reader = source.open(split, context(parallelism=parallelism))
        try:
            while (batch := reader.next_batch(max_rows)) is not None:
                assert not isinstance(batch, Wait)
                assert 0 < batch.num_rows <= max_rows
                assert batch.schema.equals(source.schema, check_metadata=True)
                batch.validate(full=True)
                batches.append(batch)
        finally:
            reader.close()
    return batches


def read_table(source: Source, max_rows: int = 65_536, parallelism: int = 1) -> pa.Table:
    return pa.Table.from_batches(read_batches(source, max_rows, parallelism), source.schema)


def read_rows(source: Source, max_rows: int = 65_536, parallelism: int = 1) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = read_table(source, max_rows, parallelism).to_pylist()
    return rows
