"""Saved values of one Arrow type as values of the type that is declared now: what programs may change about a state.

Called where restored state is read (`state_tables.py`). Pure; it either keeps every value exactly or refuses, with both
types in the message. Fields of structs may be added or dropped, and types widened; nothing else.

Source of the rules: Flink's documentation, "State Schema Evolution" (fields added and dropped), and the Avro
specification, "Schema Resolution" (widening), but for what loses digits or takes bytes for text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.engine.errors import RestoreError

_INTEGER_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 20}
"""Decimal digits of the largest integer of each width."""
_UNITS: Final = ("s", "ms", "us", "ns")
_LARGE: Final = ((pa.string(), pa.large_string()), (pa.binary(), pa.large_binary()))


def evolve(column: pa.ChunkedArray, declared: pa.DataType, default: Any = None) -> pa.ChunkedArray:
    """The values of a saved column as values of the declared type.

    What may have changed, at any depth of structs, lists and maps:

    - fields of structs: added (null, or what `default` has), dropped, in another order;
    - integers to wider ones, to decimals, and to floats where every value stays exact; floats to wider ones; decimals
      to more digits; times, timestamps and durations to finer units; lists, texts and bytes to large ones;
    - null (no value was ever seen) to anything.

    Args:
        column: the saved values.
        declared: the type that they shall have.
        default: for a struct, a mapping that gives the values of the fields that are new; fields of structs in structs
            are looked for in the same place in it.

    Raises:
        RestoreError: the types do not fit, or a value does not. The message lacks the state's name and place.

    Example:
        >>> saved = pa.chunked_array([[{"n": 1}]])
        >>> evolve(saved, pa.struct({"n": pa.int64(), "note": pa.string()}), {"note": "-"}).to_pylist()
        [{'n': 1, 'note': '-'}]
    """
    if column.type == declared:
        return column
    reason = _refusal(column.type, declared, default, "")
    if reason is not None:
        raise _refused(reason)
    try:
        return pa.chunked_array([_evolved(chunk, declared, default) for chunk in column.chunks], declared)
    except pa.ArrowException as error:
        raise _refused(f"a value does not fit ({error})") from error


def _refused(reason: str) -> RestoreError:
    return RestoreError(f"{reason}; declare it as before, or give the new state another name")


def _refusal(saved: pa.DataType, declared: pa.DataType, default: Any, path: str) -> str | None:
    """Why no value of one type can become one of the other; None where it can."""
    if saved.equals(declared) or pa.types.is_null(saved):
        return None
    if pa.types.is_struct(saved) and pa.types.is_struct(declared):
        return next(_field_refusals(saved, declared, default, path), None)
    children = _children(saved, declared)
    if children is not None:
        reasons = (_refusal(one, two, None, f"{path}{name}") for name, one, two in children)
        return next((reason for reason in reasons if reason is not None), None)
    if _is_wider(saved, declared):
        return None
    place = f"field {path.lstrip('.')!r} is {saved}, which" if path else f"{saved}"
    return f"{place} cannot become {declared}"


def _field_refusals(saved: pa.DataType, declared: pa.DataType, default: Any, path: str) -> Iterator[str]:
    for field in declared:
        place, given = f"{path}.{field.name}", _default_of(default, field.name)
        index = saved.get_field_index(field.name)
        if index >= 0:
            reason = _refusal(saved.field(index).type, field.type, given, place)
            if reason is not None:
                yield reason
        elif given is None and not field.nullable:
            yield f"field {place.lstrip('.')!r} is new and may not be null; give the state a default that has it"


def _default_of(default: Any, field: str) -> Any:
    return default.get(field) if isinstance(default, Mapping) else None


def _children(saved: pa.DataType, declared: pa.DataType) -> list[tuple[str, pa.DataType, pa.DataType]] | None:
    """The pairs of types within lists or maps of the same shape; None where they are none such."""
    if pa.types.is_map(saved) and pa.types.is_map(declared):
        return [(".key", saved.key_type, declared.key_type), (".value", saved.item_type, declared.item_type)]
    if pa.types.is_fixed_size_list(saved) and pa.types.is_fixed_size_list(declared):
        alike = saved.list_size == declared.list_size
    elif pa.types.is_list(declared):
        alike = pa.types.is_list(saved)
    else:
        alike = pa.types.is_large_list(declared) and (pa.types.is_list(saved) or pa.types.is_large_list(saved))
    return [("[]", saved.value_type, declared.value_type)] if alike else None


def _is_wider(saved: pa.DataType, declared: pa.DataType) -> bool:
    """Whether the declared type, not nested, has a place for all (of integers as floats: for some) saved values."""
    if pa.types.is_integer(saved):
        return _is_wider_than_integer(saved, declared)
    if pa.types.is_floating(saved):
        return bool(pa.types.is_floating(declared) and declared.bit_width > saved.bit_width)
    if pa.types.is_decimal(saved) and pa.types.is_decimal(declared):
        more_places = declared.scale - saved.scale
        return bool(more_places >= 0 and declared.precision - saved.precision >= more_places)
    if pa.types.is_timestamp(saved) and pa.types.is_timestamp(declared):
        return saved.tz == declared.tz and _is_finer(saved, declared)
    if any(is_time(saved) and is_time(declared) for is_time in (pa.types.is_duration, pa.types.is_time)):
        return _is_finer(saved, declared)
    return (saved, declared) in _LARGE


def _is_wider_than_integer(saved: pa.DataType, declared: pa.DataType) -> bool:
    if pa.types.is_integer(declared):
        loses_sign = pa.types.is_signed_integer(saved) and pa.types.is_unsigned_integer(declared)
        return bool(declared.bit_width > saved.bit_width and not loses_sign)
    if pa.types.is_decimal(declared):
        return bool(declared.precision - declared.scale >= _INTEGER_DIGITS[saved.bit_width])
    return bool(pa.types.is_float32(declared) or pa.types.is_float64(declared))


def _is_finer(saved: pa.DataType, declared: pa.DataType) -> bool:
    return _UNITS.index(declared.unit) > _UNITS.index(saved.unit)


def _evolved(array: pa.Array, declared: pa.DataType, default: Any) -> pa.Array:
    saved = array.type
    if saved.equals(declared):
        return array
    if pa.types.is_null(saved):
        return pa.nulls(len(array), declared)
    if pa.types.is_struct(saved):
        return _evolved_struct(array, declared, default)
    if pa.types.is_map(saved):
        entries = [_evolved(array.keys, declared.key_type, None), _evolved(array.items, declared.item_type, None)]
        entry = pa.struct([declared.key_field, declared.item_field])
        return _with_children(array, declared, pa.StructArray.from_arrays(entries, fields=list(entry)))
    if pa.types.is_fixed_size_list(saved):
        return _with_children(array, declared, _evolved(array.values, declared.value_type, None))
    if pa.types.is_list(saved) or pa.types.is_large_list(saved):
        make = pa.list_ if pa.types.is_list(saved) else pa.large_list
        items = _evolved(array.values, declared.value_type, None)
        return _with_children(array, make(declared.value_field), items).cast(declared)
    return array.cast(declared)


def _evolved_struct(array: pa.StructArray, declared: pa.StructType, default: Any) -> pa.StructArray:
    parts = []
    for field in declared:
        given, index = _default_of(default, field.name), array.type.get_field_index(field.name)
        if index >= 0:
            parts.append(_evolved(array.field(index), field.type, given))
        elif given is None:
            parts.append(pa.nulls(len(array), field.type))
        else:
            parts.append(pa.array([given], field.type).take(pa.array(np.zeros(len(array), np.int64))))
    return pa.StructArray.from_arrays(parts, fields=list(declared), mask=array.is_null())


def _with_children(array: pa.Array, declared: pa.DataType, child: pa.Array) -> pa.Array:
    """The same lists, with other values in them."""
    own = 1 if pa.types.is_fixed_size_list(declared) else 2
    return pa.Array.from_buffers(declared, len(array), array.buffers()[:own], offset=array.offset, children=[child])
