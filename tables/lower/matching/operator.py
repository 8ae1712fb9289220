"""The operator of MATCH_RECOGNIZE: rows wait for the watermark, and each partition is searched in order of time.

The lowering makes its spec. What a row alone decides is computed for all due rows at once; rows of partitions that have
nothing under way, and with which no match begins, go no further.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch, Watermark, concat_record_batches
from penstock.engine.errors import RecordError
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.changelog.column_names import free_name
from penstock.engine.operators.changelog.inputs import conformed, distinct_keys, plain_columns
from penstock.engine.operators.changelog.row_states import waiting_rows, waiting_table
from penstock.engine.operators.joins.join_buffers import TimeSegments
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.engine.patterns.row_order import by_code_and_time
from penstock.engine.patterns.rows.automaton import RowAutomaton, compiled
from penstock.engine.patterns.rows.lookahead import NEVER, Bools, Lookahead
from penstock.engine.patterns.rows.search import RowSearch, Test
from penstock.engine.patterns.rows.syntax import shown
from penstock.engine.state.capture import CaptureRequest, OperatorCapture, TableCapture
from penstock.engine.state.snapshot import OperatorSnapshot, Redistribution
from penstock.tables.expressions import columns_in
from penstock.tables.functions.signatures import SessionValues
from penstock.tables.lower.evaluation import Evaluation
from penstock.tables.lower.matching.closures import Closures
from penstock.tables.lower.matching.column_partitions import ColumnPartitions, runs_on_columns
from penstock.tables.lower.matching.object_partitions import ObjectPartitions, PartitionSearch
from penstock.tables.lower.matching.partitions import TIME, Partitions, SortedRows
from penstock.tables.lower.matching.readers import Reader, ReferenceReaders
from penstock.tables.lower.matching.results import MatchedRows
from penstock.tables.plan.nodes import SortKey
from penstock.tables.plan.row_references import RowMatch
from penstock.tables.types import arrow_type

Int64s = npt.NDArray[np.int64]
_WAITING: Final = "waiting-rows"
ROWS: Final = "match-rows"
_NO_VALUE: Final = (ValueError, ArithmeticError, TypeError, pa.ArrowException)
_LARGEST: Final = 2**62


@dataclass(frozen=True, slots=True)
class MatchRecognizeSpec(OperatorSpec):
    """Creates the operator.

    Args:
        input: the columns that come.
        partition: the names of those that divide rows.
        is_event_time: whether rows are in order of their timestamps; else of arrival.
        order: columns that order rows of one time.
        match: what is looked for.
        schema: of the results.
        zone: the session's time zone.
    """

    input: pa.Schema
    partition: tuple[str, ...]
    is_event_time: bool
    order: tuple[SortKey, ...]
    match: RowMatch
    schema: pa.Schema
    zone: str

    def create(self) -> Operator:
        return MatchRecognize(self)

    def describe(self) -> str:
        return f"match({shown(self.match.pattern)})"

    @property
    def traits(self) -> OperatorTraits:
        order = RowOrder.WITHIN_INPUTS if self.is_event_time else RowOrder.ACROSS_INPUTS
        waits = not self.is_event_time and self.match.within_ms is not None
        return OperatorTraits(keys=(self.partition,), order=order, waits_for_clock=waits)


class MatchRecognize(Operator):
    """Keeps the rows that the watermark has not passed, and those of matches under way."""

    def __init__(self, spec: MatchRecognizeSpec) -> None:
        self._spec = spec
        self._input = plain_columns(spec.input)
        self._keys = pa.schema([self._input.field(name) for name in spec.partition])
        self._time = free_name(TIME, self._input.names)
        self._pending = TimeSegments()
        self._watermark = MIN_TIMESTAMP

    def open(self, context: OperatorContext) -> None:
        self._context = context
        match = self._spec.match
        automaton = compiled(match.pattern)
        self._results = MatchedRows(match, automaton.variables, self._spec.schema)
        definitions = dict(match.definitions)
        own = [(number, definitions[name].own) for number, name in enumerate(automaton.variables)]
        self._own = [(number, condition) for number, condition in own if condition is not None]
        self._always = sum(1 << number for number, condition in own if condition is None)
        self._lookahead = Lookahead(automaton)
        self._back = max((reference.back for reference in match.references), default=0)
        self._partitions = self._new_partitions(automaton)

    def _new_partitions(self, automaton: RowAutomaton) -> Partitions:
        match, where = self._spec.match, self._context.where
        kinds = [arrow_type(value.type) for value in match.values]
        if runs_on_columns(match, automaton):
            return ColumnPartitions(match, automaton, self._keys, kinds, where, self._results.add_columns)
        search = PartitionSearch(
            self._row_search(automaton),
            sum(1 << variable for variable in automaton.first_variables),
            match.skip,
            frozenset(automaton.variables.index(name) for name in match.skip_variables),
            self._back,
            where,
        )
        return ObjectPartitions(search, self._keys, kinds, self._results.add)

    def _row_search(self, automaton: RowAutomaton) -> RowSearch:
        match = self._spec.match
        definitions = dict(match.definitions)
        asked = [definitions[name].rest for name in automaton.variables]
        read = sorted({place for rest in asked if rest is not None for place in columns_in(rest)})
        readers = ReferenceReaders(match.references, read, automaton.variables)
        closures = Closures(readers.by_place, self._session)
        tests = [None if rest is None else _test(closures.made(rest)) for rest in asked]
        return RowSearch(automaton, tests, readers.layout, match.within_ms)

    def _session(self) -> SessionValues:
        return SessionValues(self._spec.zone, self._context.clock.now_ms(), self._watermark)

    # Rows and time

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        rows = conformed(batch.data, self._input)
        if not self._spec.is_event_time:
            now = self._context.clock.now_ms()
            self._find(rows, np.full(rows.num_rows, now), now - 1, out)
            return
        assert batch.timestamps is not None, "a plan orders by event time where rows have it"
        times = batch.timestamps.to_numpy()
        late = times <= self._watermark
        if late.any():
            self._context.metrics.late_rows += int(late.sum())
            rows, times = rows.filter(pa.array(~late)), times[~late]
        if len(times):
            self._pending.append(rows, times)

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        until = watermark.timestamp
        behind = min(until + 1, _LARGEST)
        due = self._pending.between(MIN_TIMESTAMP, behind)
        self._watermark = until
        if due:
            rows = concat_record_batches([part.rows for part in due])
            times = np.concatenate([part.timestamps for part in due])
            self._pending.drop_before(behind)
            self._find(rows, times, until if self._spec.is_event_time else MIN_TIMESTAMP, out)
        with self._failures():
            if until == MAX_TIMESTAMP:
                self._partitions.end()
            elif self._spec.is_event_time:
                self._partitions.come_to(until)
        self._results.flush(self._session(), out)
        return watermark

    @property
    def next_processing_time(self) -> int | None:
        return None if self._spec.is_event_time else self._partitions.next_time

    def on_processing_time(self, now_ms: int, out: Collector) -> None:
        with self._failures():
            self._partitions.come_to(now_ms - 1)
        self._results.flush(self._session(), out)

    # Finding

    def _find(self, rows: pa.RecordBatch, times: Int64s, until: int, out: Collector) -> None:
        """Add rows to their partitions, and search them."""
        evaluation = Evaluation(rows.columns, rows.num_rows, self._session())
        answers = self._answers(evaluation)
        numbers, distinct = distinct_keys([rows.column(name) for name in self._keys.names], rows.num_rows)
        count = int(numbers.max()) + 1
        order = self._ordered(rows, times, numbers)
        numbers, times, answers = numbers[order], times[order], answers[order]
        is_last = np.diff(numbers, append=-1) != 0
        begins = self._lookahead.may_begin(answers, is_last)
        answers[~begins] |= NEVER
        if not self._back:
            is_under_way = self._partitions.are_under_way(distinct, count)
            wanted = is_under_way[numbers] | _from_first(begins, is_last)
            order, numbers, times, answers = order[wanted], numbers[wanted], times[wanted], answers[wanted]
        if not len(order):
            return
        with self._failures():
            chosen = rows.take(pa.array(order))
            evaluation = Evaluation(chosen.columns, chosen.num_rows, self._session())
            values = [evaluation.value(value) for value in self._spec.match.values]
            self._partitions.take(SortedRows(distinct, numbers, times, answers, values), until)
        self._results.flush(self._session(), out)

    def _answers(self, evaluation: Evaluation) -> Int64s:
        """What definitions say of each row alone, a bit for each variable."""
        answers = np.full(evaluation.rows, self._always, np.int64)
        with self._failures():
            for number, condition in self._own:
                answers |= evaluation.mask(condition).astype(np.int64) << number
        return answers

    def _ordered(self, rows: pa.RecordBatch, times: Int64s, numbers: Int64s) -> Int64s:
        """The places of the rows by partition, time, further columns, and arrival."""
        if not self._spec.order:
            return by_code_and_time(numbers, times)
        ranks = [self._rank(rows.column(key.column), key) for key in reversed(self._spec.order)]
        order: Int64s = np.lexsort([*ranks, times, numbers])
        return order

    @staticmethod
    def _rank(column: pa.Array, key: SortKey) -> Int64s:
        direction = "descending" if key.descending else "ascending"
        ranks: Int64s = pc.rank(column, direction, tiebreaker="dense").to_numpy().astype(np.int64)
        if column.null_count:
            ranks[column.is_null().to_numpy(zero_copy_only=False)] = 0 if key.nulls_first else len(ranks) + 1
        return ranks

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Say where a value that cannot be computed was asked for."""
        try:
            yield
        except _NO_VALUE as error:
            raise RecordError(
                f"{self._context.where}: {error}, in a value that DEFINE or MEASURES read of a row; use TRY_CAST or "
                "CASE for such rows"
            ) from error

    # State

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        most = self._context.config.max_parallelism
        tables = {}
        held = self._partitions.capture(most)
        if held is not None:
            tables[ROWS] = held
        waiting = self._pending.captured()
        if waiting is not None:
            tables[_WAITING] = TableCapture(Redistribution.KEYED, self._waiting_table(waiting, most))
        return OperatorCapture(tables, self._watermark)

    def _waiting_table(
        self, rows: Callable[[], tuple[list[pa.RecordBatch], Int64s]], max_parallelism: int
    ) -> Callable[[], pa.Table]:
        def table() -> pa.Table:
            parts, times = rows()
            return waiting_table(parts, self._time, times, self._keys, max_parallelism)

        return table

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._watermark = snapshot.watermark
        waiting = snapshot.tables.get(_WAITING)
        if waiting is not None and waiting.data.num_rows:
            rows, times = waiting_rows(waiting.data, self._time)
            self._pending.append(conformed(rows, self._input), times)
        held = snapshot.tables.get(ROWS)
        if held is not None:
            with self._failures():
                self._partitions.restore(held.data)


def _from_first(begins: Bools, is_last: Bools) -> Bools:
    """Of rows by partition, those from the first one on with which a match may begin."""
    so_far = np.cumsum(begins)
    ends = np.flatnonzero(is_last)
    before = np.concatenate([[0], so_far[ends[:-1]]])
    found: Bools = so_far > np.repeat(before, np.diff(ends, prepend=-1))
    return found


def _test(value: Reader) -> Test:
    return lambda trail, rows, start: value(trail, rows, start) is True
