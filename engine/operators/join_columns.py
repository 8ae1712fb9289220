"""The columns of joins: which the result has, and how it is made of rows of both sides.

The verbs check a join with `JoinColumns` where it is written; the operators hold a `JoinRows`, which takes the rows in,
puts results together, and captures the rows that are kept. It guarantees that a row is taken in with the
types that its side has had so far, and that every batch of results has the same columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.aggregates.accumulators import plain, plain_type
from penstock.engine.elements import concat_record_batches, join_schemas, table_to_record_batch
from penstock.engine.errors import ColumnTypeError, GraphError, StateError
from penstock.engine.operators.base import SchemaOrUnknown
from penstock.engine.operators.saved_aggregates import ANOTHER_UID
from penstock.engine.state.capture import TableCapture, complete_table
from penstock.engine.state.keys.groups import check_key_column
from penstock.engine.state.snapshot import KEY_GROUP, Redistribution, StateTable, groups_of_rows, keyed_table

LEFT: Final = 0
RIGHT: Final = 1
SIDES: Final = ("left", "right")
"""The names of the inputs, and of their tables in snapshots."""
SUFFIX: Final = "_right"

TIMESTAMP: Final = "__timestamp"
FIRED_UNTIL: Final = "__fired_until"
_RESERVED: Final = frozenset({KEY_GROUP, TIMESTAMP, FIRED_UNTIL})
_ORDER: Final = "columns"

Int64s: TypeAlias = npt.NDArray[np.int64]
KeptRows: TypeAlias = Callable[[], tuple[Sequence[pa.RecordBatch], Mapping[str, Int64s]]]
"""Makes the rows that a join keeps of one side, in parts, and int64 columns beside them; called in any thread."""


@dataclass(frozen=True, slots=True)
class JoinSide:
    """One input of a join: the names of its key columns, and its columns where they are known."""

    keys: tuple[str, ...]
    schema: SchemaOrUnknown


@dataclass(frozen=True, slots=True)
class JoinColumns:
    """The columns of a join: all of the left side, then `between`, then those of the right side that are no keys.

    A column of the right side whose name is taken gets `suffix` behind it. All are nullable, but for `between`.

    Args:
        left, right: the inputs; their key columns are compared in order.
        suffix: goes behind names that are taken.
        between: what the operator adds: the bounds of windows.
    """

    left: JoinSide
    right: JoinSide
    suffix: str = SUFFIX
    between: tuple[pa.Field, ...] = ()

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        """The key columns of the left and of the right side."""
        return (self.left.keys, self.right.keys)

    def describe(self) -> str:
        """The keys, as `explain()` shows them: those with two names as an equation."""
        pairs = zip(self.left.keys, self.right.keys, strict=False)
        return ", ".join(one if one == other else f"{one} = {other}" for one, other in pairs)

    def bind(self, where: str) -> SchemaOrUnknown:
        """The columns of the result, or None where those of an input are not known yet.

        Args:
            where: the operation, for messages.

        Raises:
            GraphError: other numbers or types of keys, or a name that is taken even with the suffix.
        """
        self.check_sides(where)
        if self.left.schema is None or self.right.schema is None:
            return None
        return self.result(self.left.schema, self.right.schema, where)

    def check_sides(self, where: str) -> None:
        """Check the keys of both sides, as far as their columns are known; raises as `bind`."""
        if len(self.left.keys) != len(self.right.keys):
            raise GraphError(
                f"{where}: the left side is keyed by ({', '.join(self.left.keys)}), the right side by "
                f"({', '.join(self.right.keys)}); call key_by with as many columns on each, in the same order"
            )
        if self.left.schema is not None and self.right.schema is not None:
            self.check_keys(self.left.schema, self.right.schema, where)

    def result(self, left: pa.Schema, right: pa.Schema, where: str) -> pa.Schema:
        """The columns of the result for inputs with these columns; raises as `bind`."""
        self.check_keys(left, right, where)
        fields = [pa.field(field.name, plain_type(field.type)) for field in left]
        taken = {*left.names, *(field.name for field in self.between)}
        for field in self.between:
            if field.name in left.names:
                raise GraphError(
                    f"{where}: the left side has a column {field.name!r}, which is the name of a window's bound in the "
                    "result; give it another name with select(...), before key_by"
                )
        for field in self._right_values(right):
            name = field.name + self.suffix if field.name in taken else field.name
            fields.append(pa.field(name, plain_type(field.type)))
        fields[len(left) : len(left)] = self.between
        twice = [name for name, count in Counter(field.name for field in fields).items() if count > 1]
        if twice:
            raise GraphError(f"{where}: two columns of the result are named {twice[0]!r}; give another suffix=")
        return pa.schema(fields)

    def check_keys(self, left: pa.Schema, right: pa.Schema, where: str) -> None:
        """Check that the keys can be compared, and that no column has a name that snapshots need."""
        for schema in (left, right):
            for name in _RESERVED.intersection(schema.names):
                raise GraphError(f"{where}: {name!r} is the name of an internal column; rename it with select(...)")
        for one, other in zip(self.left.keys, self.right.keys, strict=True):
            kinds = [plain_type(check_key_column(s, n, where).type) for s, n in ((left, one), (right, other))]
            if kinds[0] != kinds[1] and not any(map(pa.types.is_null, kinds)):
                raise ColumnTypeError(
                    f"{where}: key {one!r} of the left side is {kinds[0]}, key {other!r} of the right side {kinds[1]}; "
                    f"make them equal with with_columns(...) and cast(...), before key_by"
                )

    def _right_values(self, right: pa.Schema) -> list[pa.Field]:
        return [field for field in right if field.name not in self.right.keys]


class JoinRows:
    """Takes in the rows of both sides, and makes results of them, in one subtask.

    Args:
        columns: the columns of the join.
        where: the operator and subtask, for messages.
        max_parallelism: number of key groups.
    """

    def __init__(self, columns: JoinColumns, where: str, max_parallelism: int) -> None:
        self._columns = columns
        self.where: Final = where
        """The operator and subtask, for messages."""
        self._max_parallelism = max_parallelism
        self._sides = (columns.left, columns.right)
        self._seen: list[pa.Schema | None] = [None, None]
        self._held = [None if side.schema is None else plain_schema(side.schema) for side in self._sides]
        self._result: pa.Schema | None = None

    def take_in(self, side: int, data: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with plain types (no dictionaries, no views), all columns nullable.

        Raises:
            RecordError: other columns than those of the rows before.
            GraphError: the keys of both sides cannot be compared.
        """
        schema = plain_schema(data.schema)
        rows = pa.RecordBatch.from_arrays([plain(column) for column in data.columns], schema=schema)
        held = self._held[side]
        if schema != self._seen[side]:
            self._seen[side] = schema
            joined = schema if held is None else join_schemas(held, schema, f"{self.where}, {SIDES[side]} side")
            if held is None or joined != held:
                held, self._held[side], self._result = joined, joined, None
            left, right = self._held
            if left is not None and right is not None:
                self._columns.check_keys(left, right, self.where)
        assert held is not None
        return conformed(rows, held)

    def keys(self, side: int, rows: pa.RecordBatch) -> list[pa.Array]:
        """The key columns of rows of one side."""
        return [rows.column(name) for name in self._sides[side].keys]

    def key_names(self, side: int) -> tuple[str, ...]:
        """The names of the key columns of one side."""
        return self._sides[side].keys

    def pairs(
        self,
        left: pa.RecordBatch,
        left_rows: Int64s,
        right: pa.RecordBatch,
        right_rows: Int64s,
        between: Sequence[pa.Array] = (),
    ) -> pa.RecordBatch:
        """Results of pairs: row i of `left_rows` with row i of `right_rows`, and the columns in between."""
        one = self._taken(LEFT, left, left_rows)
        fields = self._values_of_right()
        values: list[pa.Array] = []
        if fields:
            other = taken(right.select([field.name for field in fields]), right_rows)
            values = conformed(other, pa.schema(fields)).columns
        return pa.RecordBatch.from_arrays([*one.columns, *between, *values], schema=self._result_schema())

    def alone(
        self, side: int, rows: pa.RecordBatch, indices: Int64s, between: Sequence[pa.Array] = ()
    ) -> pa.RecordBatch:
        """Results of rows without a partner: the other side is null, the keys are theirs."""
        taken = self._taken(side, rows, indices)
        if side == LEFT:
            own = taken.columns
            values = [pa.nulls(len(indices), field.type) for field in self._values_of_right()]
        else:
            key_of = dict(zip(self._columns.left.keys, self._columns.right.keys, strict=True))
            own = [
                taken.column(key_of[field.name]).cast(field.type)
                if field.name in key_of
                else pa.nulls(len(indices), field.type)
                for field in self._schema(LEFT)
            ]
            values = [taken.column(field.name) for field in self._values_of_right()]
        return pa.RecordBatch.from_arrays([*own, *between, *values], schema=self._result_schema())

    def _taken(self, side: int, rows: pa.RecordBatch, indices: Int64s) -> pa.RecordBatch:
        return conformed(taken(rows, indices), self._schema(side))

    def _schema(self, side: int) -> pa.Schema:
        held = self._held[side]
        assert held is not None, "rows of both sides have come, or the verb has asked for their columns"
        return held

    def _values_of_right(self) -> list[pa.Field]:
        keys = self._columns.right.keys
        return [field for field in self._schema(RIGHT) if field.name not in keys]

    def _result_schema(self) -> pa.Schema:
        if self._result is None:
            self._result = self._columns.result(self._schema(LEFT), self._schema(RIGHT), self.where)
        return self._result

    def capture(self, kept: Sequence[KeptRows | None]) -> dict[str, TableCapture]:
        """The rows that an operator keeps, as keyed tables `left` and `right`: keys, other columns, what is beside.

        They are put together and sorted by key group later, in another thread. A third table says in which order the
        columns came, where the program did not.

        Args:
            kept: for each side what it keeps; None for a side that keeps no rows.
        """
        tables: dict[str, TableCapture] = {}
        order: list[dict[str, object]] = []
        for side, rows in enumerate(kept):
            if rows is None:
                continue
            schema, keys = self._schema(side), self._sides[side].keys
            made = partial(_side_table, rows, schema, keys, self._max_parallelism)
            tables[SIDES[side]] = TableCapture(Redistribution.KEYED, made)
            if self._sides[side].schema is None:
                order += [{"side": SIDES[side], "place": i, "name": n} for i, n in enumerate(schema.names)]
        if order:
            columns = pa.schema([("side", pa.string()), ("place", pa.int64()), ("name", pa.string())])
            tables[_ORDER] = complete_table(StateTable(Redistribution.UNION, pa.Table.from_pylist(order, columns)))
        return tables

    def restore(self, side: int, tables: Mapping[str, StateTable]) -> tuple[pa.RecordBatch, dict[str, Int64s]] | None:
        """What `capture` was given for one side: its rows, in order of arrival within a key, and what was beside.

        Raises:
            StateError: they were saved by other keys, or lack a column.
        """
        if SIDES[side] not in tables or not tables[SIDES[side]].data.num_rows:
            return None
        saved = tables[SIDES[side]].data
        rows = table_to_record_batch(saved.drop_columns([KEY_GROUP]))
        beside = {name: rows.column(name).to_numpy() for name in (TIMESTAMP, FIRED_UNTIL) if name in rows.schema.names}
        schema = self._sides[side].schema
        if schema is not None:
            names = schema.names
        else:
            order = {row["place"]: row["name"] for row in tables[_ORDER].data.to_pylist() if row["side"] == SIDES[side]}
            names = [order[place] for place in sorted(order)]
        self._check_saved(side, rows, names, saved.column(KEY_GROUP).to_numpy())
        return self.take_in(side, rows.select(names)), beside

    def _check_saved(
        self, side: int, rows: pa.RecordBatch, names: Sequence[str], groups: npt.NDArray[np.int32]
    ) -> None:
        """Make sure that saved rows have the columns, and are divided as rows that come now are."""
        saved, keys = [name for name in rows.schema.names if name not in _RESERVED], self._sides[side].keys
        state = f"{self.where}: the rows of the {SIDES[side]} side were saved"
        if missing := [name for name in (*keys, *names) if name not in saved]:
            raise StateError(
                f"{state} with the columns ({', '.join(saved)}), and {missing[0]!r} is not among them; keep the "
                f"columns of the join as they were, or {ANOTHER_UID}"
            )
        if (groups_of_rows(rows, keys, self._max_parallelism) != groups).any():
            raise StateError(
                f"{state} by other keys than ({', '.join(keys)}), or by keys of other types; key by the same columns "
                f"in the same order, or {ANOTHER_UID}"
            )


def taken(rows: pa.RecordBatch | pa.Array, indices: Int64s) -> pa.RecordBatch | pa.Array:
    """The rows, or values, at some places; those that are given where the places are all, in order."""
    if len(indices) == len(rows) and (indices == np.arange(len(indices))).all():
        return rows
    return rows.take(pa.array(indices))


def timed_rows(rows: Callable[[], tuple[Sequence[pa.RecordBatch], Int64s]] | None) -> KeptRows | None:
    """Rows with their timestamps, for `JoinRows.capture`; None for none."""
    if rows is None:
        return None

    def made() -> tuple[Sequence[pa.RecordBatch], Mapping[str, Int64s]]:
        parts, timestamps = rows()
        return parts, {TIMESTAMP: timestamps}

    return made


def _side_table(kept: KeptRows, schema: pa.Schema, keys: Sequence[str], max_parallelism: int) -> pa.Table:
    parts, beside = kept()
    table = pa.Table.from_batches([conformed(part, schema) for part in parts], schema)
    table = table.select([*keys, *(name for name in schema.names if name not in keys)])
    for name, values in beside.items():
        table = table.append_column(name, pa.array(values))
    return keyed_table(table, keys, max_parallelism).data


def same_keys(left: Sequence[pa.Array], left_rows: Int64s, right: Sequence[pa.Array], right_rows: Int64s) -> pa.Array:
    """For each pair of rows, whether all key columns are equal (a boolean array)."""
    one, other = pa.array(left_rows), pa.array(right_rows)
    equal = [pc.equal(a.take(one), b.take(other)) for a, b in zip(left, right, strict=True)]
    together = equal[0]
    for more in equal[1:]:
        together = pc.and_(together, more)
    return together


def conformed(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the types of `schema`, which differ at most where a column had nothing but nulls so far."""
    if rows.schema == schema:
        return rows
    return concat_record_batches([pa.RecordBatch.from_pylist([], schema=schema), rows])


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The columns with plain types (see `plain_type`), all nullable, without metadata."""
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])
