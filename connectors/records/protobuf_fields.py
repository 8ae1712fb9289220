"""The fields of a Protobuf message as the fields of an Arrow struct.

The Protobuf format calls it, once to plan and then message by message. It needs no generated code, and imports
nothing of protobuf: the descriptors say all.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from penstock.connectors.records.batches import Row
from penstock.engine.errors import ConfigurationError

_MICROS: Final = 1_000_000
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_SCALARS: Final[Mapping[int, pa.DataType]] = {  # by the cpp_type of a field's descriptor
    1: pa.int32(),
    2: pa.int64(),
    3: pa.uint32(),
    4: pa.uint64(),
    5: pa.float64(),
    6: pa.float32(),
    7: pa.bool_(),
}
_ENUM: Final = 8
_MESSAGE: Final = 10
_BYTES: Final = 12
_TIMES: Final[Mapping[str, pa.DataType]] = {
    "google.protobuf.Timestamp": pa.timestamp("us", tz="UTC"),
    "google.protobuf.Duration": pa.duration("us"),
}
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


class MessageFields:
    """Reads and writes the messages of one type.

    Args:
        descriptor: the type.
        form: the format, for messages.
        within: the types around it.

    Raises:
        ConfigurationError: a type within itself.
    """

    def __init__(self, descriptor: Any, form: str, within: tuple[str, ...] = ()) -> None:
        name = descriptor.full_name
        if name in within:
            raise ConfigurationError(f"{form}: message {name!r} occurs within itself, which no column can hold")
        self._fields = [_field(field, form, (*within, name)) for field in descriptor.fields]
        self.kind = pa.struct([(field.name, field.kind) for field in self._fields])

    def read(self, message: Any) -> Row:
        """The message's fields by name."""
        return {field.name: field.read(message) for field in self._fields}

    def write(self, message: Any, row: Row) -> None:
        """Sets the fields that `row` has and that are not null."""
        for field in self._fields:
            value = row.get(field.name)
            if value is not None:
                field.write(message, value)


@dataclass(frozen=True, slots=True)
class _Value:
    """One value of a field: how it looks in Arrow, and how it is read and written.

    Args:
        kind: its Arrow type.
        enum: the enum's descriptor, where it is one.
        fields: of the message, where it is one that becomes a struct.
        special: name of the well-known type, where it is one that becomes a plain column.
    """

    kind: pa.DataType
    enum: Any = None
    fields: MessageFields | None = None
    special: str | None = None

    @property
    def is_message(self) -> bool:
        return self.fields is not None or self.special is not None

    def read(self, value: Any) -> Any:
        if self.enum is not None:
            named = self.enum.values_by_number.get(value)
            return str(value) if named is None else named.name
        if self.fields is not None:
            return self.fields.read(value)
        if self.special in _TIMES:
            return value.seconds * _MICROS + int(value.nanos / 1000)
        return value.value if self.special else value

    def scalar(self, value: Any) -> Any:
        """What to assign for a value that is no message."""
        if self.enum is None:
            return value
        if value in self.enum.values_by_name:
            return self.enum.values_by_name[value].number
        try:
            return int(value)
        except ValueError:
            raise ValueError(
                f"enum {self.enum.full_name} has no value {value!r}; it has {', '.join(self.enum.values_by_name)}"
            ) from None

    def fill(self, message: Any, value: Any) -> None:
        """Sets a message from its value in Python."""
        message.SetInParent()
        if self.fields is not None:
            self.fields.write(message, value)
        elif self.special in _TIMES:
            span = value if isinstance(value, datetime.timedelta) else value - _EPOCH
            micros = span // datetime.timedelta(microseconds=1)
            negative = self.special == "google.protobuf.Duration" and micros < 0
            seconds, rest = divmod(-micros if negative else micros, _MICROS)
            # The parts of a duration have one sign, and those of a timestamp count up from the second before.
            message.seconds, message.nanos = (-seconds, -rest * 1000) if negative else (seconds, rest * 1000)
        else:
            message.value = value


@dataclass(frozen=True, slots=True)
class _Single:
    name: str
    value: _Value
    has_presence: bool

    @property
    def kind(self) -> pa.DataType:
        return self.value.kind

    def read(self, message: Any) -> Any:
        if self.has_presence and not message.HasField(self.name):
            return None
        return self.value.read(getattr(message, self.name))

    def write(self, message: Any, value: Any) -> None:
        if self.value.is_message:
            self.value.fill(getattr(message, self.name), value)
        else:
            setattr(message, self.name, self.value.scalar(value))


@dataclass(frozen=True, slots=True)
class _Repeated:
    name: str
    value: _Value

    @property
    def kind(self) -> pa.DataType:
        return pa.list_(self.value.kind)

    def read(self, message: Any) -> Any:
        return [self.value.read(item) for item in getattr(message, self.name)]

    def write(self, message: Any, value: Any) -> None:
        into = getattr(message, self.name)
        if None in value:
            raise ValueError(f"{self.name!r} has a null in its list, which Protobuf cannot hold")
        if self.value.is_message:
            for item in value:
                self.value.fill(into.add(), item)
        else:
            into.extend(self.value.scalar(item) for item in value)


@dataclass(frozen=True, slots=True)
class _Map:
    name: str
    key: pa.DataType
    value: _Value

    @property
    def kind(self) -> pa.DataType:
        return pa.map_(self.key, self.value.kind)

    def read(self, message: Any) -> Any:
        return [(key, self.value.read(value)) for key, value in getattr(message, self.name).items()]

    def write(self, message: Any, value: Any) -> None:
        into = getattr(message, self.name)
        for key, item in value.items():
            if item is None:
                raise ValueError(f"{self.name!r} has a null value in its map, which Protobuf cannot hold")
            if self.value.is_message:
                self.value.fill(into[key], item)
            else:
                into[key] = self.value.scalar(item)


def _field(field: Any, form: str, within: tuple[str, ...]) -> _Single | _Repeated | _Map:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        return _Map(field.name, _value(key, form, within).kind, _value(value, form, within))
    value = _value(field, form, within)
    if field.is_repeated:
        return _Repeated(field.name, value)
    return _Single(field.name, value, field.has_presence)


def _value(field: Any, form: str, within: tuple[str, ...]) -> _Value:
    if field.cpp_type == _MESSAGE:
        name = field.message_type.full_name
        if name in _TIMES:
            return _Value(_TIMES[name], special=name)
        if name in _WRAPPERS:
            return _Value(_value(field.message_type.fields_by_name["value"], form, within).kind, special=name)
        fields = MessageFields(field.message_type, form, within)
        return _Value(fields.kind, fields=fields)
    if field.cpp_type == _ENUM:
        return _Value(pa.string(), enum=field.enum_type)
    if field.cpp_type in _SCALARS:
        return _Value(_SCALARS[field.cpp_type])
    return _Value(pa.binary() if field.type == _BYTES else pa.string())
