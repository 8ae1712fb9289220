"""The streams that a program is written with: `DataStream`, and what its verbs lead to.

A stream is a place in the job graph. Each verb checks its arguments against the columns, where they are known, adds one
operator, and returns the stream behind it; nothing runs before the environment executes the program.

These classes name each other, as keys lead to windows and windows back to streams. Their other verbs are inherited from
modules of their own, which know no class of this one; what joins, loops and patterns need is loaded where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, overload

from penstock.engine.api.base import Stream
from penstock.engine.api.checks import side_schema
from penstock.engine.api.connected import BroadcastConnectedVerbs, BroadcastStream, ConnectedVerbs
from penstock.engine.api.grouped import GroupedVerbs
from penstock.engine.api.hints import STREAM_HINTS, no_such_verb
from penstock.engine.api.keyed import KeyedVerbs
from penstock.engine.api.matched import PatternVerbs, Time
from penstock.engine.api.sinks import Printer, StreamSink
from penstock.engine.api.windowed import WindowedVerbs
from penstock.engine.connectors import LookupTable, Sink
from penstock.engine.durations import Duration
from penstock.engine.errors import GraphError
from penstock.engine.exchange.partitioners import Broadcast
from penstock.engine.functions import OutputTag
from penstock.engine.graph.logical import Chaining, Edge, Results
from penstock.engine.job.handle import CollectedRows, CollectResult
from penstock.engine.operators.base import SchemaOrUnknown
from penstock.engine.operators.iteration import Asynchronous, IterationMode
from penstock.engine.operators.joins.lookup_cache import LookupCache
from penstock.engine.operators.sink import SinkSpec
from penstock.engine.state.descriptors import MapStateDescriptor
from penstock.engine.texts import columns_text
from penstock.engine.windows.base import WindowAssigner

Row: TypeAlias = dict[str, Any]

if TYPE_CHECKING:
    from penstock.engine.patterns.pattern import Pattern


class DataStream(Stream):
    """A stream of rows with named, typed columns.

    Get one from a `StreamEnvironment`; each verb returns a new stream and leaves this one as it is.

    Example:
        >>> from penstock import StreamEnvironment, col
        >>> env = StreamEnvironment(runtime="local")
        >>> stream = env.from_collection([{"x": 1}, {"x": 5}]).filter(col("x") > 3)
        >>> list(stream.collect())
        [{'x': 5}]
    """

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            no_such_verb(self, name, STREAM_HINTS)

    # By key, or to everybody

    def key_by(self, *columns: str) -> KeyedStream:
        """Bring rows with equal keys together: everything behind is computed per key.

        Args:
            columns: names of the key columns; whole numbers, text, booleans, times or decimals, without nulls.

        Raises:
            GraphError: no such column, a key of floating or nested type, or a name that begins with `__`.

        Example:
            >>> stream.key_by("carrier").aggregate(n=count())  # doctest: +SKIP
        """
        return KeyedStream(self._by_key(columns), columns)

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
        return GroupedStream(self._by_key(columns, "group_by"), columns)

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
        return BroadcastStream(everywhere, descriptors)

    # Several streams

    def union(self, *others: DataStream) -> DataStream:
        """All rows of this stream and the others, which must have the same columns.

        Raises:
            GraphError: the columns differ, or only some of the streams have timestamps.
        """
        streams = (self, *others)
        schema: SchemaOrUnknown = self._schema
        for other in others:
            if not isinstance(other, DataStream):
                raise GraphError(f"union takes streams, not {other!r}; make one with from_collection(...)")
            if other._program is not self._program:
                raise GraphError("union: the streams belong to different programs")
            if other._timed != self._timed:
                raise GraphError("union: some streams have timestamps and others not; call assign_timestamps on each")
            schema = other._schema if schema is None else schema
            if other._schema is not None and other._schema != schema:
                raise GraphError(
                    f"union: the columns differ: ({columns_text(schema)}) and ({columns_text(other._schema)}); "
                    "make them equal with select"
                )
        edges = tuple(edge for stream in streams for edge in stream._edges)
        return DataStream(self._program, edges, schema, self._timed, None)

    @overload
    def connect(self, other: DataStream) -> ConnectedStreams: ...

    @overload
    def connect(self, other: BroadcastStream) -> BroadcastConnectedStream: ...

    def connect(self, other: DataStream | BroadcastStream) -> ConnectedStreams | BroadcastConnectedStream:
        """This stream and another, whose columns may differ, for a function that takes rows of both.

        Args:
            other: a stream, or a broadcast stream: `rules.broadcast(MapStateDescriptor(...))`.

        Raises:
            GraphError: another program's stream, one with keys, or one with timestamps where this one has none.

        Example:
            >>> orders.connect(payments).key_by("id", "order_id").process(Match())  # doctest: +SKIP
        """
        if isinstance(other, BroadcastStream):
            return BroadcastConnectedStream(self, other)
        if not isinstance(other, DataStream):
            raise GraphError(
                "connect: takes a stream without keys, as this one is, or a broadcast stream, not "
                f"{type(other).__name__}; for keys, call connect(...).key_by(first, second)"
            )
        return ConnectedStreams(self, other)

    def get_side_output(self, tag: OutputTag) -> DataStream:
        """The rows that the operator just added emits to a side output.

        Args:
            tag: the same name as that given to `ctx.output(tag, row)`, or to `side_output_late_data(tag)`. Columns that
                it declares hold for the rows that are emitted, too: what does not fit them is a `RecordError`.

        Raises:
            GraphError: `tag` is no OutputTag, no operator was just added, or the columns are known to be others.

        Example:
            >>> late = counts.get_side_output(LATE)  # doctest: +SKIP
        """
        if not isinstance(tag, OutputTag):
            raise GraphError(f"get_side_output takes an OutputTag, not {tag!r}")
        node = self._own_node("get_side_output")
        schema = side_schema(self._program, node, tag)
        return DataStream(self._program, (Edge(node, tag=tag.name),), schema, self._timed, None)

    def lookup_join(
        self,
        table: LookupTable,
        on: str | Sequence[str] | Mapping[str, str],
        how: Literal["inner", "left"] = "inner",
        cache: LookupCache | None = None,
        suffix: str = "_right",
    ) -> DataStream:
        """Add the columns of a table outside the stream, looked up by key as the rows pass.

        The table is asked once a batch, for the distinct keys that the cache does not know. The columns are those of
        the stream, then those of the table that are no keys. A row with a null in a key column has no partner.

        Args:
            table: a `LookupTable`: your own, `ArrowTable(table, keys=...)` or `DictTable(rows, keys=...)`.
            on: the columns that hold the keys, or `{"column of the stream": "key of the table"}`.
            how: `"inner"`, or `"left"` to keep rows that the table does not have, filled with nulls.
            cache: `LookupCache(max_rows=..., ttl=...)` to keep looked-up rows, and what the table does not have.
            suffix: goes behind the name of a column of the table that the stream has too.

        Raises:
            GraphError: no such column, another type or other keys than the table has, or a name that is still taken.
            ConfigurationError: an unknown `how`.

        Example:
            >>> users = DictTable({1: {"name": "Ada"}}, keys="id")
            >>> clicks.lookup_join(users, on={"user": "id"}, cache=LookupCache(ttl="10m"))  # doctest: +SKIP
        """
        from penstock.engine.api.joins import lookup_join

        return lookup_join(self, table, on, how, cache, suffix)

    @property
    def is_bounded(self) -> bool:
        """Whether the stream ends: whether all sources that it comes from do."""
        return self._program.graph.build().endless_source(edge.source for edge in self._edges) is None

    # Loops

    def iterate(
        self,
        body: Callable[[DataStream], tuple[DataStream | KeyedStream, DataStream]],
        mode: IterationMode | None = None,
        max_supersteps: int | None = None,
    ) -> DataStream:
        """Let rows go round: what `body` feeds back joins this stream again. Returns what leaves the loop.

        A loop over bounded input ends when no row is left in it; windows and event-time timers in it fire before that.
        Rows that are fed back keep their timestamps, watermarks do not wait for them, and their queue is in memory.

        Args:
            body: called once, now, with the stream that goes round; returns what is fed back (with the same columns)
                and what leaves the loop. `loop.name(...)` and `loop.set_parallelism(...)` in it set those of the head.
            mode: `Asynchronous()`, the default: rows go round at once. `BulkSynchronous()`: in supersteps, of which the
                first is the whole input, and each further one all rows that the one before it fed back.
                `StaleSynchronous(bound)`: a subtask may be up to `bound` supersteps ahead of the slowest.
            max_supersteps: end after as many; what the last one feeds back is dropped. Not for asynchronous loops.

        Raises:
            GraphError: the body makes no loop, or has one in it; supersteps over endless input.
            ConfigurationError: `mode` is none, or `max_supersteps` is no number of supersteps.

        Example:
            >>> def halve(loop):
            ...     halved = loop.with_columns(n=col("n") // 2)
            ...     return halved.filter(col("n") > 0), halved.filter(col("n") == 0)
            >>> stream.iterate(halve)  # doctest: +SKIP
        """
        from penstock.engine.api.iterations import iterate

        return iterate(self, body, Asynchronous() if mode is None else mode, max_supersteps)

    # Windows over all rows

    def window_all(self, windows: WindowAssigner) -> WindowedStream:
        """Divide all rows together into windows; one subtask computes them, whatever the parallelism.

        Args:
            windows: as for `KeyedStream.window`.

        Raises:
            GraphError: no assigner, or one of event time on a stream without timestamps.

        Example:
            >>> clicks.window_all(tumbling("1m")).aggregate(n=count())  # doctest: +SKIP
        """
        return WindowedStream.over(self, (), windows, "window_all")

    def count_window_all(self, size: int, slide: int | None = None) -> WindowedStream:
        """Divide all rows together into windows of so many rows; arguments as for `KeyedStream.count_window`."""
        return WindowedStream.counted(self, (), size, slide, "count_window_all")

    def window(self, windows: WindowAssigner) -> NoReturn:
        """Windows belong to keys: call `key_by(...)` before, or `window_all(...)`.

        Raises:
            GraphError: always.
        """
        raise GraphError(
            "window: the stream has no keys; call key_by(...).window(...) for windows of each key, or window_all(...) "
            "for windows over all rows, in one subtask"
        )

    def count_window(self, size: int, slide: int | None = None) -> NoReturn:
        """Windows belong to keys: call `key_by(...)` before, or `count_window_all(...)`.

        Raises:
            GraphError: always.
        """
        raise GraphError(
            "count_window: the stream has no keys; call key_by(...).count_window(...) for windows of each key, or "
            "count_window_all(...) for windows over all rows, in one subtask"
        )

    # Sinks

    def sink_to(self, sink: Sink) -> StreamSink:
        """End the stream in a sink."""
        if not isinstance(sink, Sink):
            hint = f"; write files by FileSink({sink!r}, 'csv')" if isinstance(sink, str) else ""
            raise GraphError(f"sink_to takes a Sink, not {sink!r}{hint}")
        return StreamSink(self._program, self._add(SinkSpec(sink), None)._edges[0].source)

    def print(self, label: str = "") -> StreamSink:
        """Print each row on the client, behind the label if there is one."""
        node = self._add(Results(), self._schema, name="print")._edges[0].source
        self._program.consumers[node] = Printer(f"{label}> " if label else "")
        return StreamSink(self._program, node)

    def collect(self) -> CollectResult:
        """Bring the rows to the client: iterate the result, or call `to_arrow()` or `to_pandas()` on it."""
        node = self._add(Results(), self._schema)._edges[0].source
        rows = CollectedRows(self._schema)
        self._program.consumers[node] = rows
        return CollectResult(rows, self._program)

    # Settings of the operator just added

    def name(self, name: str) -> DataStream:
        """Give the operator a name, for `explain()`, the live view and messages."""
        self._set_name(name)
        return self

    def uid(self, uid: str) -> DataStream:
        """Give the operator an id that stays the same when the program changes; its state is found by it."""
        self._set_uid(uid)
        return self

    def set_parallelism(self, parallelism: int) -> DataStream:
        """Run the operator with this many subtasks; goes before the environment's parallelism.

        Raises:
            ConfigurationError: not a whole number of 1 or more.
        """
        self._set_parallelism(parallelism)
        return self

    def disable_chaining(self) -> DataStream:
        """Run the operator in tasks of its own."""
        self._program.graph.chaining(self._own_node("disable_chaining"), Chaining.NEVER)
        return self

    def start_new_chain(self) -> DataStream:
        """Run the operator in another task than the one before it."""
        self._program.graph.chaining(self._own_node("start_new_chain"), Chaining.HEAD)
        return self


class KeyedStream(KeyedVerbs[DataStream]):
    """A stream divided by key. Get one from `DataStream.key_by`."""

    @overload
    def connect(self, other: KeyedStream) -> ConnectedStreams: ...

    @overload
    def connect(self, other: BroadcastStream) -> BroadcastConnectedStream: ...

    def connect(self, other: KeyedStream | BroadcastStream) -> ConnectedStreams | BroadcastConnectedStream:
        """This stream and another, for a function that takes rows of both and has state by key.

        Args:
            other: a stream with as many key columns of the same types, or a broadcast stream.

        Raises:
            GraphError: another program's stream, one with other keys or none, or one with timestamps where this one has
                none.

        Example:
            >>> orders.key_by("id").connect(payments.key_by("order_id")).process(Match())  # doctest: +SKIP
        """
        if isinstance(other, BroadcastStream):
            return BroadcastConnectedStream(self._stream, other, self._keys)
        if not isinstance(other, KeyedStream):
            raise GraphError(
                "connect: takes a stream with keys, as this one has, or a broadcast stream, not "
                f"{type(other).__name__}; call key_by on both, or broadcast(MapStateDescriptor(...)) on the other"
            )
        return ConnectedStreams(self._stream, other._stream, (self._keys, other._keys))

    def match(
        self,
        pattern: Pattern,
        time: Time = "event",
        max_partial_matches: int | None = None,
        overflow: Literal["fail", "drop_oldest", "drop_newest"] = "fail",
        ttl: Duration | None = None,
    ) -> PatternStream:
        """Look for a pattern in the rows of each key, in order of time.

        Args:
            pattern: what to look for; docs/patterns.md says what each verb means.
            time: `"event"`, where rows wait for the watermark and late ones are dropped and counted, or `"processing"`,
                where each row is looked at as it comes, at the time of the clock.
            max_partial_matches: how many a key may have after a row; None for any number.
            overflow: what happens to more: the job fails, or those go that began first, or last. The metric
                `droppedPartialMatches` counts them.
            ttl: how long a partial match lives without a further row of its own (in the time of `time`); it then goes
                and is counted as well. `within` bounds the match as a whole, and gives time-outs.

        Raises:
            PatternError: the pattern makes no sense.
            ConfigurationError: a limit that is none.
            GraphError: a stream without timestamps (in event time), or whose columns are not known; a condition that
                does not fit them.

        Example:
            >>> pattern = Pattern.begin("small").where(col("amount") < 1)  # doctest: +SKIP
            >>> pattern = pattern.next("large").where(col("amount") > 500).within("1m")  # doctest: +SKIP
            >>> payments.key_by("card").match(pattern).select(  # doctest: +SKIP
            ...     lambda match: {"card": next(iter(match["large"]))["card"]}
            ... )
        """
        from penstock.engine.patterns.limits import limits_of

        return PatternStream.over(
            self._stream, self._keys, pattern, time, limits_of(max_partial_matches, overflow, ttl)
        )

    def window(self, windows: WindowAssigner) -> WindowedStream:
        """Divide each key's rows into windows.

        Args:
            windows: `tumbling(...)`, `sliding(...)`, `cumulative(...)`, `session(...)`, `global_windows()`, or a
                `WindowAssigner` of your own.

        Raises:
            GraphError: no assigner, or one of event time on a stream without timestamps.

        Example:
            >>> clicks.key_by("user").window(session("30m")).aggregate(n=count())  # doctest: +SKIP
        """
        return WindowedStream.over(self._stream, self._keys, windows, "window")

    def count_window(self, size: int, slide: int | None = None) -> WindowedStream:
        """Divide each key's rows into windows of so many rows; rows that fill no window are not emitted.

        Args:
            size: rows of a window, 1 or more.
            slide: emit the last `size` rows whenever so many more have come; by default windows do not overlap.

        Raises:
            GraphError: a size or slide that is no whole number of 1 or more.

        Example:
            >>> prices.key_by("stock").count_window(100, 10).aggregate(mean=mean("price"))  # doctest: +SKIP
        """
        return WindowedStream.counted(self._stream, self._keys, size, slide, "count_window")


class GroupedStream(GroupedVerbs[DataStream]):
    """A stream that ends, grouped by key. Get one from `DataStream.group_by`."""


class WindowedStream(WindowedVerbs[DataStream]):
    """A stream divided into windows. Get one from `KeyedStream.window` or `DataStream.window_all`."""


class PatternStream(PatternVerbs[DataStream]):
    """A stream in which a pattern is looked for. Get one from `KeyedStream.match`."""


class ConnectedStreams(ConnectedVerbs[DataStream]):
    """Two streams, with keys or without, for a function that takes rows of both. Get one from `connect`."""


class BroadcastConnectedStream(BroadcastConnectedVerbs[DataStream]):
    """A stream, with keys or without, and a broadcast stream. Get one from `connect`."""
