"""Arrow types that are made of others: changed within, and those that Python can read.

Rows and state use it. What it makes of a flat type that it does not change is that type.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa


def readable(kind: pa.DataType) -> pa.DataType:
    """The type whose values Arrow takes and gives whole as Python's own: what has nanoseconds is pandas' classes."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_time(kind):
        return pa.time64("us")
    return rebuilt(kind, readable)


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
