"""Sources whose rows pass operators as they are read: splits and positions stay those of what is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.engine.clock import ManualClock
from penstock.engine.connectors import ConnectorContext, Position, Source, SourceReader, Split, SplitOrder
from penstock.tables.catalog.connectors import Stage
from penstock.tables.expressions import Constant, FunctionCall, InputColumn
from penstock.tables.lower.calc import CalcSpec
from penstock.tables.lower.staged_source import StagedSource
from penstock.tables.types import BOOLEAN, INT

_SCHEMA = pa.schema([("n", pa.int32())])


@dataclass(frozen=True)
class _Part:
    split_id: str


class _Reader(SourceReader):
    def __init__(self, row: int) -> None:
        self._row = row

    def next_batch(self, max_rows: int) -> pa.RecordBatch | None:
        if self._row == 6:
            return None
        first, self._row = self._row, min(self._row + max_rows, 6)
        return pa.RecordBatch.from_pydict({"n": range(first, self._row)}, _SCHEMA)

    def position(self) -> Position:
        return {"row": self._row}


class _Log(Source):
    schema = _SCHEMA
    split_order = SplitOrder.INTERLEAVED

    def splits(self, parallelism: int) -> Sequence[Split]:
        return [_Part("a"), _Part("b")]

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        return _Reader(0)

    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        return _Reader(int(str(position["row"])))

    def describe(self) -> str:
        return "log"


def test_rows_pass_the_stages_and_are_read_on_from_where_the_reader_was() -> None:
    is_odd = FunctionCall(
        BOOLEAN, "=", (FunctionCall(INT, "%", (InputColumn(INT, 0), Constant(INT, 2))), Constant(INT, 1))
    )
    renamed = pa.schema([("odd", pa.int32())])
    source = StagedSource(_Log(), (Stage(CalcSpec(is_odd, (InputColumn(INT, 0),), renamed, "UTC"), renamed),))
    context = ConnectorContext("log", 0, 1, ManualClock(0))
    assert source.schema == renamed
    assert source.rewindable
    assert source.split_order is SplitOrder.INTERLEAVED
    first, second = source.splits(1)
    reader, given = source.open(first, context), []
    for _ in range(3):
        batch = reader.next_batch(1)
        assert isinstance(batch, pa.RecordBatch)
        assert batch.schema == renamed
        given += batch.column("odd").to_pylist()
    assert given == [1]
    resumed = source.open_at(second, reader.position(), context)
    batch = resumed.next_batch(10)
    assert isinstance(batch, pa.RecordBatch)
    assert batch.to_pylist() == [{"odd": 3}, {"odd": 5}]
    assert resumed.next_batch(10) is None
