"""What users declare their state with: a name, Arrow types, and how long it lives.

Made by users, given to `RuntimeContext` in a function's `open`, read by the state backends. A descriptor is a value:
who declares a name again within one operator must declare the same descriptor.

Source: Flink's documentation, "Working with State" and "State Time-To-Live (TTL)".
"""

from __future__ import annotations

import enum
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from penstock.engine.durations import Duration, parse_duration
from penstock.engine.errors import ConfigurationError, RecordError
from penstock.engine.schemas import TypeLike, parse_type
from penstock.engine.state.values import ValueForm, without_views


class Serializer(Protocol):
    """Turns Python values that have no Arrow type into bytes and back; the user's explicit choice."""

    def dumps(self, value: Any) -> bytes:
        """The value as bytes."""
        ...

    def loads(self, data: bytes) -> Any:
        """The value that `dumps` was given."""
        ...


class PickleSerializer:
    """Any Python value by pickle. Its state can be read by Python with the same classes alone, and by nothing else.

    Never restore such state from a place that others can write to: loading a pickle runs code.
    """

    def dumps(self, value: Any) -> bytes:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)

    def loads(self, data: bytes) -> Any:
        return pickle.loads(data)  # noqa: S301 - the user asked for it, and the docstring says what it means


class TtlUpdate(enum.Enum):
    """What sets a value's time to live back to its full length."""

    ON_CREATE_AND_WRITE = "create and write"
    ON_READ_AND_WRITE = "read and write"


class TtlVisibility(enum.Enum):
    """Whether a value that has expired, but has not been removed yet, is still seen."""

    NEVER_RETURN_EXPIRED = "never return expired"
    RETURN_EXPIRED_IF_NOT_CLEANED_UP = "return expired if not cleaned up"


@dataclass(frozen=True, slots=True)
class StateTtl:
    """How long a value of state lives after it was last touched, in processing time. Build one with `ttl(...)`.

    In list and map state each entry has its own time, as in Flink. Expired entries are freed when they are read, by
    snapshots, which leave them out, and bit by bit while other keys are worked on.

    Args:
        ttl_ms: milliseconds, 1 or more.
        update: what renews it.
        visibility: whether an expired value that is still there is seen.
    """

    ttl_ms: int
    update: TtlUpdate = TtlUpdate.ON_CREATE_AND_WRITE
    visibility: TtlVisibility = TtlVisibility.NEVER_RETURN_EXPIRED

    def __post_init__(self) -> None:
        if not isinstance(self.update, TtlUpdate):
            raise ConfigurationError(f"ttl: update is one of {_members(TtlUpdate)}, not {self.update!r}")
        if not isinstance(self.visibility, TtlVisibility):
            raise ConfigurationError(f"ttl: visibility is one of {_members(TtlVisibility)}, not {self.visibility!r}")


def _members(kind: type[enum.Enum]) -> str:
    return ", ".join(str(member) for member in kind)


def ttl(
    duration: Duration,
    update: TtlUpdate = TtlUpdate.ON_CREATE_AND_WRITE,
    visibility: TtlVisibility = TtlVisibility.NEVER_RETURN_EXPIRED,
) -> StateTtl:
    """How long a value of state lives.

    Raises:
        ConfigurationError: no duration, or one of 0; no such update or visibility.

    Example:
        >>> ttl("1h").ttl_ms
        3600000
    """
    milliseconds = parse_duration(duration, "ttl")
    if milliseconds <= 0:
        raise ConfigurationError(f"ttl must be more than 0, not {milliseconds} ms")
    return StateTtl(milliseconds, update, visibility)


class AggregateFunction:
    """How many rows become one result, incrementally; subclass it.

    Used by `AggregatingStateDescriptor` and `WindowedStream.aggregate`. The accumulator is any value that the declared
    accumulator type (or serializer) can hold. Source: Flink's `AggregateFunction`.

    Example:
        >>> class Mean(AggregateFunction):
        ...     def create_accumulator(self):
        ...         return {"total": 0.0, "n": 0}
        ...     def add(self, value, accumulator):
        ...         return {"total": accumulator["total"] + value["v"], "n": accumulator["n"] + 1}
        ...     def get_result(self, accumulator):
        ...         return {"mean": accumulator["total"] / accumulator["n"]}
        ...     def merge(self, one, other):
        ...         return {"total": one["total"] + other["total"], "n": one["n"] + other["n"]}
    """

    def create_accumulator(self) -> Any:
        """A new accumulator, of no rows."""
        raise NotImplementedError

    def add(self, value: Any, accumulator: Any) -> Any:
        """The accumulator with one more value."""
        raise NotImplementedError

    def get_result(self, accumulator: Any) -> Any:
        """The result of an accumulator."""
        raise NotImplementedError

    def merge(self, one: Any, other: Any) -> Any:
        """The accumulator of the values of both; needed for session windows alone."""
        raise NotImplementedError(f"{type(self).__name__} has no merge(one, other), which merging windows need")


@dataclass(frozen=True, slots=True)
class _Descriptor:
    """What all kinds have in common; see the kinds."""

    name: str
    type: TypeLike | None = None
    ttl: StateTtl | None = field(default=None, kw_only=True)
    serializer: Serializer | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or self.name.startswith("__"):
            raise ConfigurationError(f"a state's name is a text that does not begin with __, not {self.name!r}")
        if (self.type is None) == (self.serializer is None):
            raise ConfigurationError(
                f"state {self.name!r}: declare the Arrow type of its values, such as 'int64', or (for Python values "
                "that have none) serializer=PickleSerializer(), and not both"
            )
        if self.ttl is not None and not isinstance(self.ttl, StateTtl):
            raise ConfigurationError(f"state {self.name!r}: ttl is made by ttl('1h'), not {self.ttl!r}")
        if self.serializer is not None:
            self._check_serializer(self.serializer)
        _ = self.value_type

    def _check_serializer(self, serializer: object) -> None:
        if isinstance(serializer, type):
            raise ConfigurationError(
                f"state {self.name!r}: serializer is the class {serializer.__name__}; give an object, "
                f"{serializer.__name__}()"
            )
        if not (callable(getattr(serializer, "dumps", None)) and callable(getattr(serializer, "loads", None))):
            raise ConfigurationError(
                f"state {self.name!r}: a serializer has dumps(value) and loads(data), which {serializer!r} has not; "
                "give PickleSerializer(), for example"
            )

    @property
    def value_type(self) -> pa.DataType:
        """The Arrow type in which values are kept in snapshots: that declared (views of texts as plain texts), or
        binary behind a serializer."""
        return pa.binary() if self.type is None else without_views(parse_type(self.type, f"state {self.name!r}"))


@dataclass(frozen=True, slots=True)
class ValueStateDescriptor(_Descriptor):
    """One value a key.

    Args:
        name: unique within the operator.
        type: Arrow type of the value, its text (`"int64"`), or a Python type (`int`).
        default: what `value()` gives where nothing was set; it fits the type.
        ttl: how long the value lives; None means for ever.
        serializer: for Python values without an Arrow type, instead of `type`.

    Example:
        >>> ValueStateDescriptor("count", "int64", default=0).value_type
        DataType(int64)
    """

    default: Any = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _Descriptor.__post_init__(self)
        if self.default is not None and self.type is not None:
            try:
                default = ValueForm(self.name, self.value_type, "default").normal(self.default)
            except RecordError as error:
                raise ConfigurationError(
                    f"state {self.name!r}: the default {self.default!r:.200} does not fit its type {self.value_type}; "
                    f"give another, or declare another type ({error.__cause__})"
                ) from error
            object.__setattr__(self, "default", default)


@dataclass(frozen=True, slots=True)
class ListStateDescriptor(_Descriptor):
    """A list of values a key (or, as operator state, a subtask); `type` is that of one value."""


@dataclass(frozen=True, slots=True)
class MapStateDescriptor(_Descriptor):
    """A map a key (or, as broadcast state, a subtask); `type` is that of the map's values.

    Args:
        key_type: Arrow type of the map's keys; not floating, since such numbers are rarely equal, nor nested.
    """

    key_type: TypeLike = field(default="string", kw_only=True)

    def __post_init__(self) -> None:
        _Descriptor.__post_init__(self)
        kind = self.map_key_type
        if pa.types.is_floating(kind) or pa.types.is_nested(kind) or pa.types.is_null(kind):
            raise ConfigurationError(
                f"state {self.name!r}: keys of a map are not of type {kind}: floating numbers are rarely equal, and "
                "nested values have no order; take key_type='string', 'int64' or a decimal, or a text made of the parts"
            )

    @property
    def map_key_type(self) -> pa.DataType:
        """The Arrow type of the map's keys."""
        return without_views(parse_type(self.key_type, f"state {self.name!r}: key_type"))


@dataclass(frozen=True, slots=True)
class ReducingStateDescriptor(_Descriptor):
    """One value a key, to which `add` reduces what comes.

    Args:
        function: takes the value so far and the new one, and returns their combination.
    """

    function: Callable[[Any, Any], Any] = field(default=None, kw_only=True)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        _Descriptor.__post_init__(self)
        if not callable(self.function):
            raise ConfigurationError(f"state {self.name!r}: give function=..., which takes two values and returns one")


@dataclass(frozen=True, slots=True)
class AggregatingStateDescriptor(_Descriptor):
    """One accumulator a key; `type` is that of the accumulator.

    Args:
        function: says how values are added and what `get` returns.
    """

    function: AggregateFunction = field(default=None, kw_only=True)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        _Descriptor.__post_init__(self)
        if not isinstance(self.function, AggregateFunction):
            raise ConfigurationError(f"state {self.name!r}: give function=..., an AggregateFunction")


KeyedDescriptor: TypeAlias = (
    ValueStateDescriptor
    | ListStateDescriptor
    | MapStateDescriptor
    | ReducingStateDescriptor
    | AggregatingStateDescriptor
)
