"""What operators of a harness remember: their captures as snapshots to restore from, and as values to compare with.

The harness calls it. It reads what a checkpoint would hold and nothing else, so what a test sees is what a restore
brings back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import RestoreError, StateError, nearest
from penstock.engine.operators.base import Operator
from penstock.engine.state.capture import CaptureRequest, CaptureScope
from penstock.engine.state.snapshot import KEY_GROUP, OperatorSnapshot, StateTable, by_group, share
from penstock.engine.state.timers import EVENT_TIMERS, PROCESSING_TIMERS
from penstock.savepoints.layout import LAST_TOUCHED, TIME, Layout, StateKind, layout_of

_TIMERS: Final = (EVENT_TIMERS, PROCESSING_TIMERS)


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer that is registered.

    Args:
        key: a value, or a tuple where there are several key columns.
        at: when it fires, int64 ms.
        is_event_time: whether that is event time, and not the clock.
    """

    key: Any
    at: int
    is_event_time: bool = True


@dataclass(frozen=True, slots=True)
class HarnessSnapshot:
    """The state of all operators of a harness at one moment; `Harness(..., restore=...)` resumes from it.

    Args:
        operators: by uid, or by place and name where the program gives none.
    """

    operators: Mapping[str, OperatorSnapshot]


def captured(operator: Operator, number: int) -> OperatorSnapshot:
    """What a savepoint of the operator would hold now."""
    capture = operator.capture(CaptureRequest(number, CaptureScope.COMPLETE, SnapshotKind.SAVEPOINT))
    tables = {}
    for name, table in capture.tables.items():
        rows = table.rows()
        ordered = by_group(rows) if KEY_GROUP in rows.column_names else rows
        tables[name] = StateTable(table.redistribution, ordered)
    return OperatorSnapshot(tables, capture.watermark)


def check_restored(snapshots: Sequence[HarnessSnapshot], known: Sequence[str]) -> None:
    """A program that is restored has all operators with state, as a job must have that resumes from a savepoint.

    Raises:
        RestoreError: it lacks one.
    """
    for snapshot in snapshots:
        for name, operator in snapshot.operators.items():
            if name not in known and any(table.data.num_rows for table in operator.tables.values()):
                raise RestoreError(
                    f"Harness: the snapshot holds state of {name!r}{nearest(name, known)}, which the program does not "
                    f"have; it has {', '.join(map(repr, known))}. A job would be refused: give the operator the uid "
                    "that it had, .uid(...), or restore HarnessSnapshot({...}) without it"
                )


def shared(
    snapshots: Sequence[HarnessSnapshot], name: str, subtask: int, parallelism: int, max_parallelism: int
) -> OperatorSnapshot | None:
    """The share of one subtask in what the operator of that name held in the snapshots of all subtasks."""
    own = [snapshot.operators[name] for snapshot in snapshots if name in snapshot.operators]
    return share(own, subtask, parallelism, max_parallelism) if own else None


def timers_of(snapshots: Mapping[str, OperatorSnapshot]) -> list[Timer]:
    """All timers, by time; those of one time in the order in which they were registered."""
    found = []
    for snapshot in snapshots.values():
        for name in _TIMERS:
            for layout, rows in _shown(snapshot, name):
                times = rows.column(TIME).cast(pa.int64()).to_pylist()
                found += [
                    Timer(key, at, name == EVENT_TIMERS) for key, at in zip(_keys(layout, rows), times, strict=True)
                ]
    return sorted(found, key=lambda timer: timer.at)


def state_of(snapshots: Mapping[str, OperatorSnapshot], name: str) -> Any:
    """What the state `name` holds: see `Harness.state`.

    Raises:
        StateError: no operator has a state of that name with anything in it, or several have.
    """
    holding = {uid: snapshot for uid, snapshot in snapshots.items() if name in snapshot.tables}
    if len(holding) > 1:
        raise StateError(f"the operators {', '.join(holding)} all have a state {name!r}; name one: operator=...")
    if not holding:
        names = sorted({own for snapshot in snapshots.values() for own in snapshot.tables if own not in _TIMERS})
        raise StateError(
            f"no state {name!r}{nearest(name, names)} holds anything; those that do: {', '.join(names) or 'none'}"
        )
    ((_, snapshot),) = holding.items()
    return next((_values(layout, rows) for layout, rows in _shown(snapshot, name)), {})


def _shown(snapshot: OperatorSnapshot, name: str) -> Iterator[tuple[Layout, pa.Table]]:
    table = snapshot.tables.get(name)
    if table is not None:
        layout = layout_of(name, table.redistribution, table.data)
        yield layout, layout.show(table.data)


def _keys(layout: Layout, rows: pa.Table) -> list[Any]:
    columns = [rows.column(key).to_pylist() for key in layout.keys]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def _values(layout: Layout, rows: pa.Table) -> Any:
    own = [shown for _, shown in layout.columns if shown not in (*layout.keys, LAST_TOUCHED)]
    match layout.kind:
        case StateKind.VALUE | StateKind.LIST if len(own) == 1:
            return dict(zip(_keys(layout, rows), rows.column(own[0]).to_pylist(), strict=True))
        case StateKind.MAP if len(own) == 2:
            maps: dict[Any, dict[Any, Any]] = {}
            entries = zip(_keys(layout, rows), *(rows.column(name).to_pylist() for name in own), strict=True)
            for key, map_key, value in entries:
                maps.setdefault(key, {})[map_key] = value
            return maps
        case StateKind.OPERATOR_LIST | StateKind.UNION_LIST:
            return rows.column(own[0]).to_pylist()
        case StateKind.BROADCAST:
            return dict(zip(*(rows.column(name).to_pylist() for name in own), strict=True))
        case _:
            return rows.to_pylist()
