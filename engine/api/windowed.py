"""Keyed streams divided into windows: what `KeyedStream.window` returns.

Its last verb says what is computed for each window, adds the operator, and returns the stream of results.
"""

from __future__ import annotations

from penstock.engine.aggregates import Aggregate
from penstock.engine.aggregation import GroupedAggregation
from penstock.engine.api.streams import DataStream
from penstock.engine.api.texts import aggregates_text
from penstock.engine.errors import GraphError
from penstock.engine.graph.logical import Role
from penstock.engine.operators.base import SchemaOrUnknown
from penstock.engine.operators.session_aggregate import SessionAggregateFactory
from penstock.engine.operators.window_aggregate import WindowAggregateFactory, window_schema
from penstock.engine.windows.assigners import SessionWindows, WindowAssigner


class WindowedStream:
    """A keyed stream divided into windows. Get one from `KeyedStream.window`."""

    def __init__(self, stream: DataStream, keys: tuple[str, ...], windows: WindowAssigner) -> None:
        self._stream = stream
        self._keys = keys
        self._windows = windows

    def aggregate(self, **aggregates: Aggregate) -> DataStream:
        """One row for each key and window, once the watermark has passed the window's end.

        The columns are the keys, `window_start`, `window_end` (timestamps, UTC; the end does not belong to the
        window), and one for each aggregate. The rows carry the event timestamp `window_end - 1 ms`.

        Args:
            aggregates: result names and aggregates.

        Raises:
            GraphError: no aggregate, or what is none; a missing column, a wrong type; a result named as a key or
                window bound, or a key or result whose name begins with `__`.

        Example:
            >>> keyed.window(tumbling("1h")).aggregate(n=count(), mean_delay=mean("delay"))  # doctest: +SKIP
        """
        aggregation = GroupedAggregation(self._keys, aggregates)
        schema: SchemaOrUnknown = None
        taken = {"window_start", "window_end"} & {*self._keys, *aggregates}
        if taken:
            raise GraphError(f"aggregate: {', '.join(sorted(taken))} is the name of a window column; choose another")
        if self._stream.schema is not None:
            schema = window_schema(aggregation.bind(self._stream.schema, "aggregate"), self._keys)
        name = f"window({self._windows.describe()}, {aggregates_text(aggregates)})"
        role: Role
        if isinstance(self._windows, SessionWindows):
            role = SessionAggregateFactory(self._windows, aggregation)
        else:
            role = WindowAggregateFactory(self._windows, aggregation)
        return self._stream._add(name, role, schema, timed=True)
