"""A source of numbers for tests, which can resume where it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.engine.connectors import ConnectorContext, Position, Source, SourceReader, Split, SplitOrder
from tests.engine.helpers import numbers


@dataclass(frozen=True)
class NumbersSplit:
    """The numbers 0 to `rows` - 1."""

    split_id: str
    rows: int


class RewindableSource(Source):
    """Splits of numbers by their ids, read one after another."""

    def __init__(self, splits: Mapping[str, int], bounded: bool = True) -> None:
        self._splits = [NumbersSplit(split_id, rows) for split_id, rows in splits.items()]
        self._bounded = bounded

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("n", pa.int64())])

    @property
    def bounded(self) -> bool:
        return self._bounded

    @property
    def split_order(self) -> SplitOrder:
        return SplitOrder.SEQUENTIAL

    def splits(self, parallelism: int) -> Sequence[NumbersSplit]:
        return self._splits

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        return self.open_at(split, {"row": 0}, context)

    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        assert isinstance(split, NumbersSplit)
        row = position["row"]
        assert isinstance(row, int)
        return _NumbersReader(row, split.rows)

    def describe(self) -> str:
        return "numbers"


class _NumbersReader(SourceReader):
    def __init__(self, row: int, rows: int) -> None:
        self._row, self._rows = row, rows

    def next_batch(self, max_rows: int) -> pa.RecordBatch | None:
        values = range(self._row, min(self._rows, self._row + max_rows))
        self._row = values.stop
        return numbers(values).data if values else None

    def position(self) -> Position:
        return {"row": self._row}
