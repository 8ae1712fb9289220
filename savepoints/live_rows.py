"""State of a running job as people see it: one subtask's share, rendered where it lies, put together where it is asked.

Subtasks render what their operators captured between two steps, in another thread; `live_state` asks them. The columns
are those of `SavedState.to_arrow`, so that live state and that of a checkpoint look alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.columns import one_array
from penstock.engine.errors import PenstockError, StateError, UnknownStateError, nearest
from penstock.engine.state.capture import TableCapture
from penstock.engine.state.keys.index import KeyIndex
from penstock.engine.state.snapshot import Redistribution
from penstock.engine.state.timers import EVENT_TIMERS, PROCESSING_TIMERS
from penstock.savepoints.history import merge_rows, standing_rows
from penstock.savepoints.layout import Layout, layout_of, shown_name

MOST_BYTES: Final = 256 * 1024 * 1024
"""A scan gives no more than this from one subtask."""


@dataclass(frozen=True, slots=True)
class ScanFilter:
    """Which rows of a state are wanted.

    Args:
        where: by the name of a shown column, the values that it may have.
        limit: how many rows of each subtask, whichever come first; None: all.
    """

    where: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class LiveRows:
    """What one subtask holds of a state.

    Args:
        layout: its columns.
        redistribution: whether other subtasks hold other rows.
        data: the rows, as `Layout.show` gives them.
    """

    layout: Layout
    redistribution: Redistribution
    data: pa.Table


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of one subtask's share of a state.

    Args:
        keys: the key columns, a row a key, in the types that the state has; None: all keys.
        wanted: which of their rows.
    """

    keys: pa.RecordBatch | None
    wanted: ScanFilter = ScanFilter()


StateAnswer: TypeAlias = LiveRows | PenstockError | None
"""None: nothing has come there so far."""


def stored_name(state: str, names: Sequence[str]) -> str | None:
    """The name of the table that people call `state`; None where it is not there and may yet come.

    Raises:
        UnknownStateError: the operator keeps other states only; names them.
    """
    found = next((name for name in names if state in (name, shown_name(name))), None)
    if found is None and names and state not in (shown_name(EVENT_TIMERS), shown_name(PROCESSING_TIMERS)):
        known = [shown_name(name) for name in names]
        raise UnknownStateError(f"there is no state {state!r}{nearest(state, known)}; there are {', '.join(known)}")
    return found


def rendered_rows(
    name: str, captured: TableCapture, keys: pa.RecordBatch | None, wanted: ScanFilter, known: Layout | None = None
) -> LiveRows:
    """The rows of a state that an operator captured; in any thread.

    Args:
        name: of the table.
        captured: it, which may hold more than was asked for.
        keys: only these; None: all.
        wanted: which rows.
        known: how the state was shown last; it is made anew only where that does not hold.

    Raises:
        StateError: a filter names no column or does not fit its type, or there is too much to give.
    """
    data = captured.rows()
    if keys is None:
        data = merge_rows([data], captured.identity, captured.expiry)
    else:
        data = data if captured.exact else rows_of_keys(data, keys)
        data = standing_rows([data], captured.identity, captured.expiry)
    holds = known is not None and known.holds_for(data)
    layout = known if known is not None and holds else layout_of(name, captured.redistribution, data)
    shown = layout.show(data)
    for column, values in wanted.where.items():
        allowed = values_of(shown.schema, column, values)
        shown = rows_with(shown, column, allowed)
    shown = shown if wanted.limit is None else shown.slice(0, wanted.limit)
    # To add up the memory takes a thirtieth of the time of `nbytes`, which leaves out what lies beside a slice.
    if shown.get_total_buffer_size() > MOST_BYTES and shown.nbytes > MOST_BYTES:
        raise StateError(
            f"state {name!r} has {shown.nbytes:,} bytes in one subtask, and a scan gives {MOST_BYTES:,} at most; "
            "narrow it by keys, where or limit, or read a checkpoint, which comes in parts"
        )
    if wanted.limit is not None or not captured.exact:
        # A slice would carry the whole table along.
        shown = shown.take(pa.array(np.arange(len(shown))))
    return LiveRows(layout, captured.redistribution, shown)


def rows_of_keys(data: pa.Table, keys: pa.RecordBatch) -> pa.Table:
    """The rows that have one of the keys.

    Args:
        data: any rows with the key columns.
        keys: those columns alone.

    Raises:
        StateError: the rows have no such columns.
    """
    if keys.num_rows == 0:
        # Of no keys, there is nothing in state without keys either, such as broadcast state.
        return data.slice(0, 0)
    names = [name for name in keys.schema.names if name in data.column_names]
    if len(names) < keys.num_columns:
        raise StateError(f"the state has no key columns {', '.join(keys.schema.names)}")
    if len(names) == 1:
        return rows_with(data, names[0], keys.column(names[0]))
    index = KeyIndex()
    index.lookup(keys.columns)
    found = index.find([one_array(data.column(name)) for name in names])
    return data.filter(pa.array(found >= 0))


def rows_with(data: pa.Table, column: str, values: pa.Array) -> pa.Table:
    """The rows that have one of the values in a column; null is one like others.

    Raises:
        StateError: values of its type, such as lists, cannot be looked for.
    """
    try:
        return data.filter(pc.is_in(data.column(column), value_set=values))
    except pa.ArrowNotImplementedError as error:
        raise StateError(
            f"column {column!r} is {values.type}, whose values cannot be looked for; ask for all rows, and filter them"
        ) from error


def values_of(schema: pa.Schema, column: str, values: Sequence[Any]) -> pa.Array:
    """Values that a column may have, in its type.

    Raises:
        StateError: there is no such column, or a value does not fit.
    """
    if column not in schema.names:
        raise StateError(f"there is no column {column!r}{nearest(column, schema.names)}; there are {schema.names}")
    kind = schema.field(column).type
    try:
        return values.cast(kind) if isinstance(values, pa.Array) else pa.array(list(values), kind)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise StateError(f"{values!r:.200} does not fit column {column!r} of {kind}: {error}") from error
