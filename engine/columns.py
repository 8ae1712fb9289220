"""Columns and types of Arrow: what all rooms need of them, and Arrow itself has not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_TYPES: Final[dict[pa.DataType, str]] = {
    **{
        getattr(pa, name)(): name for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    },
    **{getattr(pa, name)(): name for name in ("float16", "float32", "float64")},
    pa.bool_(): "bool",
}

_FEW: Final = 3
"""Of one row of so many it is faster to take it by its number than to filter (of texts as fast)."""


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """The column in one piece (zero-copy where it has one chunk)."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def beside(*tables: pa.Table) -> pa.Table:
    """The columns of all tables in one; those without columns may have any number of rows."""
    return pa.table({name: table.column(name) for table in tables for name in table.column_names})


def mask_of(column: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    """Booleans without nulls for numpy: `to_numpy` takes them one by one, which is ten times as slow.

    Example:
        >>> mask_of(pa.array([True, False])).tolist()
        [True, False]
    """
    if not len(column):
        return np.zeros(0, np.bool_)
    byte, bit = divmod(column.offset, 8)
    bits = np.frombuffer(column.buffers()[1], np.uint8, offset=byte)
    return np.unpackbits(bits, count=bit + len(column), bitorder="little")[bit:].view(np.bool_)


def booleans(mask: npt.NDArray[np.bool_]) -> pa.BooleanArray:
    """Those of numpy as a column: as `pa.array`, which takes them one by one.

    Example:
        >>> booleans(np.array([True, False])).to_pylist()
        [True, False]
    """
    bits = pa.py_buffer(np.packbits(mask, bitorder="little"))
    return pa.BooleanArray.from_buffers(pa.bool_(), len(mask), [None, bits])


def picker(mask: npt.NDArray[np.bool_]) -> Callable[[pa.Array], pa.Array]:
    """What takes the values of some rows out of a column: by their numbers where they are few, else by the mask.

    Example:
        >>> picker(np.array([True, False, False, False]))(pa.array([5, 6, 7, 8])).to_pylist()
        [5]
    """
    if _FEW * np.count_nonzero(mask) > len(mask):
        chosen = booleans(mask)
        return lambda column: column.filter(chosen)
    numbers = pa.array(np.flatnonzero(mask))
    return lambda column: column.take(numbers)


def numpy_type(kind: pa.DataType) -> np.dtype[Any]:
    """The numpy type of an integer, floating or boolean type.

    `DataType.to_pandas_dtype` says the same, but some versions of Arrow load pandas for it, which need not be there.

    Raises:
        KeyError: the type is none of these.

    Example:
        >>> numpy_type(pa.float32())
        dtype('float32')
    """
    return np.dtype(_TYPES[kind])


def readable(kind: pa.DataType) -> pa.DataType:
    """The type whose values Arrow takes and gives whole as Python's own: what has nanoseconds is pandas' classes."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_time(kind):
        return pa.time64("us")
    return rebuilt(kind, readable)


def with_numbers(values: pa.Array) -> pa.Array:
    """The same with numbers in place of times with nanoseconds, which Python has not; also within lists, maps, structs.

    Arrow makes times of such numbers again: `pa.array(numbers, kind)`.

    Example:
        >>> with_numbers(pa.array([[5]], pa.list_(pa.timestamp("ns")))).to_pylist()
        [[5]]
    """
    kind = numbers_type(values.type)
    return values if kind == values.type else values.cast(kind)


def numbers_type(kind: pa.DataType) -> pa.DataType:
    """The type of what `with_numbers` makes of values of type `kind`."""
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind) or pa.types.is_duration(kind):
        return pa.int64() if kind.unit == "ns" else kind
    return rebuilt(kind, numbers_type)


def rebuilt(kind: pa.DataType, changed: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A nested type with its inner types changed; another as it is."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(changed(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(changed(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(changed(kind.value_type)))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(changed(kind.value_type)), kind.list_size)
    if pa.types.is_map(kind):
        return pa.map_(changed(kind.key_type), changed(kind.item_type))
    return kind
