"""Times with nanoseconds as whole numbers, for what goes over values in Python, which has no such times.

Arrow makes times of such numbers again: `pa.array(numbers, kind)`.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from penstock.tables.functions.signatures import CallValues


def with_numbers(values: pa.Array) -> pa.Array:
    """The same with numbers in place of times with nanoseconds, also within lists, maps and rows.

    Example:
        >>> with_numbers(pa.array([[5]], pa.list_(pa.timestamp("ns")))).to_pylist()
        [[5]]
    """
    kind = _numbers(values.type)
    return values if kind == values.type else values.cast(kind)


def call_with_numbers(call: CallValues) -> CallValues:
    """The call with such arguments."""
    return replace(call, columns=[with_numbers(column) for column in call.columns])


def _numbers(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return pa.int64() if kind.unit == "ns" else kind
    if pa.types.is_list(kind):
        return pa.list_(_numbers(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_numbers(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_numbers(kind.key_type), _numbers(kind.item_type))
    return kind
