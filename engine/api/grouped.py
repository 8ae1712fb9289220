"""The verbs of streams that end, grouped by key: of `GroupedStream`, which `DataStream.group_by` returns.

The batch view of a stream: one result a key, over all of its rows. `KeyedStream` is the other view.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, NoReturn

from penstock.engine.aggregates.functions import Aggregate
from penstock.engine.aggregates.grouped import GroupedAggregation, refuse_unnamed
from penstock.engine.api.base import StreamT
from penstock.engine.api.checks import check_bounded
from penstock.engine.api.hints import GROUPED_HINTS, no_such_verb


class GroupedVerbs(Generic[StreamT]):
    """What can be asked of a stream that ends, grouped by key."""

    def __init__(self, stream: StreamT, keys: Sequence[str]) -> None:
        check_bounded(
            stream._program,
            stream._edges,
            "group_by",
            "a group is complete",
            "key_by(...).aggregate(...) for running values, key_by(...).window(...) for those of windows",
        )
        self._stream = stream
        self._keys = tuple(keys)

    def __repr__(self) -> str:
        return self._stream._shown(type(self).__name__, f" by {', '.join(self._keys)}")

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            no_such_verb(self, name, GROUPED_HINTS)

    def aggregate(self, *unnamed: NoReturn, **aggregates: Aggregate) -> StreamT:
        """One row for each key, when the stream has ended.

        The columns are the keys and one for each aggregate. The rows come in any order; each carries the largest event
        timestamp of its key's rows, and event time stands still until they come. State is as large as for
        `KeyedStream.aggregate`.

        Args:
            aggregates: result names and aggregates.

        Raises:
            GraphError: as for `KeyedStream.aggregate`.

        Example:
            >>> stream.group_by("word").aggregate(n=count(), longest=max("length"))  # doctest: +SKIP
        """
        from penstock.engine.operators.keyed_aggregates import FinalAggregateSpec

        refuse_unnamed(unnamed)
        aggregation = GroupedAggregation(self._keys, aggregates)
        schema = None if self._stream.schema is None else aggregation.bind(self._stream.schema, "aggregate")
        role = FinalAggregateSpec(aggregation, self._stream._timed)
        return self._stream._add(role, schema)
