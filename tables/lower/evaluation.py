"""Computes bound expressions on the columns of a batch.

The operators of `calc.py` use it. A part that may fail (a division, a cast of a text) is computed only for the rows
that need it: in branches of CASE, and on the right of AND and OR.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.tables.expressions import (
    Conditional,
    Constant,
    Conversion,
    Expression,
    FunctionCall,
    InputColumn,
    UserCall,
    columns_in,
)
from penstock.tables.functions.casts import cast_values
from penstock.tables.functions.registry import SCALAR_FUNCTIONS
from penstock.tables.functions.signatures import CallValues, SessionValues
from penstock.tables.plan.expression_traits import is_fallible
from penstock.tables.types import Kind, arrow_type

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The rows that expressions are computed for.

    Args:
        columns: of the input; those that no expression reads may be None.
        rows: how many rows.
        session: what functions may know.
    """

    columns: Sequence[pa.Array | None]
    rows: int
    session: SessionValues

    def value(self, expression: Expression) -> pa.Array:
        """The expression's values, one a row.

        Raises:
            CastError, ZeroDivisionError, pa.ArrowInvalid, ValueError: a row has none.
        """
        match expression:
            case InputColumn():
                column = self.columns[expression.index]
                assert column is not None, "columns that are read are there"
                return column
            case Constant():
                return self._constant(expression)
            case Conversion():
                return self._converted(expression)
            case Conditional():
                return self._conditional(expression)
            case FunctionCall():
                return self._call(expression)
            case UserCall():
                given = [self.value(argument) for argument in expression.arguments]
                return expression.function.evaluate(expression.name, given, self.rows)
        raise AssertionError(expression)

    def mask(self, condition: Expression) -> Mask:
        """Where the condition is true."""
        values = self.value(condition)
        if pa.types.is_null(values.type):
            return np.zeros(self.rows, np.bool_)
        mask: Mask = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
        return mask

    def where(self, mask: Mask, *read: Expression) -> Evaluation:
        """Some of the rows, with the columns that some expressions read."""
        chosen = pa.array(mask)
        needed = set().union(*map(columns_in, read))
        columns = [
            column.filter(chosen) if column is not None and place in needed else None
            for place, column in enumerate(self.columns)
        ]
        return replace(self, columns=columns, rows=int(mask.sum()))

    def _constant(self, constant: Constant) -> pa.Array:
        kind = arrow_type(constant.type)
        if constant.value is None:
            return pa.nulls(self.rows, kind)
        return pa.repeat(pa.scalar(constant.value, kind), self.rows)

    def _converted(self, conversion: Conversion) -> pa.Array:
        operand = conversion.operand
        return cast_values(self.value(operand), operand.type, conversion.type, conversion.safe, self.session)

    def _call(self, call: FunctionCall) -> pa.Array:
        if call.name in ("AND", "OR") and is_fallible(call.arguments[1]):
            return self._lazy(call)
        kind = arrow_type(call.type)
        if not self.rows:
            # Functions ask the first row for what is the same in all.
            return pa.array([], kind)
        columns = [self.value(argument) for argument in call.arguments]
        types = [argument.type for argument in call.arguments]
        function = SCALAR_FUNCTIONS[call.name]
        literals = {place for place, argument in enumerate(call.arguments) if isinstance(argument, Constant)}
        found = function.evaluate(CallValues(columns, types, call.type, self.rows, self.session, literals))
        if isinstance(found, pa.ChunkedArray):
            found = found.combine_chunks()
        return found if found.type == kind or call.type.kind is Kind.NULL else found.cast(kind)

    def _lazy(self, call: FunctionCall) -> pa.Array:
        """AND and OR whose right side is computed where the left one does not decide."""
        left = self.value(call.arguments[0]).cast(pa.bool_())
        decides = call.name == "OR"
        open_ = pc.fill_null(pc.not_equal(left, decides), True).to_numpy(zero_copy_only=False)
        right = self.where(open_, call.arguments[1]).value(call.arguments[1]).cast(pa.bool_())
        spread = pc.replace_with_mask(pa.nulls(self.rows, pa.bool_()), pa.array(open_), right)
        return pc.and_kleene(left, spread) if call.name == "AND" else pc.or_kleene(left, spread)

    def _conditional(self, conditional: Conditional) -> pa.Array:
        kind = arrow_type(conditional.type)
        rest = np.ones(self.rows, np.bool_)
        pieces: list[pa.Array] = []
        places: list[npt.NDArray[np.int64]] = []
        for condition, value in (*conditional.branches, (None, conditional.default)):
            read = (value,) if condition is None else (condition, value)
            part = self.where(rest, *read) if not rest.all() else self
            taken = np.ones(part.rows, np.bool_) if condition is None else part.mask(condition)
            rows = np.flatnonzero(rest)[taken]
            if len(rows):
                chosen = part.where(taken, value) if not taken.all() else part
                pieces.append(chosen.value(value).cast(kind))
                places.append(rows)
                rest[rows] = False
        if not pieces:
            return pa.array([], kind)
        if len(pieces) == 1:
            return pieces[0]
        order = np.empty(self.rows, np.int64)
        order[np.concatenate(places)] = np.arange(self.rows)
        return pa.concat_arrays(pieces).take(pa.array(order))
