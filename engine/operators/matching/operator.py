"""The operator of `KeyedStream.match`: finds a pattern in the rows of each key, in order of time.

The API makes its factory. In event time rows wait for the watermark, and all that is due is looked at together: once
sorted by key and time, the expressions of the pattern computed for all rows, then the matcher key by key. It follows
Flink's `CepOperator` in what is late, when partial matches time out, and which time a result carries.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.engine.aggregates.accumulators import plain
from penstock.engine.elements import Batch, Watermark
from penstock.engine.functions import OutputTag
from penstock.engine.operators.base import Collector, Operator, OperatorContext, SchemaOrUnknown
from penstock.engine.operators.joins.join_columns import conformed, plain_schema
from penstock.engine.operators.keyed import KeyedServices, backend_context
from penstock.engine.operators.matching.due_rows import DueRows, KeyRows
from penstock.engine.operators.matching.event_tests import ExpressionTests, FunctionTests
from penstock.engine.operators.matching.match_results import MatchResults, Place
from penstock.engine.operators.matching.match_state import MatchState
from penstock.engine.operators.matching.waiting_rows import WAITING, TimedRows, WaitingRows
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.engine.operators.windows.window_folds import row_struct
from penstock.engine.patterns.automaton import CompiledPattern
from penstock.engine.patterns.functions import PatternProcessFunction, SelectFunction
from penstock.engine.patterns.limits import NO_LIMITS, MatchLimits
from penstock.engine.patterns.matcher import Matcher
from penstock.engine.patterns.partial import Event, KeyMatches
from penstock.engine.state.backend import Key
from penstock.engine.state.backends import create_backend
from penstock.engine.state.capture import CaptureRequest, OperatorCapture
from penstock.engine.state.snapshot import OperatorSnapshot
from penstock.engine.state.state_tables import instant

DROPPED: Final = "droppedPartialMatches"
"""The counter of partial matches that limits have ended."""
_BEHIND_ALL: Final = 2**63 - 1
_SEQUENCE_BITS: Final = 20
"""Events of one millisecond of the clock, before a number could come twice after a restore."""


@dataclass(frozen=True, slots=True)
class MatchSpec(OperatorSpec):
    """Creates the operator that finds a pattern.

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

    def create(self) -> MatchOperator:
        return MatchOperator(self)

    def describe(self) -> str:
        return f"match({' '.join(self.pattern.variables)})"

    @property
    def traits(self) -> OperatorTraits:
        order = RowOrder.WITHIN_INPUTS if self.is_event_time else RowOrder.ACROSS_INPUTS
        waits = not self.is_event_time and (self.pattern.has_bounds or self.limits.ttl_ms is not None)
        return OperatorTraits(keys=(self.keys,), order=order, waits_for_clock=waits)


class MatchOperator(Operator):
    """Keeps the rows whose time has not come, and the partial matches of each key."""

    def __init__(self, plan: MatchSpec) -> None:
        self._plan = plan
        self._pattern = plan.pattern
        self._schema = plain_schema(plan.schema)
        self._waiting = WaitingRows(self._schema, plan.keys)
        self._services: KeyedServices | None = None
        self._results: MatchResults | None = None

    # Life

    def open(self, context: OperatorContext) -> None:
        plan = self._plan
        self._context = context
        backend = create_backend(context.config.state_backend, backend_context(context, plan.keys))
        self._services = KeyedServices(context, plan.keys, backend)
        self._backend = backend
        rows = row_struct(self._schema)
        assert rows is not None, "the API asks for columns with types"
        self._kept = MatchState(backend, self._pattern, rows, context.where)
        self._matcher = Matcher(self._pattern, context.where, plan.limits)
        self._expressions = ExpressionTests(self._pattern, context)
        self._tests = FunctionTests(self._pattern, context)
        # Larger than those of the state that may be restored.
        self._sequence = context.clock.now_ms() << _SEQUENCE_BITS
        self._dropped = None if plan.limits == NO_LIMITS else context.metrics.counter(DROPPED)
        self._results = MatchResults(plan.function, plan.result, plan.is_event_time, context)

    def close(self) -> None:
        try:
            if self._results is not None:
                self._results.close()
        finally:
            if self._services is not None:
                self._services.close()

    @property
    def _keyed(self) -> KeyedServices:
        assert self._services is not None, "open comes first"
        return self._services

    @property
    def _found(self) -> MatchResults:
        assert self._results is not None, "open comes first"
        return self._results

    # Rows

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        if self._plan.is_event_time:
            batch = self._punctual(batch)
            if not batch.num_rows:
                return
        columns = [plain(column) for column in batch.data.columns]
        taken = pa.RecordBatch.from_arrays(columns, schema=plain_schema(batch.data.schema))
        rows = conformed(taken, self._schema)
        self._keyed.bind(rows.schema)
        if self._plan.is_event_time:
            assert batch.timestamps is not None, "the graph refuses streams without timestamps"
            self._waiting.add(rows, batch.timestamps.to_numpy())
            return
        now = self._context.clock.now_ms()
        times = np.full(rows.num_rows, now)
        self._run(TimedRows(rows, times, np.arange(rows.num_rows)), [], None, out)

    def _punctual(self, batch: Batch) -> Batch:
        """The rows that are not late; those that are go to their side output, or are counted."""
        assert batch.timestamps is not None, "the graph refuses streams without timestamps"
        late = batch.timestamps.to_numpy() <= self._keyed.watermark
        if not late.any():
            return batch
        dropped = batch.filter(pa.array(late))
        if self._plan.late_tag is None:
            self._context.metrics.late_rows += dropped.num_rows
        else:
            self._context.emit_side(self._plan.late_tag.name, dropped)
        return batch.filter(pa.array(~late))

    # Time

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        if self._plan.is_event_time:
            timers = [key for _, key, _ in self._keyed.due_event_timers(watermark.timestamp)]
            due = self._waiting.take(watermark.timestamp)
            if due is not None or timers:
                self._run(due, timers, watermark.timestamp, out)
        return watermark

    @property
    def next_processing_time(self) -> int | None:
        return self._keyed.next_processing_time

    def on_processing_time(self, now_ms: int, out: Collector) -> None:
        timers = [key for _, key, _ in self._keyed.processing_timers_so_far(now_ms)]
        self._run(None, timers, now_ms, out)

    # Matching

    def _run(self, due: TimedRows | None, timers: Iterable[Key], until: int | None, out: Collector) -> None:
        """Give the rows that are due to the matcher, key by key, and then move time on.

        Args:
            due: the rows.
            timers: the keys whose partial matches may time out.
            until: the time to come to behind the rows; None to stay at the last row's.
        """
        rows = None if due is None else self._due_rows(due)
        runs = {} if rows is None else self._runs_of_rows(rows)
        for key in timers:
            if instant(key) not in runs and (held := self._load(key)) is not None:
                runs[instant(key)] = _Run(KeyRows(key, 0, 0), held)
        if rows is not None:
            rows.make_rows([run.rows for run in runs.values()])
        before = self._matcher.dropped
        for run in runs.values():
            self._run_key(run, rows, until)
            if self._found.is_full:
                self._found.flush(out)
        self._found.flush(out)
        if self._dropped is not None and self._matcher.dropped > before:
            self._dropped.inc(self._matcher.dropped - before)

    def _runs_of_rows(self, rows: DueRows) -> dict[Key, _Run]:
        """The keys that have rows that matter; where there is no partial match, a row must be able to begin one."""
        runs: dict[Key, _Run] = {}
        for of_key in rows.by_key():
            held = self._load(of_key.key)
            wanted = rows.from_first_start(of_key) if held is None else of_key
            if wanted.begin < wanted.end:
                runs[instant(wanted.key)] = _Run(wanted, held)
        return runs

    def _load(self, key: Key) -> KeyMatches | None:
        self._backend.set_current_key(key)
        return self._kept.load()

    def _due_rows(self, due: TimedRows) -> DueRows:
        return DueRows(due, self._plan.keys, self._expressions.bits, self._matcher.starts, self._context.where)

    def _run_key(self, run: _Run, rows: DueRows | None, until: int | None) -> None:
        key = run.rows.key
        matches = self._matcher.fresh() if run.held is None else run.held
        if rows is not None and run.rows.begin < run.rows.end:
            self._take_rows(key, matches, rows, run.rows, until)
        if until is not None:
            self._advance(key, matches, until, Place(until, _BEHIND_ALL))
        self._backend.set_current_key(key)
        if not self._matcher.is_fresh(matches):
            self._expire_idle(key, matches, until)
            self._kept.save(matches)
        elif run.held is not None:
            self._kept.clear()

    def _take_rows(self, key: Key, matches: KeyMatches, rows: DueRows, of_key: KeyRows, until: int | None) -> None:
        matcher, tests, found = self._matcher, self._tests, self._found
        last: int | None = None
        has_begun = False
        for index in range(of_key.begin, of_key.end):
            if not rows.may_start[index] and matcher.is_fresh(matches):
                continue
            time, row = rows.times[index], rows.row(index)
            place = Place(time, rows.arrivals[index])
            if time != last:
                last = time
                self._advance(key, matches, time, place)
            tests.turn_to(rows.bits[index], row, time)
            self._sequence += 1
            complete, begins = matcher.process(matches, Event(time, self._sequence, row), tests)
            if complete:
                found.add_matches(place, key, complete, time)
            # By Flink's rule what follows the beginning of a partial match is timed, too.
            has_begun = has_begun or begins
            if has_begun and self._pattern.within_ms > 0:
                self._time_out_at(key, time + self._pattern.within_ms, until)

    def _time_out_at(self, key: Key, time: int, until: int | None) -> None:
        if time > _BEHIND_ALL:
            return
        if not self._plan.is_event_time:
            self._keyed.processing_timers.register(time + 1, key)
        elif until is None or time > until:
            self._keyed.event_timers.register(time, key)

    def _expire_idle(self, key: Key, matches: KeyMatches, until: int | None) -> None:
        """See to it that what is idle ends, also where its key gets no row any more."""
        ttl = self._plan.limits.ttl_ms
        if ttl is not None:
            for time in {partial.previous_time for partial in matches.partial if partial.first is not None}:
                self._time_out_at(key, time + ttl, until)

    def _advance(self, key: Key, matches: KeyMatches, time: int, place: Place) -> None:
        complete, timed_out = self._matcher.advance(matches, time)
        if complete:
            self._found.add_matches(place, key, complete, time)
        for one in timed_out:
            self._found.add_timed_out(place, key, one.match, one.time)

    # State

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        capture = self._keyed.capture(request)
        waiting = self._waiting.capture(self._context.config.max_parallelism)
        return replace(capture, tables={**capture.tables, **waiting})

    def restore(self, snapshot: OperatorSnapshot) -> None:
        tables = dict(snapshot.tables)
        waiting = tables.pop(WAITING, None)
        self._keyed.restore(OperatorSnapshot(tables, snapshot.watermark))
        if waiting is not None:
            self._keyed.bind(self._schema)
            self._waiting.restore(waiting)


class _Run(NamedTuple):
    """What there is to do for a key: its rows, and the partial matches that it has."""

    rows: KeyRows
    held: KeyMatches | None
