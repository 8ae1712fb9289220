"""What a checkpoint store would have of an operator: captures, made into rows late, and merged by identity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import pyarrow as pa

from penstock.engine.elements import MIN_TIMESTAMP
from penstock.engine.state.capture import DELETED, CaptureRequest, CaptureScope, OperatorCapture, TableCapture
from penstock.engine.state.snapshot import KEY_GROUP, OperatorSnapshot, StateTable, by_group
from penstock.engine.state.state_tables import TOUCHED
from penstock.engine.state.timers import TimerQueue
from penstock.savepoints.history import merge_rows


class Captured(Protocol):
    """An operator, or a backend of keyed state."""

    def capture(self, request: CaptureRequest) -> OperatorCapture: ...


def captured_snapshot(capture: OperatorCapture) -> OperatorSnapshot:
    """What a complete capture without native files holds, made now."""
    return OperatorSnapshot({name: _as_table(table) for name, table in capture.tables.items()}, capture.watermark)


def _as_table(table: TableCapture) -> StateTable:
    rows = table.rows()
    return StateTable(table.redistribution, by_group(rows) if KEY_GROUP in rows.column_names else rows)


def snapshot_of(captured: Captured) -> OperatorSnapshot:
    """All its state, as a savepoint would have it."""
    return captured_snapshot(captured.capture(CaptureRequest(0, CaptureScope.COMPLETE)))


def timers_of(queue: TimerQueue, keys: pa.Schema, groups: int) -> StateTable:
    """All timers of a queue, as a savepoint would have them."""
    captured = queue.capture(CaptureScope.COMPLETE, keys, groups)
    return StateTable(captured.redistribution, captured.rows())


class Saved:
    """The captures of one operator in one subtask, all but savepoints, in order."""

    def __init__(self) -> None:
        self._pending: list[OperatorCapture] = []
        self._watermark = MIN_TIMESTAMP
        self._parts: dict[str, tuple[TableCapture, list[pa.Table]]] = {}

    def take(self, capture: OperatorCapture) -> None:
        """Hold a capture; its rows are not made yet."""
        self._pending.append(capture)

    def snapshot(self) -> OperatorSnapshot:
        """What the captures hold together."""
        for capture in self._pending:
            self._add(capture.tables)
            self._watermark = capture.watermark
        self._pending.clear()
        merged = {
            name: StateTable(newest.redistribution, merge_rows(parts, newest.identity, newest.expiry))
            for name, (newest, parts) in self._parts.items()
        }
        return OperatorSnapshot(merged, self._watermark)

    def _add(self, tables: Mapping[str, TableCapture]) -> None:
        older, self._parts = self._parts, {}
        for name, table in tables.items():
            rows = table.rows()
            assert (rows.column_names[-1] == DELETED) is table.is_changes
            parts = older[name][1] if table.is_changes else []
            self._parts[name] = (table, [*parts, rows])


def contents(snapshot: OperatorSnapshot, is_alive: Any = lambda touched: True) -> dict[str, Any]:
    """What a snapshot holds, in no order of rows; of lists without the values that have outlived their time."""
    made = {}
    for name, table in snapshot.tables.items():
        rows = table.data.to_pylist()
        if TOUCHED in table.data.column_names and pa.types.is_list(table.data.schema.field(TOUCHED).type):
            rows = [kept for row in rows if (kept := _alive(row, is_alive))]
        if rows:
            made[name] = (table.data.schema.names, table.data.schema.types, sorted(map(repr, rows)))
    return made


def _alive(row: dict[str, Any], is_alive: Any) -> dict[str, Any]:
    *_, value, touched = row
    alive = [pair for pair in zip(row[value], row[touched], strict=True) if is_alive(pair[1])]
    if not alive:
        return {}
    return {**row, value: [one for one, _ in alive], touched: [at for _, at in alive]}
