"""What snapshots of joins tell of the program that made them, and which programs may go on from the rows kept there.

A join keeps rows for as long as its bounds or windows need them. One that needs them for longer would miss pairs
without a word, and so is refused. Older snapshots do not tell, and are taken as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from penstock.engine.errors import StateError
from penstock.engine.operators.join_columns import FIRED_UNTIL, LEFT, RIGHT, SIDES
from penstock.engine.operators.saved_aggregates import ANOTHER_UID
from penstock.engine.operators.windows.window_form import kept_long_enough, row_of, windows_of
from penstock.engine.state.capture import TableCapture, complete_table
from penstock.engine.state.snapshot import Redistribution, StateTable
from penstock.engine.windows.assigners import AlignedWindows, SessionWindows

JOIN_FORM: Final = "join_form"
"""The name of the state in snapshots, of one row."""

Form = Mapping[str, Any]
"""What a join is: its kind, and what says for how long it needs rows."""


def interval_form(lower_ms: int, upper_ms: int, outer: tuple[int, ...]) -> Form:
    """That of an interval join, with its bounds and the sides of which rows come without a partner."""
    sides = {"left_outer": LEFT in outer, "right_outer": RIGHT in outer}
    return {"join": "interval", "lower_ms": lower_ms, "upper_ms": upper_ms, **sides}


def window_form(windows: AlignedWindows | SessionWindows) -> Form:
    """That of a join or a co-group within windows."""
    return {"join": "window", **row_of(windows)}


TEMPORAL_FORM: Final[Form] = {"join": "temporal"}


def form_capture(form: Form) -> dict[str, TableCapture]:
    """What each capture of a join has beside its rows, made once: it has dropped rows even where it keeps none."""
    table = pa.Table.from_pylist([dict(form)])
    return {JOIN_FORM: complete_table(StateTable(Redistribution.BROADCAST, table))}


def check_form(tables: Mapping[str, StateTable], form: Form, where: str) -> None:
    """Make sure that the rows of a snapshot are all that a join needs.

    Args:
        tables: of the snapshot.
        form: of the join now.
        where: the operator and subtask, for messages.

    Raises:
        StateError: they were kept by another kind of join, or not for long enough.
    """
    if JOIN_FORM not in tables:
        _check_older(tables, form, where)
        return
    saved: Form = tables[JOIN_FORM].data.to_pylist()[0]
    if not _goes_on(saved, form):
        raise StateError(
            f"{where}: the rows were kept for the join ({_text(saved)}), and it is ({_text(form)}) now, for which some "
            f"may have been dropped already; join as before, or {ANOTHER_UID}"
        )


def _check_older(tables: Mapping[str, StateTable], form: Form, where: str) -> None:
    """Of rows without a form it is known at least whether their windows were aligned."""
    sides = [tables[name].data.column_names for name in SIDES if name in tables]
    is_aligned = form["join"] == "window" and form["windows"] != "session"
    if any((FIRED_UNTIL in columns) != is_aligned for columns in sides):
        raise StateError(
            f"{where}: the rows were kept by another kind of join, or of windows, than ({_text(form)}); join as "
            f"before, or {ANOTHER_UID}"
        )


def _goes_on(saved: Form, form: Form) -> bool:
    if saved == form:
        return True
    if saved["join"] != form["join"]:
        return False
    return _interval_goes_on(saved, form) if form["join"] == "interval" else _window_goes_on(saved, form)


def _interval_goes_on(saved: Form, form: Form) -> bool:
    outer = [name for name in ("left_outer", "right_outer") if form[name]]
    if outer:
        # Whether a row has met another is asked by the bounds, and of rows that are kept for that alone.
        same_bounds = saved["lower_ms"] == form["lower_ms"] and saved["upper_ms"] == form["upper_ms"]
        return same_bounds and all(saved[name] for name in outer)
    left, right = (max(saved["upper_ms"], 0), max(-saved["lower_ms"], 0))
    return bool(form["upper_ms"] <= left and -form["lower_ms"] <= right)


def _window_goes_on(saved: Form, form: Form) -> bool:
    before, now = windows_of(saved), windows_of(form)
    if isinstance(before, SessionWindows) or isinstance(now, SessionWindows):
        both = isinstance(before, SessionWindows) and isinstance(now, SessionWindows)
        return both and bool(form["size_ms"] <= saved["size_ms"])
    return kept_long_enough(before, now)


def _text(form: Form) -> str:
    return ", ".join(f"{name}={value}" for name, value in form.items())
