"""Reads sources as the engine does: through copies, at given parallelisms, from the start or from a position.

The source suite calls it. It checks what must hold for every batch (schema, row count, validity), waits where a reader
says so, and gives up on a reader that gives nothing for too long.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.engine.clock import Clock
from penstock.engine.connectors import ConnectorContext, Position, Source, SourceReader, Split, Wait
from penstock.testing.connector_suite.copies import copied
from penstock.testing.connector_suite.rules import ENDS, MAX_ROWS, POSITION, REWIND, SCHEMA, obeying, require


@dataclass(slots=True)
class Reading:
    """What one reader gave.

    Attributes:
        batches: in order.
        positions: as JSON text: the one before each batch, and the one behind the last.
        ended: whether it came to the end of its split.
    """

    schema: pa.Schema
    batches: list[pa.RecordBatch] = field(default_factory=list)
    positions: list[str] = field(default_factory=list)
    ended: bool = False

    @property
    def num_rows(self) -> int:
        return sum(batch.num_rows for batch in self.batches)

    def table(self, first: int = 0) -> pa.Table:
        """The rows from batch number `first` on."""
        return pa.Table.from_batches(self.batches[first:], self.schema)


@dataclass(frozen=True, slots=True)
class Subtask:
    """Who reads."""

    index: int = 0
    parallelism: int = 1


class SourceDriver:
    """One process of a job, which reads a source.

    Args:
        source: a copy of it is read.
        clock: what readers wait by.
        patience: seconds by that clock without a row, after which a reader is given up.
    """

    def __init__(self, source: Source, clock: Clock, patience: float) -> None:
        self.source = copied(source)
        self._clock = clock
        self._patience = patience

    def splits(self, parallelism: int) -> list[Split]:
        """The source's splits, where the job is planned for as many subtasks as the source allows up to that."""
        most = self.source.max_parallelism
        return [copied(split) for split in self.source.splits(parallelism if most is None else min(most, parallelism))]

    def context(self, subtask: Subtask = Subtask()) -> ConnectorContext:
        """What the engine tells a reader there."""
        return ConnectorContext("source", subtask.index, subtask.parallelism, self._clock, "connector-suite/source")

    def open(self, split: Split, position: str | None = None, subtask: Subtask = Subtask()) -> SourceReader:
        """A reader at the start of the split, or at a position from a checkpoint."""
        context = self.context(subtask)
        if position is None:
            return self.source.open(split, context)
        with obeying(REWIND, f"open_at() of split {split.split_id!r} at {position}"):
            return self.source.open_at(split, json.loads(position), context)

    def read(self, reader: SourceReader, max_rows: int, most: int | None = None) -> Reading:
        """Rows and positions up to the end of the split, or up to `most` rows."""
        reading = Reading(self.source.schema, positions=[position_text(reader)])
        while most is None or reading.num_rows < most:
            batch = self.next(reader, max_rows if most is None else min(max_rows, most - reading.num_rows))
            if batch is None:
                reading.ended = True
                break
            reading.batches.append(batch)
            reading.positions.append(position_text(reader))
        return reading

    def read_split(self, split: Split, max_rows: int, most: int | None = None, position: str | None = None) -> Reading:
        """The same by a reader of its own."""
        with contextlib.closing(self.open(split, position)) as reader:
            return self.read(reader, max_rows, most)

    def next(self, reader: SourceReader, max_rows: int) -> pa.RecordBatch | None:
        """The next batch with rows, waited for; None at the end of the split."""
        deadline = self._clock.monotonic() + self._patience
        while True:
            answer = reader.next_batch(max_rows)
            if answer is None:
                return None
            if isinstance(answer, pa.RecordBatch) and answer.num_rows:
                self._check(answer, max_rows)
                return answer
            now = self._clock.monotonic()
            self._require_rows(now < deadline)
            self._clock.wait_until(min(deadline, answer.until if isinstance(answer, Wait) else now + 0.001))

    def read_together(self, splits: Sequence[Split], max_rows: int, wanted: int) -> list[Reading]:
        """What each split of an unbounded source gives until there are `wanted` rows in all: all have their turn."""
        with contextlib.ExitStack() as stack:
            readers = [stack.enter_context(contextlib.closing(self.open(split))) for split in splits]
            readings = [Reading(self.source.schema, positions=[position_text(reader)]) for reader in readers]
            deadline = self._clock.monotonic() + self._patience
            while sum(reading.num_rows for reading in readings) < wanted:
                had_rows = [self._take_turn(*one, max_rows) for one in zip(readers, readings, strict=True)]
                if any(had_rows):
                    deadline = self._clock.monotonic() + self._patience
                    continue
                self._require_rows(self._clock.monotonic() < deadline)
                self._clock.wait_until(self._clock.monotonic() + 0.001)
            return readings

    def _take_turn(self, reader: SourceReader, reading: Reading, max_rows: int) -> bool:
        """Whether the reader gave rows."""
        if reading.ended:
            return False
        answer = reader.next_batch(max_rows)
        reading.ended = answer is None
        if not isinstance(answer, pa.RecordBatch) or not answer.num_rows:
            return False
        self._check(answer, max_rows)
        reading.batches.append(answer)
        reading.positions.append(position_text(reader))
        return True

    def _check(self, batch: pa.RecordBatch, max_rows: int) -> None:
        schema = self.source.schema
        require(batch.schema.equals(schema), SCHEMA, f"a batch has\n{batch.schema}\n  but `schema` is\n{schema}")
        with obeying(SCHEMA, "validating a batch"):
            batch.validate(full=True)
        require(batch.num_rows <= max_rows, MAX_ROWS, f"next_batch({max_rows}) gave {batch.num_rows} rows")

    def _require_rows(self, holds: bool) -> None:
        require(holds, ENDS, f"a reader gave neither a row nor its end for {self._patience} seconds")


def position_text(reader: SourceReader) -> str:
    """The reader's position as a checkpoint keeps it."""
    with obeying(POSITION, "position()"):
        position: Position = reader.position()
        text = json.dumps(position, sort_keys=True)
    require(isinstance(position, dict) or hasattr(position, "keys"), POSITION, f"position() gave {position!r}")
    back = json.loads(text)
    require(back == position, POSITION, f"position() gave {position!r}, which is {back!r} behind its way through JSON")
    return text
