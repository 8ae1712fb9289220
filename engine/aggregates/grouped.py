"""Grouped aggregation of tables: named aggregates over key columns, by lift, combine and lower.

Called by the operators that aggregate (windows, running values) for each batch; keeps no state itself.
Guarantees that the result does not depend on how the rows were cut into parts, or how often parts were
combined (but for the rounding of floats).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from penstock.engine.aggregates.accumulators import (
    INTERNAL,
    Accumulator,
    FoldAccumulator,
    GroupAccumulator,
    SumAccumulator,
    plain,
    plain_type,
)
from penstock.engine.aggregates.functions import Aggregate
from penstock.engine.errors import GraphError
from penstock.engine.row_numbers import groups_of
from penstock.engine.state.keys.groups import check_key_column

_ROW: Final = "__row"
_EXPRESSION: Final = re.compile(r"col\((.+?)\)\.(count|first|last|max|mean|min|sum)\(\)")
"""How an expression that looks like an aggregate is shown."""


@dataclass(frozen=True, slots=True)
class GroupedAggregation:
    """Several aggregates over the same groups. A value, to be pickled.

    A table of accumulators has the key columns, then the accumulators (names that begin with `__`). Tables of
    several parts are joined by `pa.concat_tables(parts, promote_options="default")`, in order of arrival.

    Args:
        keys: the columns whose values make a group; none for a single group of all rows.
        aggregates: what to compute, by the name of the result.

    Attributes:
        folds: the accumulators that are folded column by column; each name once.
        grouped: the accumulators that are combined by group ids; each once.

    Raises:
        GraphError: no aggregate, or what is none; a key or result whose name is taken or begins with `__`.

    Example:
        >>> flights = pa.record_batch({"carrier": ["UA", "AA", "UA"], "distance": [1400, 1089, 719]})
        >>> aggregation = GroupedAggregation(["carrier"], {"far": aggregates.max("distance")})
        >>> aggregation.lower(aggregation.combine(aggregation.lift(flights, None))).to_pylist()
        [{'carrier': 'UA', 'far': 1400}, {'carrier': 'AA', 'far': 1089}]
    """

    keys: Sequence[str]
    aggregates: Mapping[str, Aggregate]
    folds: tuple[FoldAccumulator, ...] = field(init=False, repr=False)
    grouped: tuple[GroupAccumulator, ...] = field(init=False, repr=False)
    _read: tuple[str, ...] = field(init=False, repr=False)
    _bound: pa.Schema | None = field(init=False, repr=False, compare=False, default=None)
    """The columns of the rows that were lifted last, which are looked at where they are others."""
    _odd: tuple[str, ...] = field(init=False, repr=False, compare=False, default=())
    """Those of them that are read and have to become plain."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", tuple(self.keys))
        object.__setattr__(self, "aggregates", dict(self.aggregates))
        self._check_names()
        for name, aggregate in self.aggregates.items():
            if not isinstance(aggregate, Aggregate):
                raise GraphError(_no_aggregate(name, aggregate))
        folds: dict[str, FoldAccumulator] = {}
        grouped: dict[tuple[str, ...], GroupAccumulator] = {}
        for accumulator in self._accumulators():
            if isinstance(accumulator, GroupAccumulator):
                grouped[accumulator.names] = accumulator
            elif accumulator.name not in folds or (isinstance(accumulator, SumAccumulator) and accumulator.exact):
                folds[accumulator.name] = accumulator
        object.__setattr__(self, "folds", tuple(folds.values()))
        object.__setattr__(self, "grouped", tuple(grouped.values()))
        folded = (fold.column for fold in self.folds if fold.column is not None)
        read = (*self.keys, *folded, *(accumulator.column for accumulator in self.grouped))
        object.__setattr__(self, "_read", tuple(dict.fromkeys(read)))

    def _check_names(self) -> None:
        if not self.aggregates:
            raise GraphError("aggregate: give at least one aggregate, such as flights=penstock.count()")
        taken: set[str] = set()
        for name in (*self.keys, *self.aggregates):
            if name in taken:
                raise GraphError(f"aggregate: two result columns are named {name!r}; rename one of them")
            if name.startswith(INTERNAL):
                raise GraphError(
                    f"aggregate: the name {name!r} begins with {INTERNAL!r}, as only internal columns may; rename it"
                )
            taken.add(name)

    def _accumulators(self) -> list[Accumulator]:
        return [part for aggregate in self.aggregates.values() for part in aggregate.accumulators]

    def bind(self, schema: pa.Schema, where: str) -> pa.Schema:
        """The columns of the result for rows of `schema`: the keys, then a column for each aggregate.

        Args:
            schema: the stream's columns.
            where: the operation, for messages.

        Raises:
            MissingColumnError: a column that `schema` does not have.
            ColumnTypeError: a column of a type that cannot be a key, or that an aggregate does not take.
        """
        fields = [check_key_column(schema, key, where) for key in self.keys]
        keys = [pa.field(key.name, plain_type(key.type), key.nullable) for key in fields]
        results = [(name, aggregate.result_type(schema, where)) for name, aggregate in self.aggregates.items()]
        return pa.schema([*keys, *results])

    def lift(self, data: pa.RecordBatch, timestamps: pa.Int64Array | None) -> pa.Table:
        """The table of `lift_columns`."""
        return pa.table(self.lift_columns(data, timestamps))

    def lift_columns(self, data: pa.RecordBatch, timestamps: pa.Int64Array | None) -> dict[str, pa.Array]:
        """The accumulators of each row, behind its keys. Other columns are left out.

        Args:
            data: rows; dictionary and view columns become plain ones.
            timestamps: event timestamps of the rows (int64 ms), or None.

        Raises:
            MissingColumnError, ColumnTypeError: as for `bind`, where the rows are not what was bound.
        """
        if data.schema != self._bound:
            self.bind(data.schema, "aggregate")
            kinds = {name: data.schema.field(name).type for name in self._read}
            object.__setattr__(self, "_odd", tuple(name for name, kind in kinds.items() if plain_type(kind) != kind))
            object.__setattr__(self, "_bound", data.schema)
        columns = {name: data.column(name) for name in self._read}
        columns.update((name, plain(columns[name])) for name in self._odd)
        lifted = {key: columns[key] for key in self.keys}
        for fold in self.folds:
            rows = pa.nulls(data.num_rows) if fold.column is None else columns[fold.column]
            lifted[fold.name] = fold.lift(rows)
        for accumulator in self.grouped:
            arrays = accumulator.lift(columns[accumulator.column], timestamps)
            lifted.update(zip(accumulator.names, arrays, strict=True))
        return lifted

    def combine(
        self,
        table: pa.Table,
        by: Sequence[str] | None = None,
        also: Sequence[tuple[str, Literal["min", "max"]]] = (),
    ) -> pa.Table:
        """Accumulators with one row a group, groups in order of first occurrence; null keys make a group.

        Args:
            table: lifted or combined accumulators, in order of arrival.
            by: the columns that make a group; the keys if not given. With none, all rows are one group.
            also: further columns to combine, by their smallest or largest value.

        Returns:
            The columns `by`, the accumulators, and the columns of `also`. No rows if `table` has none.

        Raises:
            RecordError: a sum does not fit its type.
        """
        by = self.keys if by is None else by
        return combine_accumulators(table, by, self.folds, self.grouped, also)

    def lower(self, table: pa.Table) -> pa.Table:
        """The results for a table of accumulators: its key columns, then a column for each aggregate."""
        lowered = {key: table.column(key) for key in self.keys if key in table.column_names}
        lowered.update((name, aggregate.lower(table)) for name, aggregate in self.aggregates.items())
        return pa.table(lowered)


def combine_accumulators(
    table: pa.Table,
    by: Sequence[str],
    folds: Sequence[FoldAccumulator],
    grouped: Sequence[GroupAccumulator],
    also: Sequence[tuple[str, Literal["min", "max"]]] = (),
) -> pa.Table:
    """What `GroupedAggregation.combine` does, for some of its accumulators."""
    grouped_names = [name for accumulator in grouped for name in accumulator.names]
    names = [*by, *(fold.name for fold in folds), *grouped_names, *(name for name, _ in also)]
    if table.num_rows == 0:
        return table.select(names)
    for fold in folds:
        fold.check(table, by)
    combined = _fold(table, by, [*((fold.name, fold.function) for fold in folds), *also])
    if grouped:
        groups = groups_of([table.column(name) for name in by], table.num_rows)
        for accumulator in grouped:
            combined.update(zip(accumulator.names, accumulator.combine(table, groups), strict=True))
    return pa.table({name: combined[name] for name in names})


def refuse_unnamed(values: Sequence[object]) -> None:
    """Refuse aggregates that were given without a name for their result.

    Raises:
        GraphError: there are such; says how it is written.
    """
    if values:
        raise GraphError(
            f"aggregate: {values[0]!s:.100} comes without a name for its column; name each, as in "
            "aggregate(n=penstock.count(), total=penstock.sum('price'))"
        )


def _no_aggregate(name: str, given: object) -> str:
    called = _EXPRESSION.fullmatch(repr(given))
    remedy = (
        f"penstock.{called[2]}({called[1]!r})" if called else "one such as penstock.count() or penstock.sum('column')"
    )
    return f"aggregate: {name}={given!r:.200} is no aggregate; give {remedy}"


def _fold(table: pa.Table, by: Sequence[str], folds: Sequence[tuple[str, str]]) -> dict[str, pa.ChunkedArray]:
    """The groups' columns `by` and folded columns, by name, in order of first occurrence."""
    present = [(name, function) for name, function in folds if not pa.types.is_null(table.schema.field(name).type)]
    rows = table.append_column(_ROW, pa.array(np.arange(table.num_rows)))
    result = rows.group_by(list(by), use_threads=False).aggregate([(_ROW, "min"), *present])
    # Arrow numbers most groups in order of first occurrence, but not those whose hashes collide.
    first_rows = result.column(len(by)).to_numpy()
    if (first_rows[1:] < first_rows[:-1]).any():
        result = result.take(pa.array(np.argsort(first_rows, kind="stable")))
    columns = dict(zip([*by, _ROW, *(name for name, _ in present)], result.columns, strict=True))
    for name, _ in folds:
        if name not in columns:
            columns[name] = pa.chunked_array([pa.nulls(result.num_rows)])
    return columns
