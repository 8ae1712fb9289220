"""What the vectorised window aggregates have in common: their state in captures, and what is late.

`WindowAggregate` and `SessionAggregate` use it. A capture holds copies and immutable tables only, so that its rows can
be made in another thread while the operator keeps running.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.aggregates.partials import rows_of
from penstock.engine.elements import Batch
from penstock.engine.operators.base import OperatorContext
from penstock.engine.state.capture import DELETED, Expiry, TableCapture
from penstock.engine.state.segments import concat_tables
from penstock.engine.state.snapshot import KEY_GROUP, OperatorSnapshot, Redistribution, parts_of, with_groups

WINDOW_STATE: Final = "window_aggregate"
"""The name of the operators' state in snapshots."""
SLICE: Final = "__slice"
"""Its column of the start of a slice (int64 ms)."""
SESSION_START: Final = "__start"
SESSION_END: Final = "__end"
"""Its columns of the bounds of a session (int64 ms)."""


def kept_table(
    rows: Callable[[], pa.Table], keys: Sequence[str], within_key: str, expiry: Expiry, max_parallelism: int
) -> TableCapture:
    """All that an operator holds.

    Args:
        rows: makes the table, with key columns, one that tells apart the rows of a key, and accumulators.
        keys, within_key: the names of these columns.
        expiry: which rows of earlier captures are dead.
        max_parallelism: number of key groups.
    """
    made = lambda: with_groups(rows(), keys, max_parallelism)  # noqa: E731 - as short as it can be said
    return TableCapture(Redistribution.KEYED, made, (*keys, within_key), expiry=expiry)


def changed_table(
    rows: Callable[[], pa.Table],
    gone: pa.Table | None,
    keys: Sequence[str],
    within_key: str,
    expiry: Expiry,
    max_parallelism: int,
) -> TableCapture:
    """What has changed of it since the capture before: see `kept_table`.

    Args:
        gone: `keys` and `within_key` of rows that are there no more, unless they are among `rows` too.
    """

    def made() -> pa.Table:
        changed = rows()
        deleted = np.zeros(changed.num_rows, np.bool_)
        if gone is not None:
            deleted = np.concatenate([np.ones(gone.num_rows, np.bool_), deleted])
            names = changed.column_names
            changed = concat_tables([gone, changed]).select(names)
        changed = changed.append_column(DELETED, pa.array(deleted))
        return with_groups(changed, keys, max_parallelism)

    return TableCapture(Redistribution.KEYED, made, (*keys, within_key), is_changes=True, expiry=expiry)


def restored_parts(snapshot: OperatorSnapshot, aggregation: GroupedAggregation) -> Iterator[pa.Table]:
    """The rows that a snapshot holds, in parts of a middling size."""
    if WINDOW_STATE not in snapshot.tables:
        return
    for part in parts_of(snapshot.tables[WINDOW_STATE].data.drop_columns(KEY_GROUP)):
        yield _as_now(part, aggregation)


def _as_now(rows: pa.Table, aggregation: GroupedAggregation) -> pa.Table:
    """Saved rows with the accumulators of this version; what other columns they have is looked at elsewhere."""
    for fold in aggregation.folds:
        if fold.name in rows.column_names:
            values = fold.restored(rows.column(fold.name))
            rows = rows.set_column(rows.schema.get_field_index(fold.name), fold.name, values)
    return rows


def restored_schema(snapshot: OperatorSnapshot, aggregation: GroupedAggregation) -> pa.Schema | None:
    """The columns of the rows that a snapshot holds; None where there are none."""
    if WINDOW_STATE not in snapshot.tables:
        return None
    return _as_now(snapshot.tables[WINDOW_STATE].data.slice(0, 0), aggregation).schema


def put_aside(late: Batch, tag: str | None, context: OperatorContext) -> None:
    """Give late rows to the side output `tag`, or count them where there is none."""
    if tag is None:
        context.metrics.late_rows += rows_of(late)
    elif late.num_rows:
        context.emit_side(tag, late)
