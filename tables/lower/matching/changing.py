"""The operator of patterns that change while the job runs: row patterns by name, each with an operator of its own.

`Table.match_patterns` makes its spec; input 0 is the rows, input 1 the patterns, of which every subtask gets all. A
change is applied to the rows of its time and later ones, so results do not depend on when it comes, if it is in time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from penstock.engine.elements import MIN_TIMESTAMP, Batch, Control, Watermark
from penstock.engine.errors import RecordError, SqlError
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.changelog.column_names import free_name
from penstock.engine.operators.changelog.inputs import conformed, plain_columns
from penstock.engine.operators.changelog.row_states import waiting_rows, waiting_table
from penstock.engine.operators.joins.join_buffers import TimeSegments
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.engine.state.capture import CaptureRequest, OperatorCapture, TableCapture
from penstock.engine.state.snapshot import OperatorSnapshot, Redistribution, StateTable
from penstock.tables.bind.match_binder import bind_pattern
from penstock.tables.lower.base import schema_of
from penstock.tables.lower.matching.operator import ROWS, MatchRecognize, MatchRecognizeSpec
from penstock.tables.lower.matching.partitions import TIME
from penstock.tables.plan.nodes import Columns

PATTERN: Final = "pattern"
"""The column of patterns and of results with the pattern's name."""
CLAUSE: Final = "clause"
"""The column of patterns with the text; null removes the pattern."""
REFUSED: Final = pa.schema({PATTERN: pa.string(), CLAUSE: pa.string(), "problem": pa.string()})
"""The columns of patterns that are refused."""
_ACTIVE: Final = "patterns"
_COMING: Final = "coming-patterns"
_WAITING: Final = "waiting-rows"
_LARGEST: Final = 2**62
_ACTIVE_COLUMNS: Final = pa.schema(
    {PATTERN: pa.string(), CLAUSE: pa.string(), "number": pa.int64(), "numbered": pa.int64()}
)
_COMING_COLUMNS: Final = pa.schema({TIME: pa.int64(), PATTERN: pa.string(), CLAUSE: pa.string()})


@dataclass(frozen=True, slots=True)
class ChangingPatternsSpec(OperatorSpec):
    """Creates the operator.

    Args:
        columns: of the rows.
        partition, time: places of columns.
        measures: what each pattern gives.
        schema: of the results: pattern, columns of the partition, measures.
        zone: the session's time zone.
        refused: the side output for patterns that cannot be read; None: they fail the job.
    """

    columns: Columns
    partition: tuple[int, ...]
    time: int
    measures: Columns
    schema: pa.Schema
    zone: str
    refused: str | None

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the columns that divide rows."""
        return tuple(self.columns[place].name for place in self.partition)

    def create(self) -> Operator:
        return ChangingPatterns(self)

    def describe(self) -> str:
        return f"match patterns(by=[{', '.join(self.keys)}])"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(keys=(self.keys,), order=RowOrder.WITHIN_INPUTS)


class _Change(NamedTuple):
    """A pattern that comes, changes or goes, with the time from which on."""

    time: int
    name: str
    clause: str | None


@dataclass(frozen=True, slots=True)
class _Active:
    """A pattern that is looked for.

    Args:
        number: of its state's table.
    """

    number: int
    clause: str
    operator: MatchRecognize


class ChangingPatterns(Operator):
    """Keeps rows and changes that the watermark has not passed, and an operator for each pattern."""

    def __init__(self, spec: ChangingPatternsSpec) -> None:
        self._spec = spec
        self._input = plain_columns(schema_of(spec.columns))
        self._keys = pa.schema([self._input.field(name) for name in spec.keys])
        self._time = free_name(TIME, self._input.names)
        self._rows = TimeSegments()
        self._coming: list[_Change] = []
        self._active: dict[str, _Active] = {}
        self._numbered = 0
        self._watermark = MIN_TIMESTAMP

    def open(self, context: OperatorContext) -> None:
        self._context = context

    # Rows, patterns and time

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        assert batch.timestamps is not None, "both inputs carry event time"
        times = batch.timestamps.to_numpy()
        if input_index:
            names, clauses = (batch.data.column(name).to_pylist() for name in (PATTERN, CLAUSE))
            self._coming += map(_Change, times.tolist(), names, clauses)
            return
        rows = conformed(batch.data, self._input)
        late = times <= self._watermark
        if late.any():
            self._context.metrics.late_rows += int(late.sum())
            rows, times = rows.filter(pa.array(~late)), times[~late]
        if len(times):
            self._rows.append(rows, times)

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        until = watermark.timestamp
        # Several of one name and time come from one subtask of their source, in its order: the sort is stable.
        due = sorted((change for change in self._coming if change.time <= until), key=lambda change: change[:2])
        self._coming = [change for change in self._coming if change.time > until]
        for change in due:
            if change.time - 1 > self._watermark:
                self._advance(change.time - 1, out)
            self._apply(change)
        self._advance(until, out)
        return watermark

    def _advance(self, until: int, out: Collector) -> None:
        """Bring all patterns to a time."""
        behind = min(until + 1, _LARGEST)
        due = self._rows.between(MIN_TIMESTAMP, behind)
        for name, active in self._active.items():
            named = _NamedCollector(name, self._spec.schema, out)
            for part in due:
                active.operator.process_batch(Batch(part.rows, pa.array(part.timestamps)), 0, named)
            active.operator.on_watermark(Watermark(until), named)
        self._rows.drop_before(behind)
        self._watermark = until

    def _apply(self, change: _Change) -> None:
        before = self._active.get(change.name)
        if change.clause is None:
            if before is not None:
                self._remove(change.name)
            return
        if before is not None and before.clause == change.clause:
            return
        try:
            operator = self._operator(change.clause)
        except SqlError as error:
            self._refuse(change, error)
            return
        if before is not None:
            self._remove(change.name)
        self._active[change.name] = _Active(self._numbered, change.clause, operator)
        self._numbered += 1

    def _operator(self, clause: str) -> MatchRecognize:
        spec = self._spec
        node = bind_pattern(clause, spec.columns, spec.partition, spec.time, spec.measures)
        schema = schema_of(node.columns)
        inner = MatchRecognizeSpec(self._input, spec.keys, True, (), node.match, schema, spec.zone)
        operator = MatchRecognize(inner)
        operator.open(self._context)
        return operator

    def _remove(self, name: str) -> None:
        self._active.pop(name).operator.close()

    def _refuse(self, change: _Change, error: SqlError) -> None:
        """Leave what is looked for by that name as it is."""
        if self._spec.refused is None:
            raise RecordError(
                f"{self._context.where}: pattern {change.name!r} cannot be read: {error}; give match_patterns an "
                "OutputTag for such patterns"
            ) from error
        if self._context.subtask == 0:
            row = pa.RecordBatch.from_pylist(
                [dict(zip(REFUSED.names, (*change[1:], str(error)), strict=True))], REFUSED
            )
            self._context.emit_side(self._spec.refused, Batch(row, pa.array([change.time])))

    # State

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        tables: dict[str, TableCapture] = {}
        most = self._context.config.max_parallelism
        for active in self._active.values():
            captured = active.operator.capture(request).tables
            if ROWS in captured:
                tables[_rows_of(active.number)] = captured[ROWS]
        active_rows = [(name, one.clause, one.number, self._numbered) for name, one in self._active.items()]
        tables[_ACTIVE] = _broadcast(active_rows, _ACTIVE_COLUMNS)
        tables[_COMING] = _broadcast(self._coming, _COMING_COLUMNS)
        waiting = self._rows.captured()
        if waiting is not None:

            def rows() -> pa.Table:
                parts, times = waiting()
                return waiting_table(parts, self._time, times, self._keys, most)

            tables[_WAITING] = TableCapture(Redistribution.KEYED, rows)
        return OperatorCapture(tables, self._watermark)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._watermark = snapshot.watermark
        tables = snapshot.tables
        if _COMING in tables:
            data = tables[_COMING].data
            self._coming = [_Change(*row.values()) for row in data.select([TIME, PATTERN, CLAUSE]).to_pylist()]
        if _ACTIVE in tables:
            for row in tables[_ACTIVE].data.to_pylist():
                self._numbered = max(self._numbered, row["numbered"])
                self._restore_pattern(row[PATTERN], row[CLAUSE], row["number"], tables)
        waiting = tables.get(_WAITING)
        if waiting is not None and waiting.data.num_rows:
            rows, times = waiting_rows(waiting.data, self._time)
            self._rows.append(conformed(rows, self._input), times)

    def _restore_pattern(self, name: str, clause: str, number: int, tables: Mapping[str, StateTable]) -> None:
        active = _Active(number, clause, self._operator(clause))
        own = tables.get(_rows_of(number))
        active.operator.restore(OperatorSnapshot({} if own is None else {ROWS: own}, self._watermark))
        self._active[name] = active

    def close(self) -> None:
        for active in self._active.values():
            active.operator.close()


class _NamedCollector:
    """Puts the pattern's name in front of its results."""

    def __init__(self, name: str, schema: pa.Schema, out: Collector) -> None:
        self._name = name
        self._schema = schema
        self._out = out

    def collect(self, batch: Batch) -> None:
        """Emit results."""
        names = pa.repeat(pa.scalar(self._name), batch.num_rows)
        self._out.collect(
            batch.with_data(pa.RecordBatch.from_arrays([names, *batch.data.columns], schema=self._schema))
        )

    def broadcast(self, element: Control) -> None:
        """Pass a control element on."""
        self._out.broadcast(element)


def _rows_of(number: int) -> str:
    return f"{ROWS}-{number}"


def _broadcast(rows: Sequence[tuple[object, ...]], schema: pa.Schema) -> TableCapture:
    """A table that all subtasks have alike."""
    arrays = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(schema)]
    return TableCapture(Redistribution.BROADCAST, lambda: pa.table(arrays, schema=schema))
