"""The verbs of a stream that say where its rows go next: by key, dealt out, or to everybody.

`DataStream` inherits them. They add no operator, but shape the edges to the one that is added next.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, overload

from penstock.engine.api.checks import check_keys
from penstock.engine.exchange.partitioners import Broadcast, Forward, Global, Hash, Partitioner, Rebalance, Rescale
from penstock.engine.operators.base import SchemaOrUnknown
from penstock.engine.state.descriptors import MapStateDescriptor

if TYPE_CHECKING:
    from penstock.engine.api.connected import BroadcastStream
    from penstock.engine.api.grouped import GroupedStream
    from penstock.engine.api.keyed import KeyedStream
    from penstock.engine.api.streams import DataStream


class PartitioningVerbs(ABC):
    """What a stream has to say about the way of its rows."""

    _schema: SchemaOrUnknown

    @abstractmethod
    def _partition(self, partitioner: Partitioner) -> DataStream:
        """The same rows, spread in that way over the subtasks of the next operator."""

    def key_by(self, *columns: str) -> KeyedStream:
        """Bring rows with equal keys together: everything behind is computed per key.

        Args:
            columns: names of the key columns; whole numbers, text, booleans, times or decimals, without nulls.

        Raises:
            GraphError: no such column, a key of floating or nested type, or a name that begins with `__`.

        Example:
            >>> stream.key_by("carrier").aggregate(n=count())  # doctest: +SKIP
        """
        check_keys("key_by", columns, self._schema)
        from penstock.engine.api.keyed import KeyedStream

        return KeyedStream(self._partition(Hash(columns)), columns)

    def group_by(self, *columns: str) -> GroupedStream:
        """The batch view: what is computed of all rows with equal keys, once, when the stream has ended.

        Where `key_by(...).aggregate(...)` gives an update whenever rows come, `group_by(...).aggregate(...)` gives one
        row a key, the final one.

        Args:
            columns: as for `key_by`.

        Raises:
            GraphError: as for `key_by`; or a source of the stream, which is named, has no end.

        Example:
            >>> stream.group_by("carrier").aggregate(n=count())  # doctest: +SKIP
        """
        check_keys("group_by", columns, self._schema)
        from penstock.engine.api.grouped import GroupedStream

        return GroupedStream(self._partition(Hash(columns)), columns)

    def rebalance(self) -> DataStream:
        """Deal the rows out evenly to the subtasks of the next operator."""
        return self._partition(Rebalance())

    def rescale(self) -> DataStream:
        """Deal the rows out evenly within groups of neighbouring subtasks."""
        return self._partition(Rescale())

    @overload
    def broadcast(self) -> DataStream: ...

    @overload
    def broadcast(self, first: MapStateDescriptor, /, *more: MapStateDescriptor) -> BroadcastStream: ...

    def broadcast(self, *descriptors: MapStateDescriptor) -> DataStream | BroadcastStream:
        """Send every row to every subtask of the next operator.

        Args:
            descriptors: of the broadcast states in which a `BroadcastProcessFunction` keeps the rows; give the result
                to `connect`. Without any, the result is a stream like this one.

        Raises:
            GraphError: not `MapStateDescriptor`s, or two of one name.

        Example:
            >>> payments.connect(rules.broadcast(RULES)).process(Alert())  # doctest: +SKIP
        """
        everywhere = self._partition(Broadcast())
        if not descriptors:
            return everywhere
        from penstock.engine.api.connected import BroadcastStream

        return BroadcastStream(everywhere, descriptors)

    def forward(self) -> DataStream:
        """Send subtask i's rows to subtask i of the next operator, which must have the same parallelism."""
        return self._partition(Forward())

    def global_(self) -> DataStream:
        """Send all rows to the first subtask of the next operator."""
        return self._partition(Global())
