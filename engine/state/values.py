"""Python values of an Arrow type in the one form in which state keeps them: restored ones equal those that stayed.

Descriptors and `ValueCodec` use it: what a function puts into state becomes what a snapshot would give back, at once,
and what does not fit is refused at once. Each type is compiled into closures once; what they do not know (numpy's
values, subclasses, rare types) takes the way of a snapshot, so that both give the same by construction.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Iterator, Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock.engine.columns import readable, rebuilt
from penstock.engine.errors import RecordError, ResultError
from penstock.engine.rows import ColumnConverter, batch_columns

Normal: TypeAlias = Callable[[Any], Any]
"""The value as it is kept: a copy where it is mutable. None stays None."""

_COLUMN: Final = "value"
_EPOCH: Final = dt.datetime(1970, 1, 1)
_FLOAT32: Final = struct.Struct("f")
_EXACT_INTS: Final = 2**53
"""Ints up to here are floats without loss."""
_LONG_DAYS: Final = {"s": 10**8, "ms": 10**8, "us": 10**8, "ns": 10**5}
"""Durations below so many days fit into 64 bits, in each unit."""
_NANO_YEARS: Final = range(1678, 2262)
_DECIMALS: Final = Context(prec=76, traps=[Inexact, InvalidOperation])
_UNUSUAL: Final = (ValueError, TypeError, OverflowError, ArithmeticError, AttributeError, struct.error)


class ValueForm:
    """The form in which values of one type are kept.

    Args:
        name: of the state, for messages.
        kind: Arrow type of the values.
        where: operator and subtask, for messages.

    Example:
        >>> ValueForm("at", pa.list_(pa.float32()), "operator 'f', subtask 0").normal((1, 0.1))
        [1.0, 0.10000000149011612]
    """

    def __init__(self, name: str, kind: pa.DataType, where: str) -> None:
        self.kind = kind
        self.copied: Normal | None = _copier(kind)
        """Copies a kept value, so that to change it in place changes no state; None where values are immutable."""
        self._place = f"{where}: state {name!r}"
        self._converter = ColumnConverter(name, pa.field(name, kind), where)
        self._compiled = _compiled(kind)
        self._readable = readable(kind)
        self.has_nested_times = pa.types.is_nested(kind) and _has_times(kind)
        """Whether Arrow reads the values with other time zones, or in another class, than rows carry."""
        self.shown = self.normal if self.has_nested_times and not _has_nanoseconds(kind) else self.copied
        """Makes of a value that Arrow has read, or that is kept, one for a user; None where it is that already."""

    def normal(self, value: Any) -> Any:
        """The value as it is kept.

        Raises:
            RecordError: it does not fit the type.
        """
        try:
            return self._compiled(value)
        except _UNUSUAL:
            return self.decode(self.encode([value]))[0]

    def encode(self, values: Sequence[Any]) -> pa.Array:
        """The values (None for none) as an array.

        Raises:
            RecordError: a value that does not fit.
        """
        try:
            return self._converter.convert(values)
        except RecordError as error:
            raise self._misfit(values, error) from error.__cause__

    def decode(self, array: pa.Array) -> list[Any]:
        """The values of an array, in the form in which they are kept."""
        if array.type != self._readable and self.has_nested_times:
            try:
                array = array.cast(self._readable)
            except pa.ArrowException as error:
                raise RecordError(
                    f"{self._place} has a value of {self.kind} that Python cannot hold, which knows microseconds "
                    f"({error}); cast it before it is kept"
                ) from error
        (values,) = batch_columns(pa.record_batch({_COLUMN: array}), self._place)
        return [self._compiled(value) for value in values] if self.has_nested_times else values

    def sought(self, value: Any) -> Any:
        """The value as it would be kept, or None where it does not fit, so that no state holds it."""
        try:
            return self.normal(value)
        except RecordError:
            return None

    def _misfit(self, values: Sequence[Any], error: RecordError) -> ResultError:
        reason = error.__cause__ or error
        wrong = next((value for value in values if not self._fits(value)), values[0])
        return ResultError(
            f"{self._place}: the value {wrong!r:.200} does not fit its type {self.kind}: {reason}; keep values of that "
            "type, or declare another"
        )

    def _fits(self, value: Any) -> bool:
        try:
            self._converter.convert([value])
        except RecordError:
            return False
        return True


def zone_of(name: str) -> dt.tzinfo:
    """The time zone of an Arrow type, as the rows of a batch have it."""
    zone: dt.tzinfo = dt.timezone.utc if name == "UTC" else pa.lib.string_to_tzinfo(name)
    return zone


def without_views(kind: pa.DataType) -> pa.DataType:
    """The type with plain texts for string views, and so on: Arrow cannot take the rows of a view."""
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    return rebuilt(kind, without_views)


# --- compiled: raise for all that is unusual ----------------------------------------------------------------


class _UnusualError(ValueError):
    """A value that the compiled form leaves to the way of a snapshot."""


def _compiled(kind: pa.DataType) -> Normal:
    if pa.types.is_dictionary(kind):
        return _compiled(kind.value_type)
    if pa.types.is_fixed_size_list(kind):
        return _list_normal(_compiled(kind.value_type), range(kind.list_size, kind.list_size + 1))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list_normal(_compiled(kind.value_type), range(2**31))
    if pa.types.is_map(kind):
        return _map_normal(_compiled(kind.key_type), _compiled(kind.item_type))
    if pa.types.is_struct(kind) and len({field.name for field in kind}) == kind.num_fields:
        return _struct_normal([(field.name, _compiled(field.type)) for field in kind])
    return next((make(kind) for accepts, make in _LEAVES if accepts(kind)), _unusual)


def _unusual(value: Any) -> Any:
    if value is None:
        return None
    raise _UnusualError


def _list_normal(item: Normal, lengths: range) -> Normal:
    def normal(value: Any) -> Any:
        if (type(value) is list or type(value) is tuple) and len(value) in lengths:
            return [item(each) for each in value]
        return _unusual(value)

    return normal


def _map_normal(key: Normal, item: Normal) -> Normal:
    def normal(value: Any) -> Any:
        if type(value) is not dict and type(value) is not list:
            return _unusual(value)
        pairs = [(key(each), item(of_each)) for each, of_each in (value.items() if type(value) is dict else value)]
        if any(each is None for each, _ in pairs):
            raise _UnusualError
        return pairs

    return normal


def _struct_normal(fields: list[tuple[str, Normal]]) -> Normal:
    names = frozenset(name for name, _ in fields)

    def normal(value: Any) -> Any:
        if type(value) is not dict:
            return _unusual(value)
        if not value.keys() <= names:
            raise _UnusualError
        get = value.get
        return {name: item(get(name)) for name, item in fields}

    return normal


def _exactly(python: type) -> Callable[[pa.DataType], Normal]:
    def normal(value: Any) -> Any:
        return value if type(value) is python else _unusual(value)

    return lambda kind: normal


def _text_normal(kind: pa.DataType) -> Normal:
    def normal(value: Any) -> Any:
        if type(value) is not str:
            return _unusual(value)
        if not value.isascii():
            value.encode()  # a lone surrogate is no text
        return value

    return normal


def _int_normal(kind: pa.DataType) -> Normal:
    bits, signed = kind.bit_width, pa.types.is_signed_integer(kind)
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)

    def normal(value: Any) -> Any:
        return value if type(value) is int and low <= value <= high else _unusual(value)

    return normal


def _float64_normal(kind: pa.DataType) -> Normal:
    def normal(value: Any) -> Any:
        if type(value) is float:
            return value
        return float(value) if type(value) is int and -_EXACT_INTS <= value <= _EXACT_INTS else _unusual(value)

    return normal


def _float32_normal(kind: pa.DataType) -> Normal:
    pack, unpack = _FLOAT32.pack, _FLOAT32.unpack

    def normal(value: Any) -> Any:
        return unpack(pack(value))[0] if type(value) is float else _unusual(value)

    return normal


def _decimal_normal(kind: pa.DataType) -> Normal:
    scale, unit, zero = kind.scale, Decimal(1).scaleb(-kind.scale), Decimal(0).scaleb(-kind.scale)
    limit = Decimal(1).scaleb(kind.precision - kind.scale)

    def normal(value: Any) -> Any:
        if type(value) is not Decimal or scale < 0 or not value.is_finite():
            return _unusual(value)
        exact = value.quantize(unit, context=_DECIMALS)
        if not -limit < exact < limit:
            raise _UnusualError
        return exact or zero  # Arrow has no -0

    return normal


def _time_normal(kind: pa.DataType) -> Normal:
    step = _step(kind.unit)

    def normal(value: Any) -> Any:
        if type(value) is not dt.time or value.tzinfo is not None or value.fold or value.microsecond % step:
            return _unusual(value)
        return value

    return normal


def _duration_normal(kind: pa.DataType) -> Normal:
    step, days = _step(kind.unit), _LONG_DAYS[kind.unit]

    def normal(value: Any) -> Any:
        if type(value) is not dt.timedelta or value.microseconds % step or not -days < value.days < days:
            return _unusual(value)
        return value

    return normal


def _timestamp_normal(kind: pa.DataType) -> Normal:
    step, years = _step(kind.unit), _NANO_YEARS if kind.unit == "ns" else range(1, 10_000)

    def fits(value: Any) -> bool:
        return type(value) is dt.datetime and not value.microsecond % step and value.year in years

    def naive(value: Any) -> Any:
        return value if fits(value) and value.tzinfo is None and not value.fold else _unusual(value)

    if kind.tz is None:
        return naive
    zone = zone_of(kind.tz)

    def aware(value: Any) -> Any:
        # Asked for its offset, since a time zone may be there that gives none.
        return value.astimezone(zone) if fits(value) and value.utcoffset() is not None else _unusual(value)

    return aware


def _step(unit: str) -> int:
    """Microseconds must be a multiple of this to be kept whole in a unit."""
    return {"s": 1_000_000, "ms": 1_000}.get(unit, 1)


_LEAVES: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], Normal]], ...]] = (
    (pa.types.is_boolean, _exactly(bool)),
    (pa.types.is_integer, _int_normal),
    (pa.types.is_float64, _float64_normal),
    (pa.types.is_float32, _float32_normal),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), _text_normal),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), _exactly(bytes)),
    (pa.types.is_decimal, _decimal_normal),
    (pa.types.is_date, _exactly(dt.date)),
    (pa.types.is_time, _time_normal),
    (pa.types.is_duration, _duration_normal),
    (pa.types.is_timestamp, _timestamp_normal),
)


# --- types --------------------------------------------------------------------------------------------------


def _copier(kind: pa.DataType) -> Normal | None:
    """Copies kept values of a type; None where they are immutable."""
    if pa.types.is_struct(kind):
        return _struct_copier([(field.name, copied) for field in kind if (copied := _copier(field.type)) is not None])
    if pa.types.is_map(kind):
        return _map_copier(_copier(kind.item_type))
    if pa.types.is_nested(kind):
        return _list_copier(_copier(kind.value_type))
    return _copier(kind.value_type) if pa.types.is_dictionary(kind) else None


def _list_copier(item: Normal | None) -> Normal:
    def copied(value: Any) -> Any:
        if value is None:
            return None
        return value.copy() if item is None else [item(each) for each in value]

    return copied


def _map_copier(item: Normal | None) -> Normal:
    def copied(value: Any) -> Any:
        if value is None:
            return None
        return value.copy() if item is None else [(key, item(each)) for key, each in value]

    return copied


def _struct_copier(inner: list[tuple[str, Normal]]) -> Normal:
    def copied(value: Any) -> Any:
        if value is None:
            return None
        made = value.copy()
        for name, copy in inner:
            made[name] = copy(made[name])
        return made

    return copied


def _has_times(kind: pa.DataType) -> bool:
    return any(pa.types.is_temporal(leaf) for leaf in _leaves(kind))


def _has_nanoseconds(kind: pa.DataType) -> bool:
    return any(getattr(leaf, "unit", "") == "ns" for leaf in _leaves(kind))


def _leaves(kind: pa.DataType) -> Iterator[pa.DataType]:
    """The types that a type is made of."""
    if pa.types.is_map(kind):
        yield from _leaves(kind.key_type)
        yield from _leaves(kind.item_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(field.type)
    elif pa.types.is_nested(kind) or pa.types.is_dictionary(kind):
        yield from _leaves(kind.value_type)
    else:
        yield kind
