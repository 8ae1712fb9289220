"""The subtasks of a window operator, for tests: rows reach them by key group, and they can be stopped and rescaled."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from penstock.engine.aggregates import functions as agg
from penstock.engine.aggregates.functions import count
from penstock.engine.clock import ManualClock
from penstock.engine.elements import MAX_TIMESTAMP, Watermark
from penstock.engine.metrics import OperatorMetrics
from penstock.engine.operators.base import Operator, OperatorContext
from penstock.engine.operators.spec import OperatorSpec
from penstock.engine.state.capture import CaptureRequest, CaptureScope
from penstock.engine.state.keys.groups import key_group_range, key_groups
from penstock.engine.state.snapshot import OperatorSnapshot, share
from tests.engine.helpers import RecordingCollector, timed
from tests.engine.state.saved import captured_snapshot

Row = tuple[int, str, int]
TYPES = {"at": pa.int64(), "key": pa.string(), "n": pa.int64()}
LATE = "late"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MAX_PARALLELISM = 128
AGGREGATES = {"rows": count(), "total": agg.sum("n"), "most": agg.max("n"), "first": agg.min("key")}
"""What the models compute."""


class WindowJob:
    """Subtasks of the operators that `spec` makes, fed with rows of (event time, key, n)."""

    def __init__(self, spec: OperatorSpec, parallelism: int = 1) -> None:
        self._spec = spec
        self._out = RecordingCollector()
        self._late = RecordingCollector()
        self.metrics = OperatorMetrics()
        self.operators: list[Operator] = []
        self._start([OperatorSnapshot()], parallelism)

    def _start(self, snapshots: Sequence[OperatorSnapshot], parallelism: int) -> None:
        self.operators = [self._spec.create() for _ in range(parallelism)]
        for subtask, operator in enumerate(self.operators):
            sides = {LATE: self._late}
            operator.open(OperatorContext("w", subtask, parallelism, ManualClock(), self.metrics, sides=sides))
            operator.restore(share(snapshots, subtask, parallelism, _MAX_PARALLELISM))

    def rescale(self, parallelism: int) -> None:
        """Capture the state and resume from it, with other subtasks."""
        captures = [operator.capture(CaptureRequest(1, CaptureScope.BASE)) for operator in self.operators]
        for operator in self.operators:
            # What comes behind a capture must not change it.
            operator.process_batch(timed([{"at": 10**6, "key": "a", "n": 999}], TYPES), 0, RecordingCollector())
            operator.on_watermark(Watermark(MAX_TIMESTAMP), RecordingCollector())
        self._start([captured_snapshot(capture) for capture in captures], parallelism)

    def rows_at(self, *rows: Row) -> None:
        """Process one batch, of which each subtask gets its share."""
        batch = timed([{"at": at, "key": key, "n": n} for at, key, n in rows], TYPES)
        groups = key_groups([batch.data.column("key")], _MAX_PARALLELISM)
        for subtask, operator in enumerate(self.operators):
            owned = key_group_range(subtask, len(self.operators), _MAX_PARALLELISM)
            mine = np.isin(groups, owned)
            if mine.any():
                operator.process_batch(batch.filter(pa.array(mine)), 0, self._out)

    def advance(self, watermark: int) -> None:
        for operator in self.operators:
            operator.on_watermark(Watermark(watermark), self._out)

    def emitted(self) -> list[tuple[Any, ...]]:
        """What was emitted since the last call: (key, start, end, results...), times in milliseconds."""
        for batch in self._out.batches:
            assert batch.timestamps is not None
            ends = [_milliseconds(end) for end in batch.data.column("window_end").to_pylist()]
            assert batch.timestamps.to_pylist() == [end - 1 for end in ends]
        rows = [tuple(map(_milliseconds, row.values())) for row in self._out.rows]
        self._out.elements.clear()
        return rows

    def late(self) -> list[Row]:
        """What came to the side output since the last call."""
        rows = [(row["at"], row["key"], row["n"]) for row in self._late.rows]
        assert self._late.timestamps == [at for at, _, _ in rows]
        self._late.elements.clear()
        return rows


class WindowModel(Protocol):
    """What a window operator must do, in the plainest way."""

    late: list[Row]
    """All rows that came too late."""

    def rows_at(self, rows: list[Row]) -> list[tuple[Any, ...]]:
        """What a batch emits."""
        ...

    def advance(self, watermark: int) -> list[tuple[Any, ...]]:
        """What a watermark emits."""
        ...


@st.composite
def scripts(
    draw: st.DrawFn, rows: st.SearchStrategy[list[Row]], most_steps: int, first: int, furthest: int
) -> list[Any]:
    """Batches of rows, watermarks that rise, and ("rescale", parallelism), in any order.

    Args:
        rows: of a batch.
        most_steps: how long a script may be.
        first: watermarks are above it.
        furthest: how far a watermark may be from the one before.
    """
    script: list[Any] = []
    watermark = first
    for _ in range(draw(st.integers(0, most_steps))):
        kind = draw(st.integers(0, 9))
        if kind < 5:
            script.append(draw(rows))
        elif kind < 9:
            watermark += draw(st.integers(1, furthest))
            script.append(watermark)
        else:
            script.append(("rescale", draw(st.integers(1, 3))))
    return [*script, MAX_TIMESTAMP]


def assert_agreement(script: list[Any], tested: WindowJob, model: WindowModel) -> None:
    """Take the steps of a script, and compare after each."""
    for step in script:
        if isinstance(step, int):
            expected = model.advance(step)
            tested.advance(step)
        elif isinstance(step, tuple):
            expected = []
            tested.rescale(step[1])
        else:
            expected = model.rows_at(step)
            tested.rows_at(*step)
        assert sorted(tested.emitted()) == sorted(expected)
    assert tested.metrics.late_rows == 0
    assert sorted(tested.late()) == sorted(model.late)


def _milliseconds(value: Any) -> Any:
    return (value - _EPOCH) // timedelta(milliseconds=1) if isinstance(value, datetime) else value
