"""Columns of any type in a form of which `KeyIndex` tells all values apart, and key groups can be made.

SQL groups by, and compares rows of, types that a stream's keys never have: floating numbers and nested values. The
changelog operators and their exchange code columns by it. Two values have one code exactly if SQL calls them not
distinct: null is null, NaN is NaN, and -0.0 is 0.0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.engine.columns import readable, with_numbers
from penstock.engine.state.keys.codec import is_text, is_word


def coded_type(kind: pa.DataType) -> pa.DataType:
    """The type of the codes of values of type `kind`."""
    if pa.types.is_dictionary(kind):
        return coded_type(kind.value_type)
    if pa.types.is_floating(kind):
        return pa.int64()
    if pa.types.is_string_view(kind) or _needs_text(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


def is_reversible(kind: pa.DataType) -> bool:
    """Whether `decoded` makes values of type `kind` of their codes."""
    return not _needs_text(kind)


def coded(column: pa.Array) -> pa.Array:
    """The column's codes.

    Example:
        >>> coded(pa.array([0.0, -0.0, None])).to_pylist()
        [0, 0, None]
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        return coded(column.dictionary_decode())
    if pa.types.is_floating(kind):
        return _float_bits(column)
    if _needs_text(kind):
        return _texts(column)
    return column if coded_type(kind) == kind else column.cast(coded_type(kind))


def coded_columns(columns: Sequence[pa.Array]) -> list[pa.Array]:
    """As `coded`, for several."""
    return [coded(column) for column in columns]


def decoded(codes: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values of type `kind` of which these are the codes; `kind` is reversible."""
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_floating(plain):
        codes = codes.view(pa.float64())
    return codes if codes.type == kind else codes.cast(kind)


def _needs_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _needs_text(kind.value_type)
    has_code = (
        is_text(kind)
        or is_word(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_null(kind)
        or pa.types.is_fixed_size_binary(kind)
    )
    return not has_code


def _texts(column: pa.Array) -> pa.Array:
    """A text for each nested value: `repr`, by which saved rows have their key groups.

    Values with nanoseconds that Python's times cannot hold have numbers in place of times.
    """
    numbers = with_numbers(column)
    if numbers.type == column.type:
        return pa.array(_shown(column), pa.string())
    cut = column.cast(readable(column.type), safe=False)
    held = _shown(with_numbers(cut.cast(column.type)))
    texts = [
        text if one == other else other for text, one, other in zip(_shown(cut), held, _shown(numbers), strict=True)
    ]
    return pa.array(texts, pa.string())


def _shown(values: pa.Array) -> list[str | None]:
    return [None if value is None else repr(value) for value in values.to_pylist()]


def _float_bits(column: pa.Array) -> pa.Array:
    """The bits of the numbers as float64: one pattern for both zeros, and one for all that are not a number."""
    wide = column.cast(pa.float64())
    nulls = wide.is_null().to_numpy(zero_copy_only=False) if wide.null_count else None
    numbers = (wide.fill_null(0.0) if wide.null_count else wide).to_numpy() + 0.0
    numbers[np.isnan(numbers)] = np.nan
    return pa.array(numbers.view(np.int64), mask=nulls)
