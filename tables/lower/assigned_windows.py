"""The operator of window table functions: each row once for each window that it is in.

Rows leave at once, with the last millisecond of the window as their timestamp, so that what follows can wait for it.
Late ones do, too, unless what follows does wait.

Source: Flink's `AlignedWindowTableFunctionOperator`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.changelog import WITH_BEFORE_IMAGES
from penstock.engine.elements import MIN_TIMESTAMP, Batch, Watermark
from penstock.engine.errors import GraphError
from penstock.engine.operators.base import Collector, Operator
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.engine.windows.assigners import AlignedWindows, CumulativeWindows, SessionWindows

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AssignedWindowsSpec(OperatorSpec):
    """Creates the operator.

    Args:
        windows: which windows there are.
        schema: of the result: the input's columns, window_start, window_end, window_time.
        zone: the time zone in which the windows lie; None: UTC.
        drops_late: whether rows come in no window that the watermark has passed.
    """

    windows: AlignedWindows | CumulativeWindows | SessionWindows
    schema: pa.Schema
    zone: str | None = None
    drops_late: bool = False

    def create(self) -> Operator:
        return AssignedWindows(self)

    def describe(self) -> str:
        return f"windows({self.windows.describe()})"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(WITH_BEFORE_IMAGES,), emits=None)


class AssignedWindows(Operator):
    """Keeps nothing but the watermark."""

    def __init__(self, spec: AssignedWindowsSpec) -> None:
        if isinstance(spec.windows, SessionWindows):
            raise GraphError("sessions are known only when they end")
        self._windows = spec.windows
        self._schema = spec.schema
        self._zone = spec.zone
        self._drops_late = spec.drops_late
        self._passed = MIN_TIMESTAMP

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        if self._drops_late:
            self._passed = watermark.timestamp
        return watermark

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        assert batch.timestamps is not None, "the binder asks for a time attribute"
        times = self._local(batch.timestamps)
        slices, numbers = np.unique((times - self._windows.offset_ms) // self._windows.slice_ms, return_inverse=True)
        ends_of = [self._ends(int(number)) for number in slices]
        lasts_of = [self._moments(ends - 1) for ends in ends_of]
        is_open = [lasts > self._passed for lasts in lasts_of]
        ends_of = [ends[there] for ends, there in zip(ends_of, is_open, strict=True)]
        lasts_of = [lasts[there] for lasts, there in zip(lasts_of, is_open, strict=True)]
        counts = np.array([len(ends) for ends in ends_of], np.int64)[numbers]
        rows = np.repeat(np.arange(len(times)), counts)
        if not len(rows):
            return
        ends = np.concatenate([ends_of[number] for number in numbers.tolist()])
        lasts = np.concatenate([lasts_of[number] for number in numbers.tolist()])
        starts = np.array([self._windows.start_of(int(end)) for end in ends])
        taken = batch.take(pa.array(rows))
        bounds = (starts, ends, lasts)
        width = len(self._schema) - len(bounds)
        kinds = self._schema.types[width:]
        columns = [pa.array(bound).cast(kind) for bound, kind in zip(bounds, kinds, strict=True)]
        data = pa.RecordBatch.from_arrays([*taken.data.columns, *columns], schema=self._schema)
        out.collect(Batch(data, pa.array(lasts), taken.kinds))

    def _ends(self, number: int) -> Int64s:
        """Ends of the windows over a slice, by the clocks of the zone."""
        start = number * self._windows.slice_ms + self._windows.offset_ms
        upto = start + self._windows.longest_ms + self._windows.slice_ms
        return np.array(self._windows.ends_over(start, start, upto), np.int64)

    def _local(self, moments: pa.Array) -> Int64s:
        """What the clocks of the zone show at some moments, as milliseconds."""
        if self._zone is not None:
            moments = pc.local_timestamp(moments.cast(pa.timestamp("ms", self._zone))).cast(pa.int64())
        times: Int64s = moments.to_numpy()
        return times

    def _moments(self, shown: Int64s) -> Int64s:
        """The last moments at which the clocks of the zone show some times, or where they skip these, earlier ones."""
        if self._zone is None:
            return shown
        local = pa.array(shown).cast(pa.timestamp("ms"))
        moments = pc.assume_timezone(local, self._zone, ambiguous="latest", nonexistent="earliest")
        found: Int64s = moments.cast(pa.int64()).to_numpy()
        return found
