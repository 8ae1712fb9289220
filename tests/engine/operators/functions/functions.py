"""What the tests of process functions share: an operator run by hand with a clock, side outputs and rescaling."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.engine.clock import ManualClock
from penstock.engine.config import DEFAULTS, JobConfig
from penstock.engine.elements import Batch, Watermark
from penstock.engine.functions import Context, KeyedProcessFunction, Row, Rows, RuntimeContext
from penstock.engine.operators.base import OperatorContext
from penstock.engine.operators.spec import OperatorSpec
from penstock.engine.state.descriptors import ValueStateDescriptor
from penstock.engine.state.keys.groups import key_groups, subtask_of
from penstock.engine.state.snapshot import OperatorSnapshot, share
from tests.engine.helpers import RecordingCollector

MAX_PARALLELISM = 128


class Running:
    """One subtask of an operator, with a clock and side outputs that the test holds."""

    def __init__(
        self,
        spec: OperatorSpec,
        sides: Sequence[str] = (),
        subtask: int = 0,
        parallelism: int = 1,
        restored: OperatorSnapshot | None = None,
        backend: str = "heap",
        config: JobConfig = DEFAULTS,
        side_schemas: Mapping[str, pa.Schema] | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.out = RecordingCollector()
        self.sides = {name: RecordingCollector() for name in sides}
        config = replace(config, max_parallelism=MAX_PARALLELISM, state_backend=backend)
        self.context = OperatorContext(
            "tested",
            subtask,
            parallelism,
            self.clock,
            config=config,
            sides=self.sides,
            side_schemas=side_schemas or {},
            restored=restored,
        )
        self.operator = spec.create()
        self.operator.open(self.context)
        if restored is not None:
            self.operator.restore(restored)

    def process(self, batch: Batch, input_index: int = 0) -> list[Row]:
        """The rows that come out for a batch."""
        self.operator.process_batch(batch, input_index, self.out)
        return self.take()

    def advance(self, watermark: int) -> list[Row]:
        """The rows that come out when event time gets to `watermark`."""
        assert self.operator.on_watermark(Watermark(watermark), self.out) == Watermark(watermark)
        return self.take()

    def tick(self, now_ms: int) -> list[Row]:
        """The rows that come out when the clock gets to `now_ms`, as the loop would have it."""
        self.clock.advance((now_ms - self.clock.now_ms()) / 1000)
        due = self.operator.next_processing_time
        if due is not None and due <= now_ms:
            self.operator.on_processing_time(now_ms, self.out)
        return self.take()

    def take(self) -> list[Row]:
        """The rows that came out since the last call; `batches` has their batches."""
        self.batches = self.out.batches
        rows = self.out.rows
        self.times = self.out.timestamps
        self.out.elements.clear()
        return rows

    def side(self, name: str) -> list[Row]:
        """The rows of a side output since the last call."""
        rows = self.sides[name].rows
        self.sides[name].elements.clear()
        return rows


def plain(rows: Iterable[Mapping[str, Any]], types: Mapping[str, pa.DataType] | None = None) -> Batch:
    """A batch without timestamps."""
    given = list(rows)
    schema = None if types is None else pa.schema(list(types.items()))
    return Batch(pa.RecordBatch.from_pylist(given, schema))


def at(rows: Iterable[Mapping[str, Any]]) -> Batch:
    """A batch whose timestamps are its column `at`."""
    data = pa.RecordBatch.from_pylist([dict(row) for row in rows])
    return Batch(data, data.column("at").cast(pa.int64()))


def rescaled(
    spec: OperatorSpec, snapshots: Sequence[OperatorSnapshot], parallelism: int, **settings: Any
) -> list[Running]:
    """The subtasks that resume from the snapshots of all subtasks."""
    return [
        Running(
            spec,
            subtask=subtask,
            parallelism=parallelism,
            restored=share(snapshots, subtask, parallelism, MAX_PARALLELISM),
            **settings,
        )
        for subtask in range(parallelism)
    ]


def owner(key: pa.Array, parallelism: int) -> int:
    """The subtask of the only key in `key`."""
    return int(subtask_of(key_groups([key], MAX_PARALLELISM), parallelism, MAX_PARALLELISM)[0])


class RunningSum(KeyedProcessFunction):
    """Emits the sum of `n` by `key` behind each row."""

    def open(self, context: RuntimeContext) -> None:
        self.total = context.get_state(ValueStateDescriptor("total", "int64", default=0))

    def process_element(self, row: Row, ctx: Context) -> Rows:
        self.total.update(self.total.value() + row["n"])
        yield {"key": ctx.current_key, "total": self.total.value()}
