"""What the user's function makes of matches and time-outs, until it becomes batches.

The operator of `KeyedStream.match` adds what the matcher finds, with the event that brought it about, and flushes. It
guarantees that results leave in the order of those events over all keys, so no order of keys shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from penstock.engine.elements import Batch
from penstock.engine.operators.base import USER_FAILURES, Collector, OperatorContext, SchemaOrUnknown
from penstock.engine.operators.functions.row_results import USUAL, SideOutputs, checked_rows
from penstock.engine.operators.functions.user_functions import create_function
from penstock.engine.patterns.functions import PatternProcessFunction, SelectFunction
from penstock.engine.patterns.partial import Match
from penstock.engine.row_buffer import owned_row
from penstock.engine.rows import RowConverter
from penstock.engine.state.backend import Key

Place: TypeAlias = tuple[int, int]
"""Where a result belongs among those of one watermark: time, and arrival of the event that brought it about."""


class Result(NamedTuple):
    """A match, or a partial match that timed out: of which key, and at what time."""

    key: Key
    match: Match
    time: int
    is_timed_out: bool


@dataclass(frozen=True, slots=True)
class _Runtime:
    """The `MatchRuntimeContext` of a function."""

    operator: str
    subtask: int
    parallelism: int


class MatchResults:
    """Calls the subtask's own function.

    Args:
        given: the function, an object to be copied or a class.
        schema: the declared columns of its rows, or None to infer them.
        timed: whether the rows carry timestamps.
        context: where the operator runs.
    """

    def __init__(self, given: Any, schema: SchemaOrUnknown, timed: bool, context: OperatorContext) -> None:
        self._context = context
        self._timed = timed
        self._converter = RowConverter(schema, context.where)
        self._sides = SideOutputs(context, timed)
        self._function: PatternProcessFunction | SelectFunction = create_function(given, context)
        runtime = _Runtime(context.operator, context.subtask, context.parallelism)
        try:
            self._function.open(runtime)
        except USER_FAILURES as error:
            raise context.life_cycle_error(error, "open(context)") from error
        self._element = _Element(context, self._sides)
        self._found: list[tuple[Place, Result]] = []
        self._limit = context.config.max_batch_rows

    def add_matches(self, place: Place, key: Key, matches: list[Match], time: int) -> None:
        """Matches that were found, in their order."""
        self._found.extend((place, Result(key, match, time, False)) for match in matches)

    def add_timed_out(self, place: Place, key: Key, match: Match, time: int) -> None:
        """A partial match that timed out."""
        self._found.append((place, Result(key, match, time, True)))

    @property
    def reads_timed_out(self) -> bool:
        """Whether anything is made of partial matches that time out."""
        function = self._function
        if isinstance(function, SelectFunction):
            return function.timed_out is not None
        return type(function).process_timed_out_match is not PatternProcessFunction.process_timed_out_match

    @property
    def is_full(self) -> bool:
        """Whether there are results for a whole batch."""
        return len(self._found) >= self._limit

    def flush(self, out: Collector) -> None:
        """Call the function for what was added, and emit what it gives."""
        found, self._found = sorted(self._found, key=itemgetter(0)), []
        self.give((result for _, result in found), out)

    def give(self, results: Iterable[Result], out: Collector) -> None:
        """Call the function for results that are in the order in which they are to leave, and emit what it gives."""
        rows: list[Any] = []
        times: list[int] = []
        for result in results:
            self._call(result, rows)
            times.extend([result.time] * (len(rows) - len(times)))
            if len(rows) >= self._limit:
                self._emit(rows, times, out)
                rows, times = [], []
        self._emit(rows, times, out)

    def _call(self, found: Result, rows: list[Any]) -> None:
        element, function = self._element, self._function
        element.key, element.timestamp = found.key, found.time
        try:
            if found.is_timed_out:
                function.process_timed_out_match(found.match, element)
                return
            made = function.process_match(found.match, element)
            if made is not None:
                usual = made if type(made) in USUAL else checked_rows(made, "process_match", self._context.where)
                rows.extend(map(owned_row, usual))
        except USER_FAILURES as error:
            raise self._context.user_code_error(error, found.match) from error

    def _emit(self, rows: list[Any], times: list[int], out: Collector) -> None:
        self._sides.flush()
        for begin in range(0, len(rows), self._limit):
            data = self._converter.convert(rows[begin : begin + self._limit])
            part = pa.array(times[begin : begin + self._limit], pa.int64()) if self._timed else None
            out.collect(Batch(data, part))

    def close(self) -> None:
        """Close the function."""
        try:
            self._function.close()
        except USER_FAILURES as error:
            raise self._context.life_cycle_error(error, "close()") from error


class _Element:
    """The `PatternContext` of a function; key and time are set before each call."""

    def __init__(self, context: OperatorContext, sides: SideOutputs) -> None:
        self._sides = sides
        self.key: Key = None
        self.timestamp = 0
        self.current_processing_time = context.clock.now_ms

    def output(self, tag: Any, row: Any) -> None:
        self._sides.add(tag, row, self.timestamp)
