"""Computes bound expressions on the columns of a batch.

The operators of `calc.py` use it. A part that may fail (a division, a cast of a text) is computed only for the rows
that need it: in branches of CASE, and on the right of AND and OR.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.columns import booleans, mask_of, picker
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
from penstock.tables.plan.expression_traits import is_fallible, is_repeatable
from penstock.tables.types import Kind, arrow_type

Mask = npt.NDArray[np.bool_]
Numbers: TypeAlias = "npt.NDArray[np.integer[Any]]"

_KEPT_BYTES: Final = 2 << 20
"""The columns of longer literals are made anew for each batch."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The rows that expressions are computed for.

    Args:
        columns: of the input; those that no expression reads may be None.
        rows: how many rows.
        session: what functions may know.
        literals: their columns, kept from batch to batch.
        sole_columns: by the ids of expressions, see `_sole_column`; kept in the same way.
    """

    columns: Sequence[pa.Array | None]
    rows: int
    session: SessionValues
    literals: dict[Expression, pa.Array] = field(default_factory=dict)
    sole_columns: dict[int, tuple[Expression, int | None]] = field(default_factory=dict)

    def value(self, expression: Expression) -> pa.Array:
        """The expression's values, one a row.

        Raises:
            CastError, ZeroDivisionError, pa.ArrowInvalid, ValueError: a row has none.
        """
        if isinstance(expression, InputColumn):
            column = self.columns[expression.index]
            assert column is not None, "columns that are read are there"
            return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
        if _is_literal(expression):
            return self._literal(expression)
        by_text = self._by_text(expression)
        if by_text is None:
            return self._computed(expression)
        values, numbers = by_text
        return values.take(pa.array(numbers))

    def _by_text(self, expression: Expression) -> tuple[pa.Array, Numbers] | None:
        """The values for each text of the one column that is read, which is a dictionary, and the number of each row's.

        None where that is not so. The dictionary may have texts that are in no row: what may fail is not computed for
        them.
        """
        if not any(isinstance(column, pa.DictionaryArray) for column in self.columns):
            return None
        sole = self._sole_column(expression)
        column = None if sole is None else self.columns[sole]
        if not isinstance(column, pa.DictionaryArray) or len(column.dictionary) > self.rows:
            return None
        texts, numbers = column.dictionary, column.indices
        if numbers.null_count:
            numbers = numbers.fill_null(len(texts))
            texts = pa.concat_arrays([texts, pa.nulls(1, texts.type)])
        columns = [texts if place == sole else None for place in range(len(self.columns))]
        return replace(self, columns=columns, rows=len(texts)).value(expression), numbers.to_numpy()

    def _sole_column(self, expression: Expression) -> int | None:
        """The one column that is read by an expression which cannot fail and is repeatable; None: it is another."""
        known = self.sole_columns.get(id(expression))
        if known is None:
            read = columns_in(expression)
            fits = len(read) == 1 and not is_fallible(expression) and is_repeatable(expression)
            # It is kept, too, so that no other gets its id.
            known = self.sole_columns[id(expression)] = expression, min(read) if fits else None
        return known[1]

    def _computed(self, expression: Expression) -> pa.Array:
        match expression:
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
        return mask_of(pc.fill_null(values, False))

    def where(self, mask: Mask, *read: Expression) -> Evaluation:
        """Some of the rows, with the columns that some expressions read."""
        pick = picker(mask)
        needed = set().union(*map(columns_in, read))
        columns = [
            pick(column) if column is not None and place in needed else None
            for place, column in enumerate(self.columns)
        ]
        return replace(self, columns=columns, rows=int(np.count_nonzero(mask)))

    def _literal(self, literal: Expression) -> pa.Array:
        """The same value for all rows."""
        kept = self.literals.get(literal)
        if kept is None or len(kept) < self.rows:
            kept = self._repeated(literal)
            if kept.nbytes <= _KEPT_BYTES and _is_keepable(literal):
                self.literals[literal] = kept
        return kept.slice(0, self.rows)

    def _repeated(self, literal: Expression) -> pa.Array:
        if isinstance(literal, Constant):
            kind = arrow_type(literal.type)
            if literal.value is None:
                return pa.nulls(self.rows, kind)
            return pa.repeat(pa.scalar(literal.value, kind), self.rows)
        assert isinstance(literal, Conversion), "there are no others"
        one = self._converted(literal) if self.rows < 1 else replace(self, rows=1)._converted(literal)
        return one if self.rows <= 1 else pa.repeat(one[0], self.rows)

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
        literals = {place for place, argument in enumerate(call.arguments) if _is_literal(argument)}
        found = function.evaluate(CallValues(columns, types, call.type, self.rows, self.session, literals))
        if isinstance(found, pa.ChunkedArray):
            found = found.combine_chunks()
        return found if found.type == kind or call.type.kind is Kind.NULL else found.cast(kind)

    def _lazy(self, call: FunctionCall) -> pa.Array:
        """AND and OR whose right side is computed where the left one does not decide."""
        left = self.value(call.arguments[0]).cast(pa.bool_())
        decides = call.name == "OR"
        open_ = mask_of(pc.fill_null(pc.not_equal(left, decides), True))
        right = self.where(open_, call.arguments[1]).value(call.arguments[1]).cast(pa.bool_())
        spread = pc.replace_with_mask(pa.nulls(self.rows, pa.bool_()), booleans(open_), right)
        return pc.and_kleene(left, spread) if call.name == "AND" else pc.or_kleene(left, spread)

    def _conditional(self, conditional: Conditional) -> pa.Array:
        kind = arrow_type(conditional.type)
        rest = np.ones(self.rows, np.bool_)
        pieces: list[pa.Array] = []
        order, end = np.empty(self.rows, np.int64), 0
        for condition, value in (*conditional.branches, (None, conditional.default)):
            rows = np.flatnonzero(rest if condition is None else self._fulfil(condition, rest))
            if 0 < len(rows) == self.rows:
                return self.value(value).cast(kind)
            if len(rows):
                values, numbers = self._of_rows(value, rows)
                pieces.append(values.cast(kind))
                order[rows] = numbers + end
                end += len(values)
                rest[rows] = False
        if not pieces:
            return pa.array([], kind)
        return pa.concat_arrays(pieces).take(pa.array(order))

    def _fulfil(self, condition: Expression, rest: Mask) -> Mask:
        """Those of some rows for which a condition is true; it is computed for no others, where it may fail."""
        if 2 * rest.sum() > self.rows and (rest.all() or not is_fallible(condition)):
            return rest & self.mask(condition)
        found = np.zeros(self.rows, np.bool_)
        found[rest] = self.where(rest, condition).mask(condition)
        return found

    def _of_rows(self, value: Expression, rows: npt.NDArray[np.int64]) -> tuple[pa.Array, Numbers]:
        """An expression's values for some rows, each once where that is known, and each row's number among them."""
        if _is_literal(value):
            return replace(self, rows=1).value(value), np.zeros(len(rows), np.int64)
        if (by_text := self._by_text(value)) is not None:
            values, numbers = by_text
            return values, numbers[rows]
        taken = np.zeros(self.rows, np.bool_)
        taken[rows] = True
        part = self if len(rows) == self.rows else self.where(taken, value)
        return part.value(value), np.arange(len(rows))


def _is_literal(expression: Expression) -> bool:
    """Whether it is a constant, or one as a value of another type."""
    return isinstance(expression.operand if isinstance(expression, Conversion) else expression, Constant)


def _is_keepable(literal: Expression) -> bool:
    """Whether equal literals are alike. Of floats they may differ: 0 has a sign."""
    constant = literal.operand if isinstance(literal, Conversion) else literal
    return isinstance(constant, Constant) and isinstance(constant.value, int | str | bytes)
