"""The operator that holds a table's constraints before its sink: NOT NULL, and the lengths of texts and bytes.

Source: Flink's documentation, "table.exec.sink.*-enforcer".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engine.changelog import ANY_MODE
from penstock.engine.elements import Batch
from penstock.engine.errors import RecordError
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.tables import types as t
from penstock.tables.plan.nodes import Column
from penstock.tables.types import MAX_LENGTH, Kind, SqlType


@dataclass(frozen=True, slots=True)
class Constraint:
    """What holds for one column.

    Args:
        column: its place.
        name, type: of the column.
        nulls: ERROR or DROP.
        lengths: IGNORE, TRIM_PAD or ERROR.
        nested: IGNORE, ROWS or ROWS_AND_COLLECTIONS: how far below the column it holds.
    """

    column: int
    name: str
    type: SqlType
    nulls: str
    lengths: str
    nested: str

    @property
    def is_about_nulls(self) -> bool:
        """Whether values that are there may be whatever they are."""
        sized = _has_lengths(self.type, self.lengths, self.nested)
        return not sized and not _has_nested_nulls(self.type, self.nested)


def constraints_of(
    wanted: Sequence[Column], given: Sequence[Column], nulls: str, lengths: str, nested: str
) -> tuple[Constraint, ...]:
    """The constraints of the columns that may be broken."""
    found = []
    for place, (column, value) in enumerate(zip(wanted, given, strict=True)):
        may_be_null = value.type.nullable and not column.type.nullable
        if may_be_null or _has_lengths(column.type, lengths, nested) or _has_nested_nulls(column.type, nested):
            found.append(Constraint(place, column.name, column.type, nulls, lengths, nested))
    return tuple(found)


def _below(kind: SqlType, nested: str) -> list[SqlType]:
    if kind.kind is Kind.ROW and nested != "IGNORE":
        return [field.type for field in kind.fields]
    return list(kind.parts) if nested == "ROWS_AND_COLLECTIONS" else []


def _has_lengths(kind: SqlType, lengths: str, nested: str) -> bool:
    if lengths == "IGNORE":
        return False
    sized = kind.kind in (*t.CHARACTERS, *t.BYTES_KINDS) and kind.precision != MAX_LENGTH
    return sized or any(_has_lengths(part, lengths, nested) for part in _below(kind, nested))


def _has_nested_nulls(kind: SqlType, nested: str) -> bool:
    return any(not part.nullable or _has_nested_nulls(part, nested) for part in _below(kind, nested))


class _DropError(Exception):
    """The row is to be dropped."""


@dataclass(frozen=True, slots=True)
class ConstraintsSpec(OperatorSpec):
    """Creates the operator.

    Args:
        constraints: what holds.
        schema: of the table.
    """

    constraints: tuple[Constraint, ...]
    schema: pa.Schema

    def create(self) -> Operator:
        return Constraints(self)

    def describe(self) -> str:
        return f"constraints({', '.join(constraint.name for constraint in self.constraints)})"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(ANY_MODE,), emits=None)


class Constraints(Operator):
    """Changes, drops or refuses rows that break a constraint."""

    def __init__(self, spec: ConstraintsSpec) -> None:
        self._constraints = [(constraint, constraint.is_about_nulls) for constraint in spec.constraints]
        self._schema = spec.schema

    def open(self, context: OperatorContext) -> None:
        self._where = context.where

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        kept = np.ones(batch.num_rows, np.bool_)
        columns = list(batch.data.columns)
        for constraint, is_about_nulls in self._constraints:
            if is_about_nulls and not columns[constraint.column].null_count:
                continue
            values = []
            for row, value in enumerate(columns[constraint.column].to_pylist()):
                try:
                    values.append(self._checked(value, constraint.type, constraint.name, constraint))
                except _DropError:
                    values.append(value)
                    kept[row] = False
            columns[constraint.column] = pa.array(values, self._schema.types[constraint.column])
        result = batch.with_data(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        if not kept.all():
            result = result.filter(pa.array(kept))
        if result.num_rows:
            out.collect(result)

    def _checked(self, value: Any, kind: SqlType, path: str, constraint: Constraint) -> Any:
        if value is None:
            return self._null(kind, path, constraint)
        if kind.kind in (*t.CHARACTERS, *t.BYTES_KINDS):
            return self._sized(value, kind, path, constraint)
        if kind.kind is Kind.ROW and constraint.nested != "IGNORE":
            return {f.name: self._checked(value[f.name], f.type, f"{path}.{f.name}", constraint) for f in kind.fields}
        if kind.parts and constraint.nested == "ROWS_AND_COLLECTIONS":
            if kind.kind is Kind.ARRAY:
                return [self._checked(item, kind.parts[0], f"{path}[element]", constraint) for item in value]
            types = kind.parts if kind.kind is Kind.MAP else (kind.parts[0], t.INT)
            names = (f"{path}[key]", f"{path}[value]")
            return [
                tuple(
                    self._checked(part, one, name, constraint)
                    for part, one, name in zip(pair, types, names, strict=True)
                )
                for pair in value
            ]
        return value

    def _null(self, kind: SqlType, path: str, constraint: Constraint) -> None:
        if kind.nullable:
            return
        if constraint.nulls == "DROP":
            raise _DropError
        raise RecordError(
            f"{self._where}: column '{path}' is NOT NULL, and a row has no value there; filter such rows in the query, "
            "or SET 'table.exec.sink.not-null-enforcer' = 'DROP' to leave them out"
        )

    def _sized(self, value: Any, kind: SqlType, path: str, constraint: Constraint) -> Any:
        size, fixed = kind.precision, kind.kind in (Kind.CHAR, Kind.BINARY)
        if constraint.lengths == "IGNORE" or size == MAX_LENGTH or len(value) == size:
            return value
        if len(value) < size and not fixed:
            return value
        if constraint.lengths == "ERROR":
            raise RecordError(
                f"{self._where}: column '{path}' is {kind.with_nullable(True)}, and a row has a value of length "
                f"{len(value)} there; cast it in the query, or SET 'table.exec.sink.type-length-enforcer' = 'TRIM_PAD' "
                "to have such values cut and padded"
            )
        if len(value) > size:
            return value[:size]
        return value.ljust(size, " " if isinstance(value, str) else b"\0")
