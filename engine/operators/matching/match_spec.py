"""What the operator of `KeyedStream.match` is told: the spec in the job graph, and what its finders need of it.

The API makes the spec. Which finder runs a pattern is decided here, by the pattern and the job's settings alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from penstock.engine.functions import OutputTag
from penstock.engine.operators.base import Collector, SchemaOrUnknown
from penstock.engine.operators.join_columns import plain_schema
from penstock.engine.operators.matching.waiting_rows import TimedRows
from penstock.engine.operators.windows.window_folds import row_struct
from penstock.engine.patterns.automaton import CompiledPattern
from penstock.engine.patterns.functions import PatternProcessFunction, SelectFunction
from penstock.engine.patterns.limits import NO_LIMITS, MatchLimits
from penstock.engine.patterns.machine import fits
from penstock.engine.state.capture import CaptureRequest, OperatorCapture
from penstock.engine.state.snapshot import OperatorSnapshot

DROPPED: Final = "droppedPartialMatches"
"""The counter of partial matches that limits have ended."""


class Finder(Protocol):
    """Finds the pattern in rows that are due, and holds the partial matches."""

    def bind(self, schema: pa.Schema) -> None:
        """Learn the types of the keys; called with the columns before the first rows."""
        ...

    def find(self, due: TimedRows | None, until: int | None, out: Collector) -> None:
        """Take rows, and move time on.

        Args:
            due: the rows.
            until: the time to come to behind them; None to stay at the last row's.
            out: gets the results.
        """
        ...

    @property
    def next_processing_time(self) -> int | None:
        """When the clock may end a partial match."""
        ...

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        """The partial matches and their timers, by reference."""
        ...

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """Hold what was saved, by this finder or another."""
        ...

    def close(self) -> None:
        """Release what is held."""
        ...


@dataclass(frozen=True, slots=True)
class MatchPlan:
    """What to look for, and what to make of it.

    Args:
        pattern: the automaton.
        keys: the key columns.
        schema: the columns of the input.
        function: makes rows of matches.
        result: the declared columns of those rows, or None to infer them.
        is_event_time: whether time is that of the events, or of the clock.
        late_tag: the side output of late rows, or None to drop them.
        limits: what a key may have under way.
    """

    pattern: CompiledPattern
    keys: tuple[str, ...]
    schema: pa.Schema
    function: PatternProcessFunction | type[PatternProcessFunction] | SelectFunction
    result: SchemaOrUnknown = None
    is_event_time: bool = True
    late_tag: OutputTag | None = None
    limits: MatchLimits = NO_LIMITS

    @property
    def rows(self) -> pa.Schema:
        """The columns of rows as they are kept, with plain types."""
        return plain_schema(self.schema)

    @property
    def row_type(self) -> pa.DataType:
        """The type of a row as state."""
        kind = row_struct(self.rows)
        assert kind is not None, "the API asks for columns with types"
        return kind

    def runs_on_columns(self, state_backend: str) -> bool:
        """Whether `ColumnFinder` can do the work."""
        return state_backend == "heap" and fits(self.pattern)
