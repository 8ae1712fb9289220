"""Finds a pattern with Python objects: the matcher, key by key, over partial matches in keyed state.

The operator of `KeyedStream.match` uses it for every pattern that `ColumnFinder` cannot run, and where state lies in
RocksDB. It follows Flink's `CepOperator` in when partial matches time out.
"""

from __future__ import annotations

from itertools import compress
from typing import Final, NamedTuple

import pyarrow as pa

from penstock.engine.operators.base import Collector, OperatorContext
from penstock.engine.operators.keyed import KeyedServices, backend_context
from penstock.engine.operators.matching.due_rows import DueRows
from penstock.engine.operators.matching.event_tests import ColumnTests, FunctionTests
from penstock.engine.operators.matching.match_results import MatchResults, Place
from penstock.engine.operators.matching.match_spec import DROPPED, MatchPlan
from penstock.engine.operators.matching.match_state import MatchState
from penstock.engine.operators.matching.waiting_rows import TimedRows
from penstock.engine.patterns.limits import NO_LIMITS
from penstock.engine.patterns.matcher import Matcher
from penstock.engine.patterns.partial import Event, KeyMatches
from penstock.engine.state.backend import Key
from penstock.engine.state.backends import create_backend
from penstock.engine.state.capture import CaptureRequest, OperatorCapture
from penstock.engine.state.snapshot import OperatorSnapshot
from penstock.engine.state.state_tables import instant

_BEHIND_ALL: Final = 2**63 - 1
_SEQUENCE_BITS: Final = 20
"""Events of one millisecond of the clock, before a number could come twice after a restore."""


class KeyedFinder:
    """Holds the partial matches of each key in the state backend that the job asks for.

    Args:
        plan: what to look for.
        context: where the operator runs.
        found: takes matches and time-outs.
    """

    def __init__(self, plan: MatchPlan, context: OperatorContext, found: MatchResults) -> None:
        self._plan = plan
        self._pattern = plan.pattern
        self._context = context
        self._found = found
        backend = create_backend(context.config.state_backend, backend_context(context, plan.keys))
        self._services = KeyedServices(context, plan.keys, backend)
        self._kept = MatchState(backend, self._pattern, plan.row_type, context.where)
        self._matcher = Matcher(self._pattern, context.where, plan.limits)
        self._column_tests = ColumnTests(self._pattern, context)
        self._tests = FunctionTests(self._pattern, context)
        # Larger than those of the state that may be restored.
        self._sequence = context.clock.now_ms() << _SEQUENCE_BITS
        self._dropped = None if plan.limits == NO_LIMITS else context.metrics.counter(DROPPED)

    def bind(self, schema: pa.Schema) -> None:
        """Learn the types of the keys."""
        self._services.bind(schema)

    @property
    def next_processing_time(self) -> int | None:
        """For `Operator.next_processing_time`."""
        return self._services.next_processing_time

    def close(self) -> None:
        """Release the state."""
        self._services.close()

    # Matching

    def find(self, due: TimedRows | None, until: int | None, out: Collector) -> None:
        """Give the rows that are due to the matcher, key by key, and then move time on; as `Finder.find`."""
        timers = self._due_timers(until)
        if due is None and not timers:
            return
        rows = None if due is None else self._due_rows(due)
        runs = {} if rows is None else self._runs_of_rows(rows)
        for key in timers:
            if instant(key) not in runs and (held := self._kept.load(key)) is not None:
                runs[instant(key)] = _Run(key, 0, 0, held)
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
        load = self._kept.load
        held = [load(key) for key in rows.keys]
        wanted = [begins or one is not None for begins, one in zip(rows.may_begin, held, strict=True)]
        runs: dict[Key, _Run] = {}
        for (key, begin, start, end), one in zip(rows.chosen(wanted), compress(held, wanted), strict=True):
            runs[instant(key)] = _Run(key, start if one is None else begin, end, one)
        return runs

    def _due_rows(self, due: TimedRows) -> DueRows:
        bits = self._column_tests.bits(due.rows)
        return DueRows(due, self._plan.keys, bits, self._matcher.starts, self._context.where)

    def _run_key(self, run: _Run, rows: DueRows | None, until: int | None) -> None:
        key = run.key
        matches = self._matcher.fresh() if run.held is None else run.held
        if rows is not None and run.begin < run.end:
            self._take_rows(run, matches, rows, until)
        if until is not None:
            self._advance(key, matches, until, (until, _BEHIND_ALL))
        if not self._matcher.is_fresh(matches):
            self._expire_idle(key, matches, until)
            self._kept.save(key, matches)
        elif run.held is not None:
            self._kept.save(key, None)

    def _take_rows(self, run: _Run, matches: KeyMatches, rows: DueRows, until: int | None) -> None:
        key, matcher, tests, found = run.key, self._matcher, self._tests, self._found
        last: int | None = None
        has_begun = False
        index = run.begin - 1
        while (index := index + 1) < run.end:
            if matcher.is_fresh(matches) and (index := rows.next_start[index]) >= run.end:
                return
            time, row = rows.times[index], rows.row(index)
            place = time, rows.arrivals[index]
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
            self._services.processing_timers.register(time + 1, key)
        elif until is None or time > until:
            self._services.event_timers.register(time, key)

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

    def _due_timers(self, until: int | None) -> list[Key]:
        """The keys whose partial matches may time out."""
        if until is None:
            return []
        if self._plan.is_event_time:
            return [key for _, key, _ in self._services.due_event_timers(until)]
        return [key for _, key, _ in self._services.processing_timers_so_far(until)]

    # State

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        """The partial matches and their timers."""
        self._kept.flush()
        return self._services.capture(request)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """Hold what was saved, by this finder or another."""
        self._services.restore(snapshot)


class _Run(NamedTuple):
    """What there is to do for a key: its rows, from `begin` up to `end`, and the partial matches that it has."""

    key: Key
    begin: int
    end: int
    held: KeyMatches | None
