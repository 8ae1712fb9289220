"""The general window operator driven by hand: rows in, watermarks, the clock, snapshots; results out.

Programs are written with the stream API, so tests see what users write; nothing runs but the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock import DataStream, WatermarkStrategy
from penstock.engine.clock import ManualClock
from penstock.engine.config import JobConfig
from penstock.engine.elements import Batch, Watermark
from penstock.engine.metrics import OperatorMetrics
from penstock.engine.operators.base import Operator, OperatorContext
from penstock.engine.operators.spec import OperatorSpec
from penstock.engine.operators.windows.window import WindowOperator
from penstock.engine.state.capture import CaptureRequest, CaptureScope
from penstock.engine.state.snapshot import OperatorSnapshot, Redistribution, share
from tests.engine.helpers import RecordingCollector, Row, local_environment
from tests.engine.operators.capture_log import restorable
from tests.engine.state.saved import snapshot_of

SCHEMA = pa.schema({"k": "string", "at": "int64", "v": "int64"})
"""Key, event time, value."""
_MOST_CALLS = 10_000
Program = Callable[[Any], DataStream]
"""Takes the keyed stream (or the stream itself, for windows over all rows), and returns the results."""


def spec_of(program: Program, *, timed: bool = True, keyed: bool = True, declared: bool = True) -> OperatorSpec:
    """What the API makes of a program.

    Args:
        program: the windows and what is computed of them.
        timed: whether the stream has timestamps.
        keyed: whether the program is given the stream by key.
        declared: whether the columns are known before the job runs.
    """
    stream = local_environment().from_collection([], schema=SCHEMA)
    if not declared:
        stream = stream.map(dict)
    if timed:
        stream = stream.assign_timestamps("at", WatermarkStrategy.for_monotonous_timestamps())
    return spec_behind(program(stream.key_by("k") if keyed else stream))


def spec_behind(results: DataStream) -> OperatorSpec:
    """What creates the operator whose results these are."""
    role = results._program.graph[results._own_node("a test")].role
    assert isinstance(role, OperatorSpec)
    return role


class OperatorDriver:
    """A window operator under way.

    Args:
        spec: creates it, now and at each restore.
        timed: whether rows have timestamps.
        backend: where it keeps its state.
        sides: names of the side outputs that are read.
    """

    def __init__(
        self, spec: OperatorSpec, *, timed: bool = True, backend: str = "heap", sides: Sequence[str] = ()
    ) -> None:
        self._spec = spec
        self._timed = timed
        self._config = JobConfig(state_backend=backend)
        self.clock = ManualClock()
        self.metrics = OperatorMetrics()
        self.out = RecordingCollector()
        self.sides = {name: RecordingCollector() for name in sides}
        self.operator = self._open()

    def _open(self) -> Operator:
        operator = self._spec.create()
        operator.open(OperatorContext("windows", 0, 1, self.clock, self.metrics, self._config, self.sides))
        return operator

    @property
    def is_general(self) -> bool:
        """Whether the API chose the general operator."""
        return isinstance(self.operator, WindowOperator)

    def add(self, *rows: tuple[str, int, float], schema: pa.Schema = SCHEMA) -> None:
        """Handle one batch of (key, event time, value)."""
        columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(schema.types)]
        data = pa.RecordBatch.from_arrays(columns, schema=schema)
        self.operator.process_batch(Batch(data, data.column("at") if self._timed else None), 0, self.out)

    def advance(self, watermark: int) -> None:
        """Bring event time to `watermark`."""
        passed_on = self.operator.on_watermark(Watermark(watermark), self.out)
        assert passed_on == Watermark(watermark)

    def come_to(self, now_ms: int) -> None:
        """Bring the clock to `now_ms`; the operator acts at each time that it asks for."""
        for _ in range(_MOST_CALLS):
            due = self.operator.next_processing_time
            if due is None or due > now_ms:
                self.clock.wait_until(now_ms / 1000)
                return
            self.clock.wait_until(max(due, self.clock.now_ms()) / 1000)
            self.operator.on_processing_time(self.clock.now_ms(), self.out)
        raise AssertionError(f"the operator asks for the time {due} over and over, and the clock cannot pass it")

    def jump_to(self, now_ms: int) -> None:
        """Bring the clock to `now_ms` at once, and only then let the operator act."""
        self.clock.wait_until(now_ms / 1000)
        if (due := self.operator.next_processing_time) is not None and due <= now_ms:
            self.operator.on_processing_time(now_ms, self.out)

    def snapshot(self) -> OperatorSnapshot:
        """The operator's state."""
        return snapshot_of(self.operator)

    def restore(self) -> None:
        """Go on in a new operator, from a capture that was shared out to two subtasks and back."""
        snapshot = restorable(self.operator.capture(CaptureRequest(1, CaptureScope.BASE)))
        self.operator.close()
        halves = [share([snapshot], subtask, 2, self._config.max_parallelism) for subtask in range(2)]
        self.operator = self._open()
        self.operator.restore(share(halves, 0, 1, self._config.max_parallelism))

    def take(self) -> list[Row]:
        """What was emitted since the last call."""
        rows = self.out.rows
        self.out.elements.clear()
        return rows

    def take_times(self) -> list[int | None]:
        """The timestamps of what was emitted since the last call."""
        times = self.out.timestamps
        self.out.elements.clear()
        return times

    def take_side(self, name: str) -> list[Row]:
        """What a side output was given since the last call."""
        rows = self.sides[name].rows
        self.sides[name].elements.clear()
        return rows

    def states(self) -> Mapping[str, int]:
        """How many rows each state table of keys has, without the empty ones."""
        tables = self.snapshot().tables.items()
        keyed = {name: table.data.num_rows for name, table in tables if table.redistribution is Redistribution.KEYED}
        return {name: rows for name, rows in keyed.items() if rows}


class WindowDriver(OperatorDriver):
    """The window operator of a program.

    Args:
        program, timed, keyed, declared: as for `spec_of`.
        backend, sides: as for `OperatorDriver`.
    """

    def __init__(
        self,
        program: Program,
        *,
        timed: bool = True,
        keyed: bool = True,
        declared: bool = True,
        backend: str = "heap",
        sides: Sequence[str] = (),
    ) -> None:
        spec = spec_of(program, timed=timed, keyed=keyed, declared=declared)
        super().__init__(spec, timed=timed, backend=backend, sides=sides)
