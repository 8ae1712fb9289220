"""What snapshots of the vectorised window aggregates tell of the program that made them, and who may go on from it.

Open windows are kept as slices or sessions, which mean something by their grid alone, and what no window needed any
more is gone. So a program with other windows goes on only where what is kept is what its windows need, and is refused
otherwise. Older snapshots do not tell: of them the columns and the grid are looked at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.elements import MIN_TIMESTAMP
from penstock.engine.errors import StateError
from penstock.engine.operators.saved_aggregates import ANOTHER_UID, check_columns, refuse_strangers
from penstock.engine.operators.windows.aggregate_state import SESSION_END, SESSION_START, SLICE, WINDOW_STATE
from penstock.engine.operators.windows.group_watermarks import GROUP_WATERMARKS
from penstock.engine.state.capture import TableCapture
from penstock.engine.state.snapshot import OperatorSnapshot, Redistribution
from penstock.engine.windows.assigners import AlignedWindows, CumulativeWindows, SessionWindows, SlicedWindows

WINDOW_FORM: Final = "window_form"
"""The name of the state in snapshots, of one row; it is there without open windows, too: others have been dropped."""

_MOST_SLICES: Final = 2**20


@dataclass(frozen=True, slots=True)
class WindowForm:
    """Windows, and until when they take rows in.

    Args:
        windows: the assigner.
        lateness_ms: how long (event time) windows take rows in behind their end.
        closed_until: windows whose last millisecond is at or before this take none in, whatever the lateness: a
            program with a shorter one has dropped them.
    """

    windows: SlicedWindows | SessionWindows
    lateness_ms: int
    closed_until: int = MIN_TIMESTAMP

    def horizon(self, watermark: int) -> int:
        """At `watermark`, windows whose last millisecond is at or before this take no more rows in."""
        return max(watermark - self.lateness_ms, self.closed_until)

    def captured(self) -> TableCapture:
        """What a snapshot must hold of it."""
        return TableCapture(Redistribution.BROADCAST, lambda: pa.Table.from_pylist([_row(self)]))

    def restored(self, snapshot: OperatorSnapshot, aggregation: GroupedAggregation, where: str) -> WindowForm:
        """The form to go on with from a snapshot.

        Args:
            snapshot: of this program, or of an earlier one.
            aggregation: what is computed now.
            where: the operator and subtask, for messages.

        Raises:
            StateError: another kind of operator made it, or one with other keys, aggregates or windows, so that
                results would lack rows.
        """
        own = (WINDOW_STATE, WINDOW_FORM, GROUP_WATERMARKS)
        refuse_strangers(snapshot.tables, own, "an aggregate over windows without a trigger or evictor", where)
        state, saved = snapshot.tables.get(WINDOW_STATE), _saved(snapshot)
        if state is not None:
            self._check_rows(state.data, aggregation, where)
        if saved is None:
            if state is not None:
                self._check_grid(state.data, where)
            return self
        self._check_windows(saved.windows, where)
        return self._behind(saved, snapshot, where)

    def _check_rows(self, rows: pa.Table, aggregation: GroupedAggregation, where: str) -> None:
        """Make sure that saved rows are slices, or sessions, of the same keys and aggregates."""
        if self._beside[0] not in rows.column_names:
            kind = "slices of windows" if SLICE in rows.column_names else "sessions"
            raise StateError(
                f"{where}: the saved state holds {kind}, and the windows are {self.windows.describe()} now; window as "
                f"before, or {ANOTHER_UID}"
            )
        check_columns(rows.column_names[1:], aggregation, self._beside, where)

    def _check_grid(self, rows: pa.Table, where: str) -> None:
        """Make sure that older slices, of whose windows nothing is known, begin where slices do now."""
        if isinstance(self.windows, AlignedWindows | CumulativeWindows):
            starts = rows.column(SLICE).to_numpy()
            off_grid = (starts - self.windows.offset_ms) % self.windows.slice_ms != 0
            if (off_grid | (self.windows.last_ends(starts) <= starts)).any():
                raise self._do_not_fit("other", where)

    def _check_windows(self, saved: SlicedWindows | SessionWindows, where: str) -> None:
        """Make sure that what other windows have kept is what these need."""
        if isinstance(saved, SessionWindows) or isinstance(self.windows, SessionWindows):
            fits = isinstance(saved, SessionWindows) and isinstance(self.windows, SessionWindows)
        else:
            fits = saved == self.windows or _holds(saved, self.windows)
        if not fits:
            raise self._do_not_fit(saved.describe(), where)

    def _do_not_fit(self, saved: str, where: str) -> StateError:
        return StateError(
            f"{where}: the state was saved by {saved} windows, and they are {self.windows.describe()} now, for which "
            "rows lie in slices that cannot be divided, or have been dropped already; window as before, or "
            f"{ANOTHER_UID}"
        )

    @property
    def _beside(self) -> tuple[str, ...]:
        """The columns that tell apart the rows of a key."""
        return (SESSION_START, SESSION_END) if isinstance(self.windows, SessionWindows) else (SLICE,)

    def _behind(self, saved: WindowForm, snapshot: OperatorSnapshot, where: str) -> WindowForm:
        """This form, which takes nothing in for windows that were dropped under the saved one."""
        if saved.lateness_ms >= self.lateness_ms:
            return replace(self, closed_until=saved.closed_until)
        if snapshot.furthest > snapshot.watermark or GROUP_WATERMARKS in snapshot.tables:
            raise StateError(
                f"{where}: windows took late rows in for {saved.lateness_ms} ms, and are to take them in for "
                f"{self.lateness_ms} ms, but subtasks had come to different watermarks in this unaligned checkpoint; "
                "resume with allowed_lateness as it was, take a savepoint, and start from that"
            )
        return replace(self, closed_until=saved.horizon(snapshot.watermark))


def _saved(snapshot: OperatorSnapshot) -> WindowForm | None:
    if WINDOW_FORM not in snapshot.tables:
        return None
    row: Mapping[str, Any] = snapshot.tables[WINDOW_FORM].data.to_pylist()[0]
    return WindowForm(windows_of(row), row["lateness_ms"], row["closed_until"])


def _row(form: WindowForm) -> dict[str, Any]:
    return {**row_of(form.windows), "lateness_ms": form.lateness_ms, "closed_until": form.closed_until}


def row_of(windows: SlicedWindows | SessionWindows) -> dict[str, Any]:
    """Windows as columns of a snapshot."""
    match windows:
        case SessionWindows(gap_ms):
            return {"windows": "session", "size_ms": gap_ms, "step_ms": 0, "offset_ms": 0}
        case CumulativeWindows(size, step, offset):
            return {"windows": "cumulative", "size_ms": size, "step_ms": step, "offset_ms": offset}
        case AlignedWindows(size, step, offset):
            return {"windows": "aligned", "size_ms": size, "step_ms": step, "offset_ms": offset}


def windows_of(row: Mapping[str, Any]) -> SlicedWindows | SessionWindows:
    """The windows that `row_of` made columns of."""
    size, step, offset = row["size_ms"], row["step_ms"], row["offset_ms"]
    match row["windows"]:
        case "session":
            return SessionWindows(size)
        case "cumulative":
            return CumulativeWindows(size, step, offset)
        case _:
            return AlignedWindows(size, step, offset)


def _holds(saved: SlicedWindows, windows: SlicedWindows) -> bool:
    """Whether each slice that was saved lies in one of `windows`, and was kept for as long as these need it."""
    if windows.has_gaps:
        # Slices there are in none of them.
        return False
    between = windows.offset_ms - saved.offset_ms
    return windows.slice_ms % saved.slice_ms == between % saved.slice_ms == 0 and kept_long_enough(saved, windows)


def kept_long_enough(saved: SlicedWindows, windows: SlicedWindows) -> bool:
    """Whether every row stays for as long in `saved` as in `windows`, so that these lack none; False for not known."""
    step = math.gcd(saved.slice_ms, windows.slice_ms, windows.offset_ms - saved.offset_ms)
    period = math.lcm(_period(saved), _period(windows))
    if period // step > _MOST_SLICES:
        return saved == windows
    starts = saved.offset_ms % period + np.arange(0, period, step)
    return bool((windows.last_ends(starts) <= saved.last_ends(starts)).all())


def _period(windows: SlicedWindows) -> int:
    return windows.slide_ms if isinstance(windows, AlignedWindows) else windows.max_size_ms
