"""The operator of compiled `KeyedProcessFunction`s: whole batches, with the results and the state of row by row.

`KeyedStream.process` makes its spec. State and timers are what `keyed_process.py` keeps, so that a job may go from one
to the other by a savepoint; what compiled code cannot take is given to the plain function, one by one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.aggregates.accumulators import plain_type
from penstock.engine.compiled.emitting import TIMER_CALLS, EmittingTranslation
from penstock.engine.compiled.emitting_program import EmittingProgram, Moment, Output, Processed
from penstock.engine.compiled.functions import may_fall_back, unless_refused
from penstock.engine.compiled.keyed_translation import KeyedMethods
from penstock.engine.compiled.kinds import check_declared
from penstock.engine.compiled.program import as_declared
from penstock.engine.elements import Batch, Watermark
from penstock.engine.errors import GraphError
from penstock.engine.functions import KeyedBatch, KeyedProcessFunction, OutputTag
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.functions.function_operator import key_values
from penstock.engine.operators.functions.keyed_process import (
    KeyedProcessOperator,
    KeyedProcessSpec,
    columnar_backend,
    keyed_batch,
)
from penstock.engine.operators.functions.row_results import unknown_timestamp
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits
from penstock.engine.rows import batch_rows
from penstock.engine.state.backend import KeyedStateBackend
from penstock.engine.state.timers import TimerQueue
from penstock.engine.texts import function_name

_LOG = logging.getLogger(__name__)
FEW_ROWS: Final = 384
"""Batches of fewer rows, and fewer timers, cost less one by one (`python -m perf.compiled`)."""
FEW_ROWS_OF_MANY: Final = 4096
"""The same for functions with list and map states, which are read key by key."""


@dataclass(frozen=True, slots=True)
class CompiledProcessSpec(OperatorSpec):
    """Creates the operator of a compiled `KeyedProcessFunction`.

    Args:
        function: the function, of which each subtask has a copy, or its class.
        keys: the key columns.
        schema: the declared columns of its result.
        timed: whether the stream has event timestamps.

    Example:
        `CompiledProcessSpec(Count, ("user",), pa.schema([("n", pa.int64())]))`
    """

    function: KeyedProcessFunction | type[KeyedProcessFunction]
    keys: tuple[str, ...]
    schema: pa.Schema
    timed: bool = False

    def create(self) -> Operator:
        return CompiledProcessOperator(self.function, self.keys, self.schema, self.timed)

    def describe(self) -> str:
        return f"process({function_name(self.function)}, compiled)"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(keys=(self.keys,))


def process_spec(
    function: KeyedProcessFunction | type[KeyedProcessFunction],
    keys: tuple[str, ...],
    given: pa.Schema | None,
    made: pa.Schema | None,
    timed: bool,
) -> OperatorSpec:
    """The spec, checked where the columns of its input are known.

    Raises:
        GraphError: `made` is not declared, or the function cannot be compiled to give it; not with `fallback`.
    """
    compiled = unless_refused(lambda: _checked_spec(function, keys, given, made, timed), may_fall_back(function))
    return compiled or KeyedProcessSpec(function, keys, made, timed)


def _checked_spec(
    function: KeyedProcessFunction | type[KeyedProcessFunction],
    keys: tuple[str, ...],
    given: pa.Schema | None,
    made: pa.Schema | None,
    timed: bool,
) -> CompiledProcessSpec:
    if made is None:
        raise GraphError(f"compiled: process({function_name(function)}) needs `returns`: declare its columns")
    if given is not None:
        methods = KeyedMethods(function, keys, timed)
        _check(methods.process_element(given), function, given, made)
        if methods.has_timers:
            key_schema = pa.schema([pa.field(name, plain_type(given.field(name).type)) for name in keys])
            _check(methods.on_timer(key_schema), function, key_schema, made)
    return CompiledProcessSpec(function, keys, made, timed)


def _check(
    translation: EmittingTranslation,
    function: KeyedProcessFunction | type[KeyedProcessFunction],
    given: pa.Schema,
    made: pa.Schema,
) -> EmittingTranslation:
    """The translation, if it emits what is declared."""
    name = function_name(function)
    if translation.results.places:
        check_declared(name, translation.results.kinds, given, made)
    for tag, side in translation.sides.items():
        assert tag.schema is not None
        check_declared(f"{name}, side output {tag.name!r}", side.kinds, given, tag.schema)
    return translation


@dataclass(frozen=True, slots=True)
class _Computed:
    """What a batch came to; nothing has changed yet.

    Attributes:
        processed: the values of states.
        results, sides: the declared columns of each output, and the rows that they come from.
        timers: what is to be done to timers.
    """

    processed: Processed
    results: tuple[pa.RecordBatch, npt.NDArray[np.int64]]
    sides: Sequence[tuple[OutputTag, pa.RecordBatch, npt.NDArray[np.int64]]]
    timers: Output


class CompiledProcessOperator(KeyedProcessOperator):
    """Runs `process_element` for all rows of a batch at once, and `on_timer` for all timers that are due.

    `KeyedProcessOperator` is its way row by row. Timers that set or delete others which are due with them fire that
    way: what comes of them depends on their order.
    """

    _schema: pa.Schema
    _given_schema: pa.Schema | None = None
    _program: EmittingProgram | None = None
    _key_schema: pa.Schema | None = None
    _timer_program: EmittingProgram | None = None

    def _create_backend(self, context: OperatorContext) -> KeyedStateBackend:
        return columnar_backend(context, self._keys)

    def _program_of(
        self, translate: Callable[[KeyedMethods], EmittingTranslation], given: pa.Schema
    ) -> EmittingProgram | None:
        """The program of a method; None where it is left to plain Python."""
        methods = KeyedMethods(self._given, self._keys, self._timed)
        program = unless_refused(
            lambda: EmittingProgram(_check(translate(methods), self._given, given, self._schema), given),
            may_fall_back(self._given),
        )
        if program is not None and program.translation.walked and self._context.config.state_backend != "heap":
            _LOG.warning(
                "compiled: %s goes over all entries of a map, whose order on %s is that of bytes; it runs as plain "
                "Python, row by row",
                function_name(self._given),
                self._context.config.state_backend,
            )
            return None
        return program

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        schema = batch.data.schema
        self._bind(input_index, schema, self._keys)
        if self._given_schema != schema:
            self._given_schema = schema
            self._program = self._program_of(lambda methods: methods.process_element(schema), schema)
        if self._program is None or batch.num_rows < _few_rows(self._program):
            super().process_batch(batch, input_index, out)
            return
        given = keyed_batch(batch, self._keys)
        computed = self._computed(self._program, given, Moment(self._context.clock.now_ms(), self._watermark))
        if computed is None:
            super().process_batch(batch, input_index, out)
        else:
            self._commit(self._program, given, computed, out)

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        self._watermark = self._keyed.watermark = watermark.timestamp
        if self._fire_at_once(self._keyed.event_timers, watermark.timestamp, out):
            return watermark
        return super().on_watermark(watermark, out)

    def on_processing_time(self, now_ms: int, out: Collector) -> None:
        if not self._fire_at_once(self._keyed.processing_timers, now_ms, out):
            super().on_processing_time(now_ms, out)

    def _fire_at_once(self, queue: TimerQueue, limit: int, out: Collector) -> bool:
        """Let the timers up to `limit` fire; False if nothing was done."""
        due = queue.take_due(limit)
        if not due.entries:
            return True
        if len(due.entries) < FEW_ROWS:
            queue.put_back(due)
            return False
        keys = self._keyed.key_batch(due.keys)
        if self._key_schema is None:
            self._key_schema = keys.schema
            self._timer_program = self._program_of(lambda methods: methods.on_timer(keys.schema), keys.schema)
        if self._timer_program is None or len(due.entries) < _few_rows(self._timer_program):
            queue.put_back(due)
            return False
        given = keyed_batch(Batch(keys, pa.array(due.times, pa.int64())), self._keys)
        moment = Moment(self._context.clock.now_ms(), self._watermark, queue is self._keyed.event_timers)
        computed = self._computed(self._timer_program, given, moment)
        if computed is None or _meddle(computed.timers, moment.is_event_time, limit):
            queue.put_back(due)
            return False
        queue.settle(due)
        self._commit(self._timer_program, given, computed, out)
        return True

    def _computed(self, program: EmittingProgram, given: KeyedBatch, moment: Moment) -> _Computed | None:
        """What the rows come to; None where the plain function must run."""
        backend = self._keyed.backend
        backend.clear_current_key()
        backend.set_current_keys(given.keys)
        try:
            handles = [getattr(self._function, name) for name in program.translation.states]
            columns = [handle.values() for handle in handles]
        finally:
            backend.clear_current_key()
        times = None if given.timestamps is None else given.timestamps.to_numpy()
        states = partial(getattr, self._function)
        collected = program.collected(states, self._key_of(given), given.keys.num_rows)
        try:
            processed = program.run(given.data, times, moment, given.groups, columns, collected)
        finally:
            backend.clear_current_key()
        if processed is None:
            return None
        results, timers, *sides = processed.outputs
        declared = (
            as_declared(results.columns, self._schema)
            if results.columns
            else pa.RecordBatch.from_pylist([], self._schema)
        )
        emitted = []
        for tag, side in zip(program.translation.sides, sides, strict=True):
            assert tag.schema is not None
            data = as_declared(side.columns, tag.schema)
            if data is None:
                return None
            emitted.append((tag, data, side.origin))
        return None if declared is None else _Computed(processed, (declared, results.origin), emitted, timers)

    def _key_of(self, given: KeyedBatch) -> Callable[[int], None]:
        """What makes the key of a group the current one."""
        keys = cache(lambda: key_values(batch_rows(given.keys, self._context.where), self._keys))
        return lambda group: self._keyed.backend.set_current_key(keys()[group])

    def _commit(self, program: EmittingProgram, given: KeyedBatch, computed: _Computed, out: Collector) -> None:
        """Update states and timers, and emit rows."""
        self._write(program, given, computed.processed)
        self._set_timers(given, computed.timers)
        for tag, data, origin in computed.sides:
            self._sides.emit(tag, data, self._times_at(given, origin))
        data, origin = computed.results
        times = self._times_at(given, origin)
        limit = self._context.config.max_batch_rows
        for start in range(0, len(data), limit):
            out.collect(Batch(data.slice(start, limit), None if times is None else times.slice(start, limit)))

    def _times_at(self, given: KeyedBatch, origin: npt.NDArray[np.int64]) -> pa.Int64Array | None:
        """The timestamps of what comes from the rows `origin`."""
        if not self._timed or not len(origin):
            return None
        if given.timestamps is None:
            raise unknown_timestamp(self._context.where)
        return given.timestamps.take(pa.array(origin))

    def _write(self, program: EmittingProgram, given: KeyedBatch, processed: Processed) -> None:
        backend = self._keyed.backend
        current: npt.NDArray[np.bool_] | None = None
        try:
            for name, update in zip(program.translation.states, processed.updates, strict=True):
                if not update.is_touched.any():
                    continue
                if current is None or not np.array_equal(current, update.is_touched):
                    # To look keys up costs as much as to write: states that change together share it.
                    current = update.is_touched
                    backend.set_current_keys(given.keys.filter(pa.array(current)))
                getattr(self._function, name).update_values(update.values)
            for write in processed.writes:
                write()
        finally:
            backend.clear_current_key()

    def _set_timers(self, given: KeyedBatch, timers: Output) -> None:
        if not len(timers.origin):
            return
        groups = given.groups[timers.origin]
        calls, times = (timers.columns[name].to_numpy() for name in ("call", "time"))
        first = _changes(groups, calls, times)
        numbers, at = np.unique(groups[first], return_inverse=True)
        keys = key_values(batch_rows(given.keys.take(pa.array(numbers)), self._context.where), self._keys)
        event, processing = self._keyed.event_timers, self._keyed.processing_timers
        act = (event.register, event.delete, processing.register, processing.delete)
        for call, time, key in zip(calls[first].tolist(), times[first].tolist(), at.tolist(), strict=True):
            act[call](time, keys[key])


def _few_rows(program: EmittingProgram) -> int:
    """Fewer rows than these are left to plain Python."""
    translation = program.translation
    return FEW_ROWS_OF_MANY if translation.lists or translation.maps else FEW_ROWS


def _changes(
    groups: npt.NDArray[np.int64], calls: npt.NDArray[np.int64], times: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Those of the calls for timers, in order, that are not the same as the one before of their key."""
    order = np.argsort(groups, kind="stable")
    same = np.ones(max(0, len(order) - 1), np.bool_)
    for column in (groups, calls, times):
        same &= column[order[1:]] == column[order[:-1]]
    return np.sort(np.concatenate([order[:1], order[1:][~same]]))


def _meddle(timers: Output, is_event_time: bool, limit: int) -> bool:
    """Whether timers that fire set or delete some that are due with them."""
    if not len(timers.origin):
        return False
    calls, times = (timers.columns[name].to_numpy() for name in ("call", "time"))
    of_event_time = calls < TIMER_CALLS.index("register_processing_time_timer")
    return bool(((of_event_time == is_event_time) & (times <= limit)).any())
