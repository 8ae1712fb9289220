"""Accumulators of a grouped aggregation by *cell*: an id from 0 that stands for a key and a slice, or for a session.

The window operators fold rows into cells, combine cells to results and release them. Columns that NumPy can hold are
dense: counts, sums, and extremes of numbers and times, where a row costs a nanosecond or two, however many cells there
are. The others are Arrow segments; to callers they look alike. Memory follows the highest cell id, so ids are to be
reused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.aggregates.accumulators import FoldAccumulator, GroupAccumulator
from penstock.engine.cells.segment_cells import SegmentCells
from penstock.engine.columns import beside, numpy_type
from penstock.engine.row_numbers import Groups
from penstock.engine.state.keys.codec import pooled_copies, pooled_copy

Cells = npt.NDArray[np.int64]
KeysOf = Callable[[Cells], pa.Table]
"""The key columns of cells, for messages."""

_MIN_CAPACITY: Final = 1024
_CELL: Final = "__cell"
_WHOLE_COPY: Final = 4
_UFUNCS: Final = {"sum": np.add, "min": np.minimum, "max": np.maximum}


class HasAccumulators(Protocol):
    """What is kept in cells: a `GroupedAggregation`, or some accumulators of one."""

    @property
    def folds(self) -> tuple[FoldAccumulator, ...]: ...

    @property
    def grouped(self) -> tuple[GroupAccumulator, ...]: ...


class AccumulatorCells:
    """Accumulators by cell.

    Args:
        aggregation: whose accumulators these are.
    """

    def __init__(self, aggregation: HasAccumulators) -> None:
        self._capacity = 0
        self._fresh: list[Cells] = []
        self._used = False
        self._dense: dict[str, DenseColumn] = {}
        self._undecided = {fold.name: fold for fold in aggregation.folds}
        self._segments: SegmentCells | None = None
        if aggregation.grouped:
            self._segments = SegmentCells(aggregation.grouped)
            weights = {each.weights for each in aggregation.grouped}
            for fold in aggregation.folds:
                if fold.name in weights:
                    self._segments.add_fold(self._undecided.pop(fold.name))

    def create(self, cells: Cells) -> None:
        """Begin to use `cells`: they have seen nothing yet, and `fold` is to come."""
        if not len(cells):
            return
        needed = int(cells.max()) + 1
        if needed > self._capacity:
            self._reserve(max(needed, 2 * self._capacity, _MIN_CAPACITY))
        for column in self._dense.values():
            column.clear(cells)
        self._fresh.append(cells)

    def _reserve(self, capacity: int) -> None:
        for column in self._dense.values():
            column.reserve(capacity)
        if self._segments is not None:
            self._segments.reserve(capacity)
        self._capacity = capacity

    def release(self, cells: Cells) -> None:
        """Forget what `cells` hold; they may be created again."""
        if self._segments is not None:
            self._segments.release(cells)

    def fold(self, cells: Cells, table: pa.Table, keys_of: KeysOf) -> None:
        """Combine rows of accumulators into cells.

        Args:
            cells: of each row.
            table: the rows, in order of arrival; other columns than accumulators are left out.
            keys_of: the key columns of cells, for messages.

        Raises:
            RecordError: a sum does not fit its type.
        """
        for fold in list(self._undecided.values()):
            self._decide(fold, table.schema.field(fold.name).type)
        for name, column in self._dense.items():
            values = table.column(name)
            if values.null_count and not column.tracks_nulls:
                column.track_nulls(np.concatenate([*self._fresh, np.zeros(0, np.int64)]))
            column.fold(cells, values, keys_of)
        if self._segments is not None:
            self._segments.fold(cells, table)
        self._fresh.clear()
        self._used = True

    def _decide(self, fold: FoldAccumulator, kind: pa.DataType) -> None:
        """Choose how to hold a column as soon as its type is known."""
        if pa.types.is_null(kind):
            return
        del self._undecided[fold.name]
        if storage_type(kind) is None:
            if self._segments is None:
                self._segments = SegmentCells(())
                self._segments.reserve(self._capacity)
            self._segments.add_fold(fold)
            return
        column = self._dense[fold.name] = DenseColumn(fold, kind, self._capacity)
        if self._used:
            column.track_nulls(np.arange(self._capacity))

    def read(self, cells: Cells) -> pa.Table:
        """The accumulators of `cells`, one row each."""
        columns = {name: column.read(cells) for name, column in self._dense.items()}
        segments = None if self._segments is None else self._segments.read(cells)
        return _table(self._undecided, columns, segments, len(cells))

    def captured(self, cells: Cells) -> Callable[[], pa.Table]:
        """What `read` gives now, to be made later and in any thread.

        Dense columns are copied, 1 to 5 ns a cell; segments are immutable, and referred to.
        """
        dense = {name: column.captured(cells) for name, column in self._dense.items()}
        segments = None if self._segments is None else self._segments.captured(cells)
        return partial(_made, list(self._undecided), dense, segments, len(cells))

    def captured_first(self, count: int) -> Callable[[], pa.Table]:
        """As `captured` of the cells 0 to `count` - 1, in a fraction of the time."""
        copies = pooled_copies([column.values[:count] for column in self._dense.values()])
        dense = {
            name: self._dense[name].captured_first(values) for name, values in zip(self._dense, copies, strict=True)
        }
        segments = None if self._segments is None else self._segments.captured(np.arange(count))
        return partial(_made, list(self._undecided), dense, segments, count)

    def combined(self, cells: Cells, groups: Groups, keys_of: KeysOf) -> pa.Table:
        """The accumulators of groups of cells, one row a group.

        Args:
            cells: in whose order lists follow each other.
            groups: the group of each cell.
            keys_of: the key columns of cells, for messages.

        Raises:
            RecordError: a sum does not fit its type.
        """
        columns = {name: column.combined(cells, groups, keys_of) for name, column in self._dense.items()}
        segments = None if self._segments is None else self._segments.combined(cells, groups)
        return _table(self._undecided, columns, segments, groups.count)


def _made(
    undecided: Iterable[str],
    dense: Mapping[str, Callable[[], pa.Array]],
    segments: Callable[[], pa.Table] | None,
    rows: int,
) -> pa.Table:
    """The table of what `captured` took."""
    columns = {name: column() for name, column in dense.items()}
    return _table(undecided, columns, None if segments is None else segments(), rows)


def _table(undecided: Iterable[str], dense: dict[str, pa.Array], segments: pa.Table | None, rows: int) -> pa.Table:
    columns: dict[str, pa.Array | pa.ChunkedArray] = {name: pa.nulls(rows) for name in undecided}
    columns.update(dense)
    if segments is not None:
        columns.update(zip(segments.column_names, segments.columns, strict=True))
    return pa.table(columns)


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
    """One accumulator column held as a NumPy array, with a value for each cell.

    As `FoldAccumulator`: null where nothing was seen, and sums that never wrap.

    Args:
        fold: whose accumulators these are.
        kind: their type; `storage_type` must know it.
        cells: how many there is room for; none of them has seen a value.

    Attributes:
        values: by cell.
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
        self.values = np.full(cells, self._identity, dtype)
        # Only columns with nulls need it, and they are few.
        self._valid: npt.NDArray[np.bool_] | None = None
        self._limit = _limit(dtype) if fold.function == "sum" else None
        self._largest = 0

    def reserve(self, cells: int) -> None:
        """Make room for as many cells."""
        more = cells - len(self.values)
        self.values = np.concatenate([self.values, np.full(more, self._identity, self.values.dtype)])
        if self._valid is not None:
            self._valid = np.concatenate([self._valid, np.zeros(more, np.bool_)])

    def clear(self, cells: Cells) -> None:
        """Forget what the cells hold."""
        self.values[cells] = self._identity
        if self._valid is not None:
            self._valid[cells] = False

    def track_nulls(self, unseen: Cells) -> None:
        """From now on keep account of which cells have seen a value; all have, but for `unseen`."""
        self._valid = np.ones(len(self.values), np.bool_)
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
        numbers = (values if values.type == self._storage else values.cast(self._storage)).to_numpy()
        if self._limit is not None and len(numbers):
            self._check(cells, numbers, keys_of)
        # Floats that grow beyond the largest are infinite, and no warning: as in Arrow.
        with np.errstate(over="ignore", invalid="ignore"):
            self._ufunc.at(self.values, cells, numbers)

    def read(self, cells: Cells) -> pa.Array:
        """The accumulators of `cells`."""
        missing = None if self._valid is None else ~self._valid[cells]
        return self._array(self.values[cells], missing)

    def captured(self, cells: Cells) -> Callable[[], pa.Array]:
        """What `read` gives now, to be made later and in any thread: only values are copied."""
        values, valid = self.values, self._valid
        if _WHOLE_COPY * len(cells) >= len(values):
            # To copy it in order is several times faster than to pick out what is needed.
            values, valid = values.copy(), None if valid is None else valid.copy()
            return lambda: self._array(values[cells], None if valid is None else ~valid[cells])
        values, valid = values[cells], None if valid is None else valid[cells]
        return lambda: self._array(values, None if valid is None else ~valid)

    def captured_first(self, values: npt.NDArray[Any]) -> Callable[[], pa.Array]:
        """As `captured` of the first cells, of whose values these are a copy."""
        valid = None if self._valid is None else pooled_copy(self._valid[: len(values)])
        return lambda: self._array(values, None if valid is None else ~valid)

    def combined(self, cells: Cells, groups: Groups, keys_of: KeysOf) -> pa.Array:
        """The accumulators of groups of cells; `groups` tells the group of each.

        Raises:
            RecordError: a sum does not fit its type.
        """
        values = self.values[cells]
        if self._limit is not None and self._largest * len(cells) >= self._limit:
            self._check_rows(groups.ids, values, cells, keys_of)
        results = np.full(groups.count, self._identity, self.values.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            self._ufunc.at(results, groups.ids, values)
        if self._valid is None:
            return self._array(results, None)
        missing = np.ones(groups.count, np.bool_)
        missing[groups.ids[self._valid[cells]]] = False
        return self._array(results, missing)

    def _array(self, values: npt.NDArray[Any], missing: npt.NDArray[np.bool_] | None) -> pa.Array:
        array = pa.array(values, self._storage, mask=missing)
        return array if self._storage == self._kind else array.cast(self._kind)

    def _check(self, cells: Cells, numbers: npt.NDArray[Any], keys_of: KeysOf) -> None:
        """Make sure that no sum leaves the type, by a bound on all of them; rows are looked at where it is too weak."""
        assert self._limit is not None
        more = _largest(numbers) * len(numbers)
        if self._largest + more >= self._limit:
            self._largest = _largest(self.values)
        if self._largest + more >= self._limit:
            touched = np.unique(cells)
            every = np.concatenate([cells, touched])
            self._check_rows(every, np.concatenate([numbers, self.values[touched]]), every, keys_of)
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
