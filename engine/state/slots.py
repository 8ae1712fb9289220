"""Per-key running values: a dense slot for each key, and columns of values by slot.

The running aggregate keeps its accumulators here. Keys compare as Python values of one Arrow type, so two keys share a
slot exactly if they are equal. Memory grows with the number of distinct keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Slots = npt.NDArray[np.int64]


class KeySlots:
    """Numbers keys from 0 in the order in which they first come."""

    def __init__(self) -> None:
        self._index: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self._index)

    def lookup(self, columns: Sequence[pa.ChunkedArray]) -> Slots:
        """The slot of each row's key; a key not seen before gets the next one."""
        index = self._index
        values = [_comparable(column).to_pylist() for column in columns]
        keys = values[0] if len(values) == 1 else zip(*values, strict=True)
        return np.fromiter((index.setdefault(key, len(index)) for key in keys), np.int64)


class SlotColumn:
    """One nullable column of values by slot, of any Arrow type."""

    def __init__(self) -> None:
        self._type: pa.DataType = pa.null()
        self._values: npt.NDArray[Any] = np.empty(0, np.int64)
        self._valid: npt.NDArray[np.bool_] = np.empty(0, np.bool_)

    def get(self, slots: Slots) -> pa.Array:
        """The values at `slots`; null where none was set."""
        if pa.types.is_null(self._type):
            return pa.nulls(len(slots))
        self._reserve(slots)
        values, valid = self._values[slots], self._valid[slots]
        if self._values.dtype == np.object_:
            return pa.array(values.tolist(), self._type)
        return pa.array(values, mask=~valid).cast(self._type)

    def set(self, slots: Slots, values: pa.Array) -> None:
        """Store `values` at `slots`, each of them given once."""
        if pa.types.is_null(values.type):
            return
        if pa.types.is_null(self._type):
            self._type = values.type
            self._values = np.empty(0, _storage(values.type))
        self._reserve(slots)
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        if self._values.dtype == np.object_:
            # Filled one by one: numpy would take nested lists for more dimensions.
            for slot, value in zip(slots.tolist(), values.to_pylist(), strict=True):
                self._values[slot] = value
        else:
            plain = values.cast(pa.from_numpy_dtype(self._values.dtype))
            self._values[slots] = (plain.fill_null(0) if values.null_count else plain).to_numpy(zero_copy_only=False)
        self._valid[slots] = valid

    def _reserve(self, slots: Slots) -> None:
        needed = int(slots.max(initial=-1)) + 1
        if needed > len(self._valid):
            more = max(needed, 2 * len(self._valid)) - len(self._valid)
            self._valid = np.concatenate([self._valid, np.zeros(more, np.bool_)])
        if len(self._values) < len(self._valid):
            more = len(self._valid) - len(self._values)
            fill = np.zeros(more, self._values.dtype) if self._values.dtype != np.object_ else np.full(more, None)
            self._values = np.concatenate([self._values, fill])


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column as values of which Python tells all apart: its own times have no nanoseconds."""
    return column.cast(pa.int64()) if _is_long_time(column.type) else column


def _is_long_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_time64(kind) or pa.types.is_duration(kind))


def _storage(kind: pa.DataType) -> npt.DTypeLike:
    """The numpy type that holds values of an Arrow type by slot."""
    if pa.types.is_floating(kind):
        return np.float64
    if pa.types.is_uint64(kind):
        return np.uint64
    if pa.types.is_integer(kind) or _is_long_time(kind):
        return np.int64
    return np.object_
