"""How far single key groups have come, where that is further than the operator.

An operator that is restored at another parallelism resumes from the smallest watermark of the subtasks whose state it
gets. They may have stood at different ones where the barrier overtook rows (an unaligned checkpoint). Windows that one
of them had emitted must not be emitted again when the watermark passes them for the second time, and rows for them
are as late as they were there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.elements import MIN_TIMESTAMP, Batch
from penstock.engine.operators.base import OperatorContext
from penstock.engine.state.capture import TableCapture, complete_table
from penstock.engine.state.snapshot import KEY_GROUP, OperatorSnapshot, Redistribution, StateTable, groups_of_rows

GROUP_WATERMARKS: Final = "window_watermarks"
"""The name of the state in snapshots; there only from such a restore until the operator has caught up."""

_WATERMARK: Final = "watermark"
_Int64s = npt.NDArray[np.int64]


class GroupWatermarks:
    """The watermark of each key group, until that of the operator has come to the largest.

    Args:
        keys: the key columns, of windows; without any, all rows are of key group 0.
        context: of the operator.
    """

    def __init__(self, keys: Sequence[str], context: OperatorContext) -> None:
        self._keys = keys
        self._context = context
        self._by_group: _Int64s | None = None

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """Take over what the old subtasks had come to."""
        by_group = np.full(self._context.config.max_parallelism, snapshot.watermark)
        if GROUP_WATERMARKS in snapshot.tables:
            rows = snapshot.tables[GROUP_WATERMARKS].data
            by_group[rows.column(KEY_GROUP).to_numpy()] = rows.column(_WATERMARK).to_numpy()
        for groups, watermark in snapshot.ahead:
            owned = slice(groups.start, groups.stop)
            by_group[owned] = np.maximum(by_group[owned], watermark)
        self._by_group = by_group
        self.advance(snapshot.watermark)

    def advance(self, watermark: int) -> None:
        """The operator has come to `watermark`."""
        owned = self._context.key_groups
        if self._by_group is not None and self._by_group[owned.start : owned.stop].max(initial=watermark) <= watermark:
            self._by_group = None

    def parts(self, batch: Batch, watermark: int) -> Iterator[tuple[Batch, int]]:
        """The rows of a batch by the watermark that they are judged by; `watermark` is the operator's."""
        if self._by_group is None:
            yield batch, watermark
            return
        watermarks = self.of(batch.data, watermark, self._keys)
        for one in np.unique(watermarks).tolist():
            yield batch.filter(pa.array(watermarks == one)), one

    @property
    def differ(self) -> bool:
        """Whether some key group is further than the operator."""
        return self._by_group is not None

    def of(self, rows: pa.Table | pa.RecordBatch, watermark: int, keys: Sequence[str]) -> _Int64s:
        """The watermark that each row is judged by.

        Args:
            rows: with the columns `keys`.
            watermark: the operator's.
            keys: the key columns, where each input has its own names.
        """
        if self._by_group is None:
            return np.full(rows.num_rows, watermark)
        return np.maximum(self._by_group[groups_of_rows(rows, keys, len(self._by_group))], watermark)

    def not_emitted(self, keys: Callable[[], pa.Table], ends: int | _Int64s) -> npt.NDArray[np.bool_] | None:
        """Which keys' windows, with these ends (int64 ms), have not been emitted yet; None: none has been."""
        return None if self._by_group is None else self.of(keys(), MIN_TIMESTAMP, self._keys) < ends - 1

    def capture(self) -> Mapping[str, TableCapture]:
        """What a snapshot must hold of it."""
        if self._by_group is None:
            return {}
        owned = np.array(self._context.key_groups, np.int32)
        rows = pa.table({KEY_GROUP: owned, _WATERMARK: self._by_group[owned]})
        return {GROUP_WATERMARKS: complete_table(StateTable(Redistribution.KEYED, rows))}
