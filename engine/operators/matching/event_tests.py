"""Answers the tests of a pattern: expressions and compiled functions for all rows of a batch at once, other functions
when a matcher asks.

The operator of `KeyedStream.match` prepares one for the rows that are due. A function is called only where the tests
before it in its condition leave the answer open, and at most once for one event and one partial match.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.compiled.functions import CompiledFunction
from penstock.engine.compiled.program import Program
from penstock.engine.elements import Batch
from penstock.engine.expressions import select
from penstock.engine.operators.base import USER_FAILURES, OperatorContext
from penstock.engine.operators.compiled import translate_filter
from penstock.engine.operators.expressions import BoundSteps
from penstock.engine.patterns.automaton import CompiledPattern
from penstock.engine.patterns.conditions import Leaf
from penstock.engine.patterns.partial import PartialMatch
from penstock.engine.patterns.plans import Ask
from penstock.engine.rows import batch_rows

Bits: TypeAlias = npt.NDArray[Any]
"""For each row an int whose bit i is the answer of the i-th test; Python's own ints where there are more than 62."""
_WORD_BITS = 62
FEW_ROWS: Final = 64
"""Batches of fewer rows cost less row by row."""


class ColumnTests:
    """The tests of a pattern that are asked of whole batches: its expressions and compiled functions.

    Args:
        pattern: the automaton.
        context: where the operator runs.
    """

    def __init__(self, pattern: CompiledPattern, context: OperatorContext) -> None:
        given = [(number, leaf.given) for number, leaf in enumerate(pattern.leaves) if leaf.is_expression]
        self._compiled = [
            (number, _CompiledTest(leaf.given, context))
            for number, leaf in enumerate(pattern.leaves)
            if isinstance(leaf.given, CompiledFunction)
        ]
        self._numbers = [number for number, _ in given]
        self._wide = len(pattern.leaves) > _WORD_BITS
        columns = {f"test_{number}": expression for number, expression in given}
        self._steps = BoundSteps((select(**columns),)) if columns else None
        if self._steps is not None:
            self._steps.open(context)

    def bits(self, rows: pa.RecordBatch) -> Bits:
        """The answers for each row; null counts as false.

        Raises:
            RecordError: an expression cannot be computed for a row.
            UserCodeError: a compiled function fails for a row, also where it is not asked row by row.
        """
        bits: Bits = np.zeros(rows.num_rows, object if self._wide else np.int64)
        for number, test in self._compiled:
            bits |= test.answers(rows).astype(bits.dtype) << number
        if self._steps is None:
            return bits
        answers = self._steps.apply(Batch(rows)).data
        for number, column in zip(self._numbers, answers.columns, strict=True):
            known = column.fill_null(False) if column.null_count else column
            bits |= known.to_numpy(zero_copy_only=False).astype(bits.dtype) << number
        return bits


class _CompiledTest:
    """One compiled function of the row; batches that compiled code does not take are given to the plain one."""

    def __init__(self, function: CompiledFunction[object], context: OperatorContext) -> None:
        self._function = function
        self._context = context
        self._schema: pa.Schema | None = None
        self._program: Program | None = None

    def answers(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Whether it is true of each row."""
        if self._schema != rows.schema:
            self._schema = rows.schema
            translation = self._function.unless_refused(partial(translate_filter, self._function, rows.schema))
            self._program = None if translation is None else Program(translation, rows.schema)
        found = None if self._program is None or len(rows) < FEW_ROWS else self._program.run(rows)
        if found is not None:
            return np.asarray(found[""].to_numpy(zero_copy_only=False))
        return np.array([self._asked(row) for row in batch_rows(rows, self._context.where)], np.bool_)

    def _asked(self, row: Any) -> bool:
        try:
            return bool(self._function.function(row))
        except USER_FAILURES as error:
            raise self._context.user_code_error(error, row) from error


class FunctionTests:
    """The functions of a pattern, for one event after the other; the `EventTests` of the matcher.

    Args:
        pattern: the automaton.
        context: where the operator runs.
    """

    def __init__(self, pattern: CompiledPattern, context: OperatorContext) -> None:
        self._leaves = pattern.leaves
        self._context = context
        self._match = _MatchSoFar(context)
        self._answers: dict[int, bool] = {}
        self._row: Any = None
        self.bits = 0

    def turn_to(self, bits: int, row: Any, timestamp: int) -> None:
        """Answer for this event from now on."""
        self.bits = bits
        self._row = row
        self._match.timestamp = timestamp
        self._answers.clear()

    def of(self, partial: PartialMatch) -> Ask:
        """As `EventTests.of`; good until the next call."""
        self._match.partial = partial
        return self._holds

    def _holds(self, leaf: int) -> bool:
        test = self._leaves[leaf]
        if test.is_iterative:
            return self._call(test, self._row, self._match)
        answer = self._answers.get(leaf)
        if answer is None:
            answer = self._answers[leaf] = self._call(test, self._row)
        return answer

    def _call(self, test: Leaf, *given: Any) -> bool:
        try:
            return bool(test.given(*given))
        except USER_FAILURES as error:
            raise self._context.user_code_error(error, self._row) from error


class _MatchSoFar:
    """The `MatchContext` of iterative conditions."""

    def __init__(self, context: OperatorContext) -> None:
        self.current_processing_time = context.clock.now_ms
        self.timestamp = 0
        self.partial: PartialMatch | None = None

    def events(self, name: str) -> list[Any]:
        assert self.partial is not None, "set before each call"
        rows, step = [], self.partial.step
        while step is not None:
            if step.variable == name:
                rows.append(step.event.row)
            step = step.previous
        rows.reverse()
        return rows
