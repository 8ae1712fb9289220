"""One accumulator column held as a NumPy array, with a value for each cell.

`AccumulatorCells` keeps counts, sums, and extremes of numbers and times in these: a row costs a nanosecond or two,
however many cells there are. Guarantees what `FoldAccumulator` does: null where nothing was seen, and sums that never
wrap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.aggregates.accumulators import FoldAccumulator
from penstock.engine.cells.counted_keys import beside
from penstock.engine.number_types import numpy_type
from penstock.engine.row_numbers import Groups
from penstock.engine.state.keys.codec import pooled_copy

Cells = npt.NDArray[np.int64]
KeysOf = Callable[[Cells], pa.Table]
"""The key columns of cells, for messages."""

_CELL: Final = "__cell"
_WHOLE_COPY: Final = 4
_UFUNCS: Final = {"sum": np.add, "min": np.minimum, "max": np.maximum}


def storage_type(kind: pa.DataType) -> pa.DataType | None:
    """The type, with a NumPy equivalent, that holds accumulators of type `kind`; None if there is none."""
    types = pa.types
    if types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind):
        return kind
    if types.is_boolean(kind):
        return pa.uint8()
    if types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return None


class DenseColumn:
    """Accumulators by cell.

    Args:
        fold: whose accumulators these are.
        kind: their type; `storage_type` must know it.
        cells: how many there is room for; none of them has seen a value.
    """

    def __init__(self, fold: FoldAccumulator, kind: pa.DataType, cells: int) -> None:
        storage = storage_type(kind)
        assert storage is not None, "only types with a storage type are held densely"
        self._fold = fold
        self._kind = kind
        self._storage = storage
        self._ufunc = _UFUNCS[fold.function]
        dtype = numpy_type(storage)
        self._identity = _identity(fold.function, dtype)
        self._values = np.full(cells, self._identity, dtype)
        # Only columns with nulls need it, and they are few.
        self._valid: npt.NDArray[np.bool_] | None = None
        self._limit = _limit(dtype) if fold.function == "sum" else None
        self._largest = 0

    def reserve(self, cells: int) -> None:
        """Make room for as many cells."""
        more = cells - len(self._values)
        self._values = np.concatenate([self._values, np.full(more, self._identity, self._values.dtype)])
        if self._valid is not None:
            self._valid = np.concatenate([self._valid, np.zeros(more, np.bool_)])

    def clear(self, cells: Cells) -> None:
        """Forget what the cells hold."""
        self._values[cells] = self._identity
        if self._valid is not None:
            self._valid[cells] = False

    def track_nulls(self, unseen: Cells) -> None:
        """From now on keep account of which cells have seen a value; all have, but for `unseen`."""
        self._valid = np.ones(len(self._values), np.bool_)
        self._valid[unseen] = False

    @property
    def tracks_nulls(self) -> bool:
        """Whether `track_nulls` was called."""
        return self._valid is not None

    def fold(self, cells: Cells, values: pa.ChunkedArray, keys_of: KeysOf) -> None:
        """Fold row i of `values` into `cells[i]`, for each i; `track_nulls` must come before the first null.

        Raises:
            RecordError: a sum does not fit its type.
        """
        if values.null_count:
            cells = cells[values.is_valid().to_numpy()]
            values = values.drop_null()
        if self._valid is not None:
            self._valid[cells] = True
        numbers = values.cast(self._storage).to_numpy()
        if self._limit is not None and len(numbers):
            self._check(cells, numbers, keys_of)
        # Floats that grow beyond the largest are infinite, and no warning: as in Arrow.
        with np.errstate(over="ignore", invalid="ignore"):
            self._ufunc.at(self._values, cells, numbers)

    def read(self, cells: Cells) -> pa.Array:
        """The accumulators of `cells`."""
        missing = None if self._valid is None else ~self._valid[cells]
        return self._array(self._values[cells], missing)

    def captured(self, cells: Cells) -> Callable[[], pa.Array]:
        """What `read` gives now, to be made later and in any thread: only values are copied."""
        values, valid = self._values, self._valid
        if _WHOLE_COPY * len(cells) >= len(values):
            # To copy it in order is several times faster than to pick out what is needed.
            values, valid = values.copy(), None if valid is None else valid.copy()
            return lambda: self._array(values[cells], None if valid is None else ~valid[cells])
        values, valid = values[cells], None if valid is None else valid[cells]
        return lambda: self._array(values, None if valid is None else ~valid)

    def captured_first(self, count: int) -> Callable[[], pa.Array]:
        """As `captured` of the cells 0 to `count` - 1, which are copied as a block."""
        values = pooled_copy(self._values[:count])
        valid = None if self._valid is None else pooled_copy(self._valid[:count])
        return lambda: self._array(values, None if valid is None else ~valid)

    def combined(self, cells: Cells, groups: Groups, keys_of: KeysOf) -> pa.Array:
        """The accumulators of groups of cells; `groups` tells the group of each.

        Raises:
            RecordError: a sum does not fit its type.
        """
        values = self._values[cells]
        if self._limit is not None and self._largest * len(cells) >= self._limit:
            self._check_rows(groups.ids, values, cells, keys_of)
        results = np.full(groups.count, self._identity, self._values.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            self._ufunc.at(results, groups.ids, values)
        if self._valid is None:
            return self._array(results, None)
        missing = np.ones(groups.count, np.bool_)
        missing[groups.ids[self._valid[cells]]] = False
        return self._array(results, missing)

    def _array(self, values: npt.NDArray[Any], missing: npt.NDArray[np.bool_] | None) -> pa.Array:
        return pa.array(values, self._storage, mask=missing).cast(self._kind)

    def _check(self, cells: Cells, numbers: npt.NDArray[Any], keys_of: KeysOf) -> None:
        """Make sure that no sum leaves the type, by a bound on all of them; rows are looked at where it is too weak."""
        assert self._limit is not None
        more = _largest(numbers) * len(numbers)
        if self._largest + more >= self._limit:
            self._largest = _largest(self._values)
        if self._largest + more >= self._limit:
            touched = np.unique(cells)
            every = np.concatenate([cells, touched])
            self._check_rows(every, np.concatenate([numbers, self._values[touched]]), every, keys_of)
            more = 0
            self._largest = self._limit
        self._largest += more

    def _check_rows(self, groups: Cells, values: npt.NDArray[Any], cells: Cells, keys_of: KeysOf) -> None:
        keys = keys_of(cells)
        self._fold.check(beside(keys, pa.table({_CELL: groups, self._fold.name: values})), [*keys.column_names, _CELL])


def _identity(function: str, dtype: np.dtype[Any]) -> Any:
    """What changes no value that it is combined with."""
    if function == "sum":
        return 0
    if dtype.kind == "f":
        return np.inf if function == "min" else -np.inf
    limits = np.iinfo(dtype)
    return limits.max if function == "min" else limits.min


def _limit(dtype: np.dtype[Any]) -> int | None:
    """Sums of this type are smaller; None if they cannot wrap."""
    return None if dtype.kind == "f" else int(np.iinfo(dtype).max)


def _largest(numbers: npt.NDArray[Any]) -> int:
    return max(-int(numbers.min()), int(numbers.max()))
