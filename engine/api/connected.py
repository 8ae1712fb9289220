"""The verbs of two streams that meet in one operator: of what `connect` returns.

Each last verb checks its arguments, adds one operator with two inputs, and returns the stream of its results. Unlike
the streams of a union, connected streams may have different columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from penstock.engine.aggregates.accumulators import plain_type
from penstock.engine.api.base import Stream, StreamT
from penstock.engine.errors import GraphError
from penstock.engine.functions import (
    BroadcastProcessFunction,
    Context,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    Row,
    Rows,
)
from penstock.engine.graph.logical import Edge, Role
from penstock.engine.operators.base import SchemaOrUnknown
from penstock.engine.rows import Returns, declared_schema
from penstock.engine.state.descriptors import MapStateDescriptor
from penstock.engine.texts import function_name

ConnectedStreamsT = TypeVar("ConnectedStreamsT", bound="ConnectedVerbs[Any]")
_NO_KEYS: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


class ConnectedVerbs(Generic[StreamT]):
    """What can be asked of two streams, with keys or without."""

    def __init__(
        self,
        first: StreamT,
        second: StreamT,
        keys: tuple[tuple[str, ...], tuple[str, ...]] = _NO_KEYS,
    ) -> None:
        _check_program(first, second)
        if first._timed != second._timed:
            raise GraphError(
                "connect: one stream has timestamps and the other not; call assign_timestamps on each before connect"
            )
        _check_keys(first, second, keys)
        self._first = first
        self._second = second
        self._keys = keys

    def key_by(self: ConnectedStreamsT, first: str | Sequence[str], second: str | Sequence[str]) -> ConnectedStreamsT:
        """Bring rows of both streams with equal keys together.

        Args:
            first, second: the key columns of the first and of the second stream, a name or several; as many, and of
                the same types.

        Raises:
            GraphError: a column is missing, cannot be a key, or has another type than its partner.

        Example:
            >>> orders.connect(payments).key_by("id", "order_id").process(Match())  # doctest: +SKIP
        """
        keys = [tuple(given) if isinstance(given, list | tuple) else (given,) for given in (first, second)]
        one, two = self._first._by_key(keys[0]), self._second._by_key(keys[1])
        return type(self)(one, two, (keys[0], keys[1]))

    def process(self, function: CoProcessFunction | type[CoProcessFunction], returns: Returns = None) -> StreamT:
        """Call a function with the rows of both streams.

        Args:
            function: a `KeyedCoProcessFunction` where the streams have keys, else a `CoProcessFunction`; an object, of
                which each subtask gets a copy, or the class.
            returns: the columns of the result, as for `map`.

        Raises:
            GraphError: another kind of function, or one that lacks `process_element1` or `process_element2`.

        Example:
            >>> orders.key_by("id").connect(payments.key_by("order_id")).process(Match())  # doctest: +SKIP
        """
        from penstock.engine.operators.functions.co_process import CoProcessSpec

        schema = declared_schema(returns, "process")
        role = CoProcessSpec(function, self._keys, schema, self._first._timed)
        return self._add(role.describe(), role, schema)

    def map(self, first: Callable[[Row], Row], second: Callable[[Row], Row], returns: Returns = None) -> StreamT:
        """Turn each row into another: those of the first stream by `first`, those of the second by `second`.

        Example:
            >>> a.connect(b).map(lambda row: {"n": row["x"]}, lambda row: {"n": -row["y"]})  # doctest: +SKIP
        """
        return self._by_functions("map", _CoMap, first, second, returns)

    def flat_map(
        self,
        first: Callable[[Row], Iterable[Row]],
        second: Callable[[Row], Iterable[Row]],
        returns: Returns = None,
    ) -> StreamT:
        """Turn each row into any number of rows, by the function for its stream."""
        return self._by_functions("flat_map", _CoFlatMap, first, second, returns)

    def _by_functions(self, verb: str, kind: type[_TwoFunctions], first: Any, second: Any, returns: Returns) -> StreamT:
        from penstock.engine.operators.functions.co_process import CoProcessSpec

        for function in (first, second):
            if not callable(function):
                raise GraphError(
                    f"{verb}: takes a function of a row (a dict) for each of the two streams, not {function!r}"
                )
        schema = declared_schema(returns, verb)
        # Rows with keys go where their keys belong, but these functions have no state.
        role = CoProcessSpec(kind(first, second), _NO_KEYS, schema, self._first._timed)
        return self._add(f"{verb}({function_name(first)}, {function_name(second)})", role, schema)

    def _add(self, name: str, role: Role, schema: SchemaOrUnknown) -> StreamT:
        return _add_operator(self._first, self._second, name, role, schema)


class _TwoFunctions(CoProcessFunction):
    """A function for each stream."""

    def __init__(self, first: Callable[[Row], Any], second: Callable[[Row], Any]) -> None:
        self._first = first
        self._second = second


class _CoMap(_TwoFunctions):
    """One row for each row."""

    def process_element1(self, row: Row, ctx: Context) -> Rows:
        return [self._first(row)]

    def process_element2(self, row: Row, ctx: Context) -> Rows:
        return [self._second(row)]


class _CoFlatMap(_TwoFunctions):
    """Any number of rows for each row."""

    def process_element1(self, row: Row, ctx: Context) -> Rows:
        rows: Rows = self._first(row)
        return rows

    def process_element2(self, row: Row, ctx: Context) -> Rows:
        rows: Rows = self._second(row)
        return rows


class BroadcastStream:
    """A stream of which every subtask gets all rows, with the states that they are kept in.

    Get one from `DataStream.broadcast(descriptor)`, and give it to `connect`.
    """

    def __init__(self, stream: Stream, descriptors: tuple[MapStateDescriptor, ...]) -> None:
        for descriptor in descriptors:
            if not isinstance(descriptor, MapStateDescriptor):
                raise GraphError(f"broadcast takes MapStateDescriptors, not {descriptor!r:.200}")
        names = [descriptor.name for descriptor in descriptors]
        if len(set(names)) < len(names):
            raise GraphError(f"broadcast: two descriptors have one name: {', '.join(names)}")
        self._stream = stream
        self._descriptors = descriptors


class BroadcastConnectedVerbs(Generic[StreamT]):
    """What can be asked of a stream, with keys or without, and a broadcast stream."""

    def __init__(self, stream: StreamT, broadcast: BroadcastStream, keys: tuple[str, ...] = ()) -> None:
        _check_program(stream, broadcast._stream)
        self._stream = stream
        self._broadcast = broadcast
        self._keys = keys

    def process(
        self,
        function: BroadcastProcessFunction
        | KeyedBroadcastProcessFunction
        | type[BroadcastProcessFunction]
        | type[KeyedBroadcastProcessFunction],
        returns: Returns = None,
    ) -> StreamT:
        """Call a function with the rows of the stream, and in every subtask with all rows of the broadcast stream.

        A broadcast stream without timestamps holds event time back until it ends, as in Flink.

        Args:
            function: a `KeyedBroadcastProcessFunction` where the stream has keys, else a `BroadcastProcessFunction`; an
                object, of which each subtask gets a copy, or the class.
            returns: the columns of the result, as for `map`.

        Raises:
            GraphError: another kind of function, or one that lacks `process_element` or `process_broadcast_element`.

        Example:
            >>> RULES = MapStateDescriptor("rules", "float64")
            >>> payments.key_by("user").connect(rules.broadcast(RULES)).process(Alert())  # doctest: +SKIP
        """
        from penstock.engine.operators.functions.broadcast_process import BroadcastProcessSpec

        schema = declared_schema(returns, "process")
        descriptors = self._broadcast._descriptors
        role = BroadcastProcessSpec(function, descriptors, self._keys, schema, self._stream._timed)
        return _add_operator(self._stream, self._broadcast._stream, role.describe(), role, schema)


def _add_operator(first: StreamT, second: Stream, name: str, role: Role, schema: SchemaOrUnknown) -> StreamT:
    """The stream behind a new operator with the rows of `first` as its input 0 and those of `second` as input 1."""
    program = first._program
    program.check_open()
    inputs: tuple[Stream, Stream] = (first, second)
    edges: list[Edge] = [
        replace(edge, input_index=index) for index, stream in enumerate(inputs) for edge in stream._edges
    ]
    node = program.graph.add(name, role, tuple(edges), schema, first._timed)
    return first.of_node(program, node)


def _check_program(first: Stream, second: Stream) -> None:
    if first._program is not second._program:
        raise GraphError("connect: the streams belong to different programs")


def _check_keys(first: Stream, second: Stream, keys: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
    one, two = keys
    if len(one) != len(two):
        raise GraphError(
            f"connect: the first stream has the keys {', '.join(one)}, the second {', '.join(two)}; give both as many"
        )
    if first.schema is None or second.schema is None:
        return
    for left, right in zip(one, two, strict=True):
        kinds = plain_type(first.schema.field(left).type), plain_type(second.schema.field(right).type)
        if kinds[0] != kinds[1]:
            raise GraphError(
                f"connect: the key {left!r} of the first stream is {kinds[0]}, but {right!r} of the second is "
                f"{kinds[1]}; cast one of them before key_by, with_columns({right}=col({right!r}).cast(...))"
            )
