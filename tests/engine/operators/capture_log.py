"""What a checkpoint writer makes of an operator's captures, in a few lines: for tests that captures are exact."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.engine.operators.base import Operator
from penstock.engine.state.capture import DELETED, CaptureRequest, CaptureScope, OperatorCapture, TableCapture
from penstock.engine.state.snapshot import OperatorSnapshot, StateTable
from penstock.savepoints.history import merge_rows
from tests.engine.state.saved import captured_snapshot, snapshot_of


class CaptureLog:
    """Keeps the captures of one operator, and puts changes together; rows are made as late as can be."""

    def __init__(self) -> None:
        self._waiting: list[tuple[OperatorCapture, OperatorSnapshot]] = []
        self._parts: dict[str, list[pa.Table]] = {}
        self.merged = OperatorSnapshot()
        """What the captures say that the operator held at the last one."""
        self.changes = 0
        """How many tables held changes only."""

    def take(self, operator: Operator, scope: CaptureScope) -> None:
        """Capture what the operator holds; `check` is to come when it holds something else."""
        expected = snapshot_of(operator)
        capture = operator.capture(CaptureRequest(1, scope))
        if scope is CaptureScope.COMPLETE:
            assert not any(table.is_changes for table in capture.tables.values())
            _assert_alike(captured_snapshot(capture), expected)
        else:
            self._waiting.append((capture, expected))

    def check(self) -> None:
        """What was captured so far is what the operator held then."""
        for capture, expected in self._waiting:
            tables = {name: self._table(name, table) for name, table in capture.tables.items()}
            # A state that is missing is empty.
            self._parts = {name: parts for name, parts in self._parts.items() if name in tables}
            self.merged = OperatorSnapshot(tables, capture.watermark)
            _assert_alike(self.merged, expected)
        self._waiting.clear()

    def _table(self, name: str, table: TableCapture) -> StateTable:
        rows = table.rows()
        assert (DELETED in rows.column_names) == table.is_changes
        if not table.is_changes:
            self._parts[name] = []
        self.changes += table.is_changes
        self._parts[name].append(rows)
        return StateTable(table.redistribution, merge_rows(self._parts[name], table.identity, table.expiry))


def _assert_alike(one: OperatorSnapshot, other: OperatorSnapshot) -> None:
    assert one.watermark == other.watermark
    assert _rows(one) == _rows(other)


def _rows(snapshot: OperatorSnapshot) -> dict[str, list[str]]:
    rows = {name: sorted(map(_shown, table.data.to_pylist())) for name, table in snapshot.tables.items()}
    return {name: shown for name, shown in rows.items() if shown}


def _shown(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))


def restorable(capture: OperatorCapture) -> OperatorSnapshot:
    """The snapshot that a complete capture is restored as, that of its own files with it."""
    snapshot, native = captured_snapshot(capture), capture.native
    if native is None:
        return snapshot
    from penstock.engine.state.rocksdb.native import read_native

    with tempfile.TemporaryDirectory() as directory:
        for name, path in native.files.items():
            shutil.copyfile(path, Path(directory, name))
        native.release()
        tables = read_native(Path(directory), native.metadata, range(int(native.metadata["max_parallelism"])))
    return replace(snapshot, tables={**snapshot.tables, **tables})
