"""What the general window operator emits: the rows of functions, or the columns of named aggregates.

The operator tells an emitter of each window that fires; `flush` makes one batch of what came together. It guarantees
that rows are emitted as they were when the window fired, in the order of firing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.engine.aggregates.accumulators import plain_type
from penstock.engine.aggregates.scalar_forms import Accumulators
from penstock.engine.elements import Batch, table_to_record_batch
from penstock.engine.functions import ProcessWindowFunction
from penstock.engine.operators.base import Collector, SchemaOrUnknown
from penstock.engine.operators.functions.row_results import USUAL, checked_rows
from penstock.engine.operators.windows.window_aggregate import WINDOW_END, WINDOW_START, WINDOW_TYPE
from penstock.engine.operators.windows.window_context import FiringContext
from penstock.engine.operators.windows.window_folds import Fold, NamedFold
from penstock.engine.row_buffer import owned_row
from penstock.engine.rows import RowConverter
from penstock.engine.state.backend import Key
from penstock.engine.windows.windows import TimeWindow


class WindowEmitter(ABC):
    """Takes the windows that fire."""

    @abstractmethod
    def emit(self, key: Key, window: TimeWindow, contents: Any, timestamp: int | None) -> None:
        """A window has fired.

        Args:
            key, window: which one.
            contents: all its rows, or the accumulator of a fold.
            timestamp: of the results, or None on a stream without event time.
        """

    @abstractmethod
    def flush(self, out: Collector) -> None:
        """Emit what came since the last call, as one batch."""


class RowEmitter(WindowEmitter):
    """Emits the rows that a process function makes of a window, or the single row that a fold does.

    Args:
        schema: the declared columns of the rows, or None to infer them.
        where: operator and subtask, for messages.
        timed: whether the rows carry timestamps.
        fold: makes the result of an accumulator, or None where contents are rows.
        function: called with the rows, or with that result; None emits the result itself.
        context: given to the function.
    """

    def __init__(
        self,
        schema: SchemaOrUnknown,
        where: str,
        timed: bool,
        fold: Fold | None,
        function: ProcessWindowFunction | None,
        context: FiringContext,
    ) -> None:
        self._converter = RowConverter(schema, where)
        self._where = where
        self._timed = timed
        self._fold = fold
        self._function = function
        self._context = context
        self._rows: list[Any] = []
        self._times: list[int | None] = []

    def emit(self, key: Key, window: TimeWindow, contents: Any, timestamp: int | None) -> None:
        result = contents if self._fold is None else self._fold.result(contents)
        if self._function is None:
            self._rows.append(owned_row(result))
        else:
            elements = result if self._fold is None else [owned_row(result)]
            self._context.timestamp = timestamp
            made = self._function.process(None if key == () else key, self._context, elements)
            if made is not None:
                rows = made if type(made) in USUAL else checked_rows(made, "process", self._where)
                self._rows.extend(map(owned_row, rows))
        self._times.extend([timestamp] * (len(self._rows) - len(self._times)))

    def flush(self, out: Collector) -> None:
        if not self._rows:
            return
        rows, self._rows = self._rows, []
        times, self._times = self._times, []
        out.collect(Batch(self._converter.convert(rows), pa.array(times, pa.int64()) if self._timed else None))


class AggregateEmitter(WindowEmitter):
    """Emits key columns, window bounds (unless windows have none), and a column for each named aggregate.

    Args:
        keys: names of the key columns.
        fold: the aggregates.
        bounded: whether windows have a start and an end.
        timed: whether the rows carry timestamps.
    """

    def __init__(self, keys: Sequence[str], fold: NamedFold, bounded: bool, timed: bool) -> None:
        self._keys = tuple(keys)
        self._fold = fold
        self._bounded = bounded
        self._timed = timed
        self._fired: list[tuple[Key, TimeWindow, Accumulators, int | None]] = []

    def emit(self, key: Key, window: TimeWindow, contents: Accumulators, timestamp: int | None) -> None:
        # The window may live on, and its accumulators, lists among them, are changed in place.
        own = {name: value[:] if type(value) is list else value for name, value in contents.items()}
        self._fired.append((key, window, own, timestamp))

    def flush(self, out: Collector) -> None:
        if not self._fired:
            return
        fired, self._fired = self._fired, []
        keys, windows, accumulators, times = zip(*fired, strict=True)
        columns: list[tuple[pa.Field, pa.Array]] = self._key_columns(keys)
        if self._bounded:
            bounds = [window.start for window in windows], [window.end for window in windows]
            for name, values in zip((WINDOW_START, WINDOW_END), bounds, strict=True):
                columns.append((pa.field(name, WINDOW_TYPE, nullable=False), pa.array(values, WINDOW_TYPE)))
        results = table_to_record_batch(self._fold.scalar.table(accumulators))
        columns.extend(zip(results.schema, results.columns, strict=True))
        schema = pa.schema([field for field, _ in columns])
        data = pa.RecordBatch.from_arrays([array for _, array in columns], schema=schema)
        out.collect(Batch(data, pa.array(times, pa.int64()) if self._timed else None))

    def _key_columns(self, keys: Sequence[Key]) -> list[tuple[pa.Field, pa.Array]]:
        assert self._fold.schema is not None, "the fold is bound"
        tuples = [(key,) for key in keys] if len(self._keys) == 1 else keys
        columns = []
        for index, name in enumerate(self._keys):
            given = self._fold.schema.field(name)
            field = pa.field(name, plain_type(given.type), given.nullable)
            columns.append((field, pa.array([values[index] for values in tuples], field.type)))
        return columns
