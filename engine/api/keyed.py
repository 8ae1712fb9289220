"""Streams divided by key: what `DataStream.key_by` returns.

Each verb checks its arguments, adds one operator behind the exchange by key, and returns the stream behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.aggregates import Aggregate
from penstock.engine.aggregation import GroupedAggregation
from penstock.engine.api.streams import DataStream
from penstock.engine.api.texts import aggregates_text
from penstock.engine.api.windowed import WindowedStream
from penstock.engine.errors import GraphError
from penstock.engine.operators.running_aggregate import RunningAggregateFactory
from penstock.engine.windows.assigners import AlignedWindows, SessionWindows, WindowAssigner


class KeyedStream:
    """A stream divided by key. Get one from `DataStream.key_by`."""

    def __init__(self, stream: DataStream, keys: Sequence[str]) -> None:
        self._stream = stream
        self._keys = tuple(keys)

    def aggregate(self, **aggregates: Aggregate) -> DataStream:
        """Running aggregates: each batch emits one update for every key that it touched.

        The columns are the keys and one for each aggregate. The last update of a key is its final value; how many come
        before it depends on how rows were cut into batches.

        Args:
            aggregates: result names and aggregates.

        Raises:
            GraphError: no aggregate, or what is none; a missing column, a wrong type; a result named as a key, or a
                key or result whose name begins with `__`.

        Example:
            >>> stream.key_by("word").aggregate(n=count(), longest=max("length"))  # doctest: +SKIP
        """
        aggregation = GroupedAggregation(self._keys, aggregates)
        schema = None if self._stream.schema is None else aggregation.bind(self._stream.schema, "aggregate")
        name = f"aggregate({aggregates_text(aggregates)})"
        return self._stream._add(name, RunningAggregateFactory(aggregation), schema)

    def window(self, windows: WindowAssigner) -> WindowedStream:
        """Divide each key's rows into event-time windows: `tumbling(...)`, `sliding(...)` or `session(...)`.

        Raises:
            GraphError: the stream has no timestamps.
        """
        if not isinstance(windows, AlignedWindows | SessionWindows):
            raise GraphError(f"window takes tumbling(...), sliding(...) or session(...), not {windows!r}")
        if not self._stream._timed:
            raise GraphError("window: the stream has no timestamps; call assign_timestamps before key_by")
        return WindowedStream(self._stream, self._keys, windows)
