"""Watermarks by an expression: event time has come to the largest value of it so far, as in Flink SQL."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.windows.watermarks import WatermarkGenerator, WatermarkOutput
from penstock.tables.expressions import Expression
from penstock.tables.functions.signatures import SessionValues
from penstock.tables.lower.evaluation import Evaluation
from penstock.tables.lower.failing_rows import computed


@dataclass(frozen=True, slots=True)
class ExpressionWatermarks:
    """Makes the generators of one table's event time.

    Args:
        expression: a timestamp of milliseconds, over the table's columns.
        zone: the session's time zone.
    """

    expression: Expression
    zone: str

    def __call__(self) -> WatermarkGenerator:
        return _Generator(self.expression, self.zone)


class _Generator(WatermarkGenerator):
    def __init__(self, expression: Expression, zone: str) -> None:
        self._expression = expression
        self._session = SessionValues(zone)

    def on_batch(self, batch: pa.RecordBatch, timestamps: pa.Int64Array, output: WatermarkOutput) -> None:
        values = computed("WATERMARK", batch, self._values)
        largest = pc.max(values.cast(pa.int64())).as_py()
        if largest is not None:
            output.emit_watermark(largest)

    def _values(self, rows: pa.RecordBatch) -> pa.Array:
        return Evaluation(rows.columns, rows.num_rows, self._session).value(self._expression)
