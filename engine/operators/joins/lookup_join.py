"""Enriches the rows of a stream from a table outside it.

For each batch the table is asked once, for the distinct keys that the cache does not know. Rows keep their order, their
timestamps and their kinds; a row meets every row of the table with its key, in the table's order. Rows with a null in a
key column meet none.

What is looked up is what the table says when the row passes; a restored job may look up something else. Source: Flink's
documentation, "Lookup Join".
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.aggregates.accumulators import plain
from penstock.engine.changelog import WITH_BEFORE_IMAGES
from penstock.engine.columns import mask_of
from penstock.engine.connectors import ConnectorContext, LookupTable
from penstock.engine.durations import format_duration
from penstock.engine.elements import Batch, concat_record_batches, table_to_record_batch
from penstock.engine.errors import RecordError
from penstock.engine.operators.base import USER_FAILURES, Collector, Operator, OperatorContext
from penstock.engine.operators.join_columns import LEFT, Int64s, JoinColumns, JoinRows, conformed, plain_schema, taken
from penstock.engine.operators.joins.join_buffers import codes_are_keys, key_codes, parts, spread
from penstock.engine.operators.joins.lookup_cache import CachedRows, LookupCache
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.engine.row_numbers import distinct_of, groups_of


@dataclass(frozen=True, slots=True)
class LookupRetry:
    """Keys without a row in the table are looked up again, so that rows may come later than those that need them.

    Args:
        attempts: how often, behind the first lookup.
        delay_ms: how long to wait before each; the rows behind, and checkpoints, wait as well.
    """

    attempts: int
    delay_ms: int

    def describe(self) -> str:
        """For people."""
        return f"again {self.attempts} times after {format_duration(self.delay_ms)}"


@dataclass(frozen=True, slots=True)
class LookupJoinSpec(OperatorSpec):
    """Creates the operator that looks rows up in `table`.

    Args:
        table: the right side.
        columns: the inputs and the columns of the result; the right side's are those of the table.
        how: `"inner"`, or `"left"` to keep rows that the table does not have.
        cache: keeps looked-up rows; None asks the table for each batch.
        condition: says of pairs, with the columns of the result, which meet; null counts as false. None: all do.
        retry: of keys that the table does not have; None takes its first answer.
    """

    table: LookupTable
    columns: JoinColumns
    how: str = "inner"
    cache: LookupCache | None = None
    condition: Callable[[pa.RecordBatch], pa.BooleanArray] | None = None
    retry: LookupRetry | None = None

    def create(self) -> LookupJoin:
        return LookupJoin(self)

    def describe(self) -> str:
        cached = f", {self.cache.describe()}" if self.cache is not None else ""
        again = "" if self.retry is None else f", {self.retry.describe()}"
        return f"lookup_join({type(self.table).__name__}, {self.columns.describe()}, {self.how}{cached}{again})"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(WITH_BEFORE_IMAGES,), emits=None)


class LookupJoin(Operator):
    """Asks the table, or the cache, for the keys of each batch."""

    def __init__(self, join: LookupJoinSpec) -> None:
        self._join = join
        self._table = copy.copy(join.table)
        self._schema = plain_schema(join.table.schema)
        self._keys = join.columns.right.keys
        self._opened = False
        self.cache: CachedRows | None = None
        """What is kept, with its counters of hits and misses."""

    def open(self, context: OperatorContext) -> None:
        self._context = context
        self._rows = JoinRows(self._join.columns, context.where, context.config.max_parallelism)
        if self._join.cache is not None:
            self.cache = CachedRows(self._join.cache, self._schema)
        connector_context = ConnectorContext(
            context.operator, context.subtask, context.parallelism, context.clock, metrics=context.metrics.group
        )
        self._opened = True
        try:
            self._table.open(connector_context)
        except USER_FAILURES as error:
            raise context.life_cycle_error(error, "open(context)") from error

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        rows = self._rows.take_in(LEFT, batch.data)
        with_key, keys, key_of = self._distinct(rows)
        found, begins, lengths = self._look_up(keys)
        if self._join.condition is None and len(key_of) == rows.num_rows and (lengths == 1).all():
            # Each row meets one.
            self._emit(batch, rows, [(np.arange(rows.num_rows), begins[key_of])], found, out)
            return
        first = np.zeros(rows.num_rows, np.int64)
        count = np.zeros(rows.num_rows, np.int64)
        first[with_key], count[with_key] = begins[key_of], lengths[key_of]
        # A row that is null everywhere stands in for what is not there.
        padded = concat_record_batches([found, _null_row(self._schema)])
        if self._join.condition is None and self._join.how == "left":
            missing = count == 0
            first[missing], count[missing] = found.num_rows, 1
        pairs: Iterable[tuple[Int64s, Int64s]] = spread(first, first + count)
        if self._join.condition is not None:
            pairs = self._meeting(self._join.condition, rows, padded, pairs)
        self._emit(batch, rows, pairs, padded, out)

    def _emit(
        self,
        batch: Batch,
        rows: pa.RecordBatch,
        pairs: Iterable[tuple[Int64s, Int64s]],
        found: pa.RecordBatch,
        out: Collector,
    ) -> None:
        """Emit pairs of places in the rows of the batch and in what was found."""
        for of, places in pairs:
            for part in parts((rows, of), (found, places)):
                data = self._rows.pairs(rows, of[part], found, places[part])
                out.collect(Batch(data, _taken(batch.timestamps, of[part]), _taken(batch.kinds, of[part])))

    def _meeting(
        self,
        condition: Callable[[pa.RecordBatch], pa.BooleanArray],
        rows: pa.RecordBatch,
        padded: pa.RecordBatch,
        pairs: Iterable[tuple[Int64s, Int64s]],
    ) -> list[tuple[Int64s, Int64s]]:
        """The pairs for which the condition is true; of a left join also rows without any, in the order of the rows."""
        chosen = []
        for of, places in pairs:
            meets = condition(self._rows.pairs(rows, of, padded, places)).fill_null(False)
            mask = mask_of(meets)
            chosen.append((of[mask], places[mask]))
        if self._join.how != "left":
            return chosen
        every = np.concatenate([np.empty(0, np.int64), *(of for of, _ in chosen)])
        alone = np.setdiff1d(np.arange(rows.num_rows), every)
        of = np.concatenate([every, alone])
        places = np.concatenate([*(found for _, found in chosen), np.full(len(alone), padded.num_rows - 1)])
        order = np.argsort(of, kind="stable")
        return [(of[order], places[order])]

    def _distinct(self, rows: pa.RecordBatch) -> tuple[Int64s, pa.RecordBatch, Int64s]:
        """The rows whose key has no null, their distinct keys, and the number of each row's key among them."""
        columns = self._rows.keys(LEFT, rows)
        if any(column.null_count for column in columns):
            valid = np.ones(rows.num_rows, np.bool_)
            for column in columns:
                valid &= mask_of(column.is_valid())
            with_key = np.flatnonzero(valid)
            columns = [taken(column, with_key) for column in columns]
        else:
            with_key = np.arange(rows.num_rows)
        numbers, distinct = distinct_of(columns)
        schema = pa.schema([self._schema.field(name) for name in self._keys])
        return with_key, conformed(pa.RecordBatch.from_arrays(distinct, list(self._keys)), schema), numbers

    def _look_up(self, keys: pa.RecordBatch) -> tuple[pa.RecordBatch, Int64s, Int64s]:
        """Rows of the table, and for each key the range of its rows there: begin and length."""
        if not keys.num_rows:
            return pa.RecordBatch.from_pylist([], schema=self._schema), np.empty(0, np.int64), np.empty(0, np.int64)
        if self.cache is None:
            rows, lengths = self._found(keys)
            return rows, np.cumsum(lengths) - lengths, lengths
        # Times as numbers: Python's own have no nanoseconds.
        columns = [key_codes([c]).tolist() if codes_are_keys([c.type]) else c.to_pylist() for c in keys.columns]
        values = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        now_ms = self._context.clock.now_ms()
        begins, lengths = self.cache.find(values, now_ms)
        known = np.flatnonzero(lengths > 0)
        found = self.cache.take(begins[known], lengths[known])
        begins[known] = np.cumsum(lengths[known]) - lengths[known]
        asked = np.flatnonzero(lengths < 0)
        if not len(asked):
            return found, begins, lengths
        rows, counts = self._found(keys.take(pa.array(asked)))
        begins[asked] = found.num_rows + np.cumsum(counts) - counts
        lengths[asked] = counts
        self.cache.add([values[index] for index in asked.tolist()], counts, rows, now_ms)
        return concat_record_batches([found, rows]), begins, lengths

    def _found(self, keys: pa.RecordBatch) -> tuple[pa.RecordBatch, Int64s]:
        """As `_ask`, and again for keys without a row, as the retry says."""
        rows, counts = self._ask(keys)
        retry, clock = self._join.retry, self._context.clock
        for _ in range(0 if retry is None else retry.attempts):
            missing = np.flatnonzero(counts == 0)
            if retry is None or not len(missing):
                break
            clock.wait_until(clock.monotonic() + retry.delay_ms / 1000)
            more, found = self._ask(keys.take(pa.array(missing)))
            key_of = np.concatenate([np.repeat(np.arange(len(counts)), counts), np.repeat(missing, found)])
            counts[missing] = found
            order = np.argsort(key_of, kind="stable")
            rows = concat_record_batches([rows, more]).take(pa.array(order))
        return rows, counts

    def _ask(self, keys: pa.RecordBatch) -> tuple[pa.RecordBatch, Int64s]:
        """The table's rows for distinct keys, in the order of the keys, and how many each key has."""
        try:
            rows = self._table.lookup(keys)
        except USER_FAILURES as error:
            raise self._context.user_code_error(error, keys.to_pylist()) from error
        rows = self._checked(rows)
        if rows.num_rows == keys.num_rows and all(rows.column(name).equals(keys.column(name)) for name in self._keys):
            return rows, np.ones(keys.num_rows, np.int64)
        together = [pa.chunked_array([keys.column(name), rows.column(name)]) for name in self._keys]
        ids = groups_of(together, keys.num_rows + rows.num_rows).ids
        key_of = ids[keys.num_rows :]
        # Rows that nobody asked for have numbers behind those of the keys.
        places = np.flatnonzero(key_of < keys.num_rows)
        order = places[np.argsort(key_of[places], kind="stable")]
        return rows.take(pa.array(order)), np.bincount(key_of[order], minlength=keys.num_rows)

    def _checked(self, rows: object) -> pa.RecordBatch:
        where = f"{self._context.where}: lookup() of {type(self._table).__name__}"
        if not isinstance(rows, pa.Table | pa.RecordBatch):
            raise RecordError(f"{where} returned {type(rows).__name__}; return a pyarrow Table or RecordBatch")
        batch = table_to_record_batch(rows) if isinstance(rows, pa.Table) else rows
        missing = [name for name in self._schema.names if name not in batch.schema.names]
        if missing:
            raise RecordError(f"{where} returned no column {missing[0]!r}, which its schema has")
        columns = [plain(batch.column(name)) for name in self._schema.names]
        try:
            typed = [
                pa.nulls(len(column), field.type) if pa.types.is_null(column.type) else column.cast(field.type)
                for column, field in zip(columns, self._schema, strict=True)
            ]
        except pa.ArrowException as error:
            raise RecordError(f"{where} returned columns of other types than its schema has: {error}") from error
        return pa.RecordBatch.from_arrays(typed, schema=self._schema)

    def close(self) -> None:
        if self._opened:
            self._opened = False
            try:
                self._table.close()
            except USER_FAILURES as error:
                raise self._context.life_cycle_error(error, "close()") from error


def _taken(values: pa.Array | None, indices: Int64s) -> pa.Array | None:
    return None if values is None else taken(values, indices)


def _null_row(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in schema], schema=schema)
