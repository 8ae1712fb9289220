"""The operator of `filter`, `select` and `with_columns` with column expressions.

The stream API makes its spec; the graph rewrite joins the steps of neighbours into one operator. It
guarantees that a value that cannot be computed ends as a `RecordError` with the row and the expression.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.engine.changelog import ANY_MODE, WITH_BEFORE_IMAGES
from penstock.engine.direct_expressions import direct_steps
from penstock.engine.elements import Batch
from penstock.engine.errors import PenstockError, RecordError
from penstock.engine.expressions import Filter, Step, apply, bind, describe, failing_row
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.relational import Steps
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.engine.rows import shown_row


@dataclass(frozen=True, slots=True, eq=False)
class ExpressionSpec(OperatorSpec):
    """Creates the operator that applies `steps`, one after the other.

    Args:
        steps: without Python functions (those are for `RowColumnsSpec`).

    Example:
        `ExpressionSpec((Filter(col("x") > 3), select("x")))`
    """

    steps: tuple[Step, ...]

    def create(self) -> Operator:
        return ExpressionOperator(self.steps)

    def describe(self) -> str:
        return describe(self.steps)

    @property
    def traits(self) -> OperatorTraits:
        modes = WITH_BEFORE_IMAGES if any(isinstance(step, Filter) for step in self.steps) else ANY_MODE
        return OperatorTraits(order=RowOrder.NONE, accepts=(modes,), emits=None, relational=Steps(self.steps))

    def fused(self, before: OperatorSpec) -> OperatorSpec | None:
        return ExpressionSpec((*before.steps, *self.steps)) if isinstance(before, ExpressionSpec) else None


class ExpressionOperator(Operator):
    """Applies steps to each batch and drops what comes out empty."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self._steps = BoundSteps(steps)

    def open(self, context: OperatorContext) -> None:
        self._steps.open(context)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        result = self._steps.apply(batch)
        if result.num_rows:
            out.collect(result)


class BoundSteps:
    """Steps in a subtask, bound to the schema that arrives; behind Python functions none is known before."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._where = ""
        self._input: pa.Schema | None = None
        self._output: pa.Schema | None = None
        self._direct = direct_steps(self._steps)

    def open(self, context: OperatorContext) -> None:
        """Take the operator's name and subtask, for messages."""
        self._where = f"operator {context.operator!r}, subtask {context.subtask}"

    def apply(self, batch: Batch) -> Batch:
        """The rows of `batch` after the steps.

        Raises:
            GraphError: the steps do not fit the batch's schema.
            RecordError: a value cannot be computed; names the row.
        """
        if self._output is None or not batch.data.schema.equals(self._input):
            self._output = bind(self._steps, batch.data.schema, self._where)
            self._input = batch.data.schema
        if self._direct is not None:
            # Which row it is, and why, narwhals' way says.
            with contextlib.suppress(Exception):
                return self._direct.apply(batch, self._output)
        try:
            return apply(self._steps, batch, self._output)
        except PenstockError:
            raise
        except Exception as error:
            raise self._record_error(error, batch, self._output) from error

    def _record_error(self, error: Exception, batch: Batch, output: pa.Schema) -> RecordError:
        found = failing_row(self._steps, batch, output)
        row = "" if found is None else f"; row {found[0]} is {shown_row(batch.data, found[0])}"
        reason = " ".join(str(error if found is None else found[1]).split())
        return RecordError(
            f"{self._where}: {describe(self._steps)}: {reason}{row}; keep such rows "
            "away with filter(...), or give them another value with when(...).then(...)"
        )
