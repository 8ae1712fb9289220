"""Columns of values by slot, a slot for each key: what the running aggregate and the columnar backend keep.

`KeyIndex` gives the slots. Reads and writes are vectorised over slots; a column holds values of any Arrow type, as
numbers where that type is one, else as Python objects. Memory grows with the largest slot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.state.keys.codec import from_words, grown, is_word, mask_of, pooled_copy, words_of
from penstock.engine.state.keys.index import Slots

_WORDS: Final = 2**64


class SlotColumn:
    """One nullable column of values by slot.

    Args:
        kind: their type; null if the first values that are not null are to tell it.
    """

    def __init__(self, kind: pa.DataType | None = None) -> None:
        self._type: pa.DataType = pa.null()
        self._values: npt.NDArray[Any] = np.empty(0, np.int64)
        self._valid: npt.NDArray[np.bool_] = np.empty(0, np.bool_)
        if kind is not None:
            self._take_type(kind)

    @property
    def type(self) -> pa.DataType:
        """The type of the values; null where it is not known yet."""
        return self._type

    def get(self, slots: Slots) -> pa.Array:
        """The values at `slots`; null where none was set."""
        return self.take(slots)()

    def take(self, slots: Slots) -> Callable[[], pa.Array]:
        """As `get`, but by reference: what is called, in any thread, makes the array of the values as they are now."""
        if pa.types.is_null(self._type):
            return lambda: pa.nulls(len(slots))
        self._reserve(slots)
        return self._array_of(self._values[slots], self._valid[slots])

    def take_first(self, count: int) -> Callable[[], pa.Array]:
        """As `take` of the slots 0 to `count` - 1, in a third of the time: values in a row are copied as a block."""
        if pa.types.is_null(self._type):
            return lambda: pa.nulls(count)
        self._reserve(np.array([count - 1]))
        values, valid = self._values[:count], self._valid[:count]
        copied = values.copy() if values.dtype == np.object_ else pooled_copy(values)
        return self._array_of(copied, pooled_copy(valid))

    def _array_of(self, values: npt.NDArray[Any], valid: npt.NDArray[np.bool_]) -> Callable[[], pa.Array]:
        kind = self._type
        if values.dtype == np.object_:
            return lambda: pa.array(values.tolist(), kind)
        if is_word(kind):
            return lambda: from_words(values, valid, kind)
        return lambda: pa.array(values, mask=mask_of(valid)).cast(kind)

    @property
    def is_direct(self) -> bool:
        """Whether `read` and `write` take values as they are kept: all but times, which lie here as integers."""
        return pa.types.is_integer(self._type) or pa.types.is_boolean(self._type) or not is_word(self._type)

    def read(self, slot: int) -> Any:
        """The value at `slot` as Python's, or None; the object that is held where the type is not a number."""
        if slot >= len(self._valid) or not self._valid[slot]:
            return None
        value = self._values[slot]
        if self._values.dtype == np.object_:
            return value
        if pa.types.is_boolean(self._type):
            return bool(value)
        plain = value.item()
        return plain - _WORDS if is_word(self._type) and plain >= self._above else plain

    def write(self, slot: int, value: Any) -> None:
        """Store a value of the column's type at `slot`.

        Raises:
            OverflowError: an integer of more than 64 bits.
        """
        if slot >= len(self._values):
            self._reserve(np.array([slot]))
        if is_word(self._type):
            if not self._above - _WORDS <= value < self._above:
                raise OverflowError(f"{value} does not fit {self._type}")
            self._values[slot] = value % _WORDS
        else:
            self._values[slot] = value
        self._valid[slot] = True

    def has(self, slots: Slots) -> npt.NDArray[np.bool_]:
        """Whether there is a value at each of `slots`."""
        self._reserve(slots)
        return self._valid[slots]

    def count(self) -> int:
        """How many slots have a value. May be called from another thread."""
        return int(np.count_nonzero(self._valid))

    def set(self, slots: Slots, values: pa.Array) -> None:
        """Store `values` at `slots`, each of them given once."""
        if pa.types.is_null(values.type):
            self.clear(slots)
            return
        if pa.types.is_null(self._type):
            self._take_type(values.type)
        self._reserve(slots)
        if self._values.dtype == np.object_:
            self._values[slots] = _objects(values)
        elif is_word(self._type):
            self._values[slots] = words_of(values)
        else:
            floats = values.cast(pa.float64())
            self._values[slots] = (floats.fill_null(0) if values.null_count else floats).to_numpy()
        self._valid[slots] = True if values.null_count == 0 else values.is_valid().to_numpy(zero_copy_only=False)

    def increase(self, slots: Slots, amounts: npt.NDArray[np.int64]) -> None:
        """Add to the integers at `slots`, which may repeat; where none was set, to 0."""
        self._reserve(slots)
        self._values[slots[~self._valid[slots]]] = 0
        self._valid[slots] = True
        np.add.at(self._values.view(np.int64), slots, amounts)

    def clear(self, slots: Slots) -> None:
        """Hold nothing at `slots`."""
        self._reserve(slots)
        self._valid[slots] = False
        if self._values.dtype == np.object_:
            self._values[slots] = None

    def _take_type(self, kind: pa.DataType) -> None:
        self._type = kind
        self._above = _WORDS if pa.types.is_uint64(kind) else _WORDS // 2
        self._values = np.empty(0, _storage(kind))

    def _reserve(self, slots: Slots) -> None:
        size = int(slots.max(initial=-1)) + 1
        self._valid = grown(self._valid, size)
        if len(self._values) < len(self._valid):
            more = np.empty(len(self._valid), self._values.dtype)
            more[: len(self._values)] = self._values
            self._values = more


def _storage(kind: pa.DataType) -> npt.DTypeLike:
    """The numpy type that holds values of an Arrow type by slot."""
    if pa.types.is_floating(kind):
        return np.float64
    return np.uint64 if is_word(kind) else np.object_


def _objects(values: pa.Array) -> npt.NDArray[Any]:
    """The values as Python objects; filled one by one, since numpy would take nested lists for more dimensions."""
    objects = np.empty(len(values), np.object_)
    for row, value in enumerate(values.to_pylist()):
        objects[row] = value
    return objects
