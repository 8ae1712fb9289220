"""The streams that a program is written with.

A stream is a place in the job graph. Each verb checks its arguments against the columns, where they are known, adds one
operator, and returns the stream behind it; nothing runs before the environment executes the program.

Streams with keys, windows and partners have modules of their own beside this one. Their verbs return to a `DataStream`,
so the verbs here that lead there import them when they are called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, overload

import pyarrow as pa

from penstock.engine.api.checks import check_bounded, side_schema, sort_keys
from penstock.engine.api.hints import STREAM_HINTS, no_such_verb
from penstock.engine.api.partitioning import PartitioningVerbs
from penstock.engine.api.program import Program
from penstock.engine.api.settings import OperatorSettings
from penstock.engine.api.sinks import Printer, StreamSink
from penstock.engine.compiled.functions import CompiledFunction
from penstock.engine.connectors import LookupTable, Sink
from penstock.engine.durations import Duration
from penstock.engine.errors import GraphError
from penstock.engine.exchange.partitioners import Global, Partitioner
from penstock.engine.expressions import Expr, Filter, Select, Step, WithColumns, bind, describe, select, with_columns
from penstock.engine.functions import OutputTag, ProcessFunction
from penstock.engine.graph.logical import Chaining, Edge, Node, Results, Role
from penstock.engine.job.handle import CollectedRows, CollectResult
from penstock.engine.operators.async_function import AsyncFunctionSpec, AsyncRetry
from penstock.engine.operators.base import SchemaOrUnknown
from penstock.engine.operators.batches import BatchMapSpec
from penstock.engine.operators.expressions import ExpressionSpec
from penstock.engine.operators.functions.process import ProcessSpec
from penstock.engine.operators.iteration import Asynchronous, IterationMode
from penstock.engine.operators.joins.lookup_cache import LookupCache
from penstock.engine.operators.rows import RowColumnsSpec, RowFilterSpec, RowFlatMapSpec, RowMapSpec
from penstock.engine.operators.sink import SinkSpec
from penstock.engine.operators.sort import SortSpec
from penstock.engine.operators.spec import Resources
from penstock.engine.operators.timestamps import TimestampSpec, complete_strategy
from penstock.engine.rows import Returns, declared_schema
from penstock.engine.texts import columns_text
from penstock.engine.windows.base import WindowAssigner
from penstock.engine.windows.watermarks import WatermarkStrategy

if TYPE_CHECKING:
    from penstock.engine.api.connected import BroadcastConnectedStream, BroadcastStream, ConnectedStreams
    from penstock.engine.api.keyed import KeyedStream
    from penstock.engine.api.windowed import WindowedStream

Row: TypeAlias = dict[str, Any]


class DataStream(PartitioningVerbs, OperatorSettings):
    """A stream of rows with named, typed columns.

    Get one from a `StreamEnvironment`; each verb returns a new stream and leaves this one as it is.

    Example:
        >>> from penstock import StreamEnvironment, col
        >>> env = StreamEnvironment(runtime="local")
        >>> stream = env.from_collection([{"x": 1}, {"x": 5}]).filter(col("x") > 3)
        >>> list(stream.collect())
        [{'x': 5}]
    """

    def __init__(
        self, program: Program, edges: tuple[Edge, ...], schema: SchemaOrUnknown, timed: bool, node: int | None
    ) -> None:
        self._program = program
        self._edges = edges
        self._schema = schema
        self._timed = timed
        self._node = node

    @classmethod
    def of_node(cls, program: Program, node: Node) -> DataStream:
        """The stream behind a node."""
        return cls(program, (Edge(node.id),), node.schema, node.timed, node.id)

    @property
    def schema(self) -> pa.Schema | None:
        """The columns, or None behind a Python function whose result was not declared by `returns=`."""
        return self._schema

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            no_such_verb(self, name, STREAM_HINTS)

    def filter(self, *predicates: Any) -> DataStream:
        """Keep the rows for which every predicate is true.

        Args:
            predicates: expressions such as `col("x") > 3`, or one Python function of a row (a dict).

        Raises:
            GraphError: a predicate is no row-wise boolean expression, or names a column that is not there.

        Example:
            >>> stream.filter(~col("delay").is_null(), col("delay") > 15)  # doctest: +SKIP
        """
        if not predicates:
            raise GraphError("filter: give at least one predicate")
        if len(predicates) == 1 and not isinstance(predicates[0], Expr) and callable(predicates[0]):
            function = predicates[0]
            if isinstance(function, CompiledFunction):
                from penstock.engine.operators.compiled import filter_spec

                return self._add(filter_spec(function, self._schema), self._schema)
            return self._add(RowFilterSpec(function), self._schema)
        return self._add_steps(tuple(Filter(predicate) for predicate in predicates))

    def select(self, *columns: Any, returns: Returns = None, **named: Any) -> DataStream:
        """Keep, compute and rename columns; all others go.

        Args:
            columns: names, or expressions (named by `.alias(...)` or their first column).
            returns: Arrow types of the columns that Python functions compute.
            named: new columns: expressions, literals, or Python functions of a row.

        Raises:
            GraphError: an expression is not row-wise, or names a column that is not there.

        Example:
            >>> stream.select("carrier", hours=col("minutes") / 60)  # doctest: +SKIP
        """
        return self._add_columns(select(*columns, **named), returns)

    def with_columns(self, *columns: Any, returns: Returns = None, **named: Any) -> DataStream:
        """Add or replace columns; arguments as for `select`.

        Example:
            >>> stream.with_columns(late=col("delay") > 15, label=lambda row: row["a"] + row["b"])  # doctest: +SKIP
        """
        return self._add_columns(with_columns(*columns, **named), returns)

    def map(self, function: Callable[[Row], Row], returns: Returns = None) -> DataStream:
        """Turn each row (a dict) into another.

        Args:
            function: takes and returns a dict; made by `penstock.compiled`, it runs over whole columns.
            returns: the columns of the result, as a `pa.Schema` or `{"name": "int64"}`. Without it, each column takes
                the type of its first value and keeps it, and later verbs cannot check column names in advance.

        Raises:
            GraphError: `function` cannot be called.
            ConfigurationError: `returns` declares no columns.

        Example:
            >>> stream.map(lambda row: {"word": row["word"].lower()}, returns={"word": "string"})  # doctest: +SKIP
        """
        schema = declared_schema(returns, "map")
        if isinstance(function, CompiledFunction):
            # Few programs have compiled functions, and all that compiles comes with this.
            from penstock.engine.operators.compiled import map_spec

            return self._add(map_spec(function, self._schema, schema), schema)
        return self._add(RowMapSpec(function, schema), schema)

    def flat_map(self, function: Callable[[Row], Iterable[Row]], returns: Returns = None) -> DataStream:
        """Turn each row (a dict) into any number of rows; arguments as for `map`.

        Example:
            >>> lines.flat_map(lambda row: ({"word": w} for w in row["line"].split()))  # doctest: +SKIP
        """
        schema = declared_schema(returns, "flat_map")
        if isinstance(function, CompiledFunction):
            from penstock.engine.operators.compiled import flat_map_spec

            return self._add(flat_map_spec(function, self._schema, schema), schema)
        return self._add(RowFlatMapSpec(function, schema), schema)

    def map_batches(
        self, function: Any, returns: Returns = None, num_cpus: float = 0.0, num_gpus: float = 0.0
    ) -> DataStream:
        """Turn whole Arrow record batches into others: the way to call NumPy, pandas or a model at full speed.

        Args:
            function: takes a `pa.RecordBatch` and returns one, a `pa.Table`, or a dict of arrays; or a class with
                `__call__` and optional `open(context)` and `close()`, of which each subtask creates one. How rows are
                cut into batches must not matter to it.
            returns: the columns of the result, as for `map`.
            num_cpus, num_gpus: what each subtask reserves on the cluster; it then gets a task of its own.

        Raises:
            GraphError: `function` cannot be called.
            ConfigurationError: `num_cpus` or `num_gpus` is no number of 0 or more.

        Example:
            >>> stream.map_batches(lambda batch: {"n": np.sqrt(batch["n"])})  # doctest: +SKIP
        """
        wanted = Resources(num_cpus, num_gpus)
        schema = declared_schema(returns, "map_batches")
        resources = wanted if num_cpus or num_gpus else None
        return self._add(BatchMapSpec(function, schema, resources), schema)

    def process(self, function: ProcessFunction | type[ProcessFunction], returns: Returns = None) -> DataStream:
        """Call a `ProcessFunction` with each row: any number of rows out, side outputs, state of the subtask.

        Args:
            function: an object, of which each subtask gets a copy, or the class.
            returns: the columns of the result, as for `map`.

        Raises:
            GraphError: another kind of function, or one that does not implement `process_element`.

        Example:
            >>> numbers.process(Split(), returns={"n": "int64"})  # doctest: +SKIP
        """
        schema = declared_schema(returns, "process")
        return self._add(ProcessSpec(function, schema, self._timed), schema)

    def map_async(
        self,
        function: Any,
        returns: Returns = None,
        timeout: Duration = "60s",
        capacity: int = 100,
        order: Literal["ordered", "unordered"] = "ordered",
        retry: AsyncRetry | None = None,
    ) -> DataStream:
        """Call an outside service for each row, many rows at a time, without blocking on each call.

        A batch is awaited as a whole, so it waits for its slowest call; meanwhile rows gather for the next one. The
        delays and the timeout are real time, whatever clock the job runs on.

        Args:
            function: an `AsyncFunction` or a class of such, of which each subtask has one; or an `async def` function
                of a row. It gives a dict, a list of dicts, or None for no rows.
            returns: the columns of the result, as for `map`.
            timeout: how long the work on a row may take, with all retries. Then `timeout(row)` of the AsyncFunction is
                called, which raises an error unless you override it.
            capacity: how many rows a subtask works on at a time.
            order: `"ordered"`: results in the order of their rows; `"unordered"`: in each batch, what is done first
                goes first.
            retry: `AsyncRetry(...)` to call again where a call failed; by default that ends the job.

        Raises:
            GraphError: `function` is nothing that can be awaited.
            ConfigurationError: an option cannot be used.

        Example:
            >>> async def city(row):
            ...     return {**row, "city": await client.city_of(row["ip"])}
            >>> stream.map_async(city, timeout="5s", retry=AsyncRetry(attempts=3, delay="100ms"))  # doctest: +SKIP
        """
        schema = declared_schema(returns, "map_async")
        return self._add(AsyncFunctionSpec(function, schema, timeout, capacity, order, retry), schema)

    def assign_timestamps(
        self, column: str | WatermarkStrategy, strategy: WatermarkStrategy | None = None
    ) -> DataStream:
        """Take event time from a column, and emit watermarks; those from upstream go, but for the one at the end.

        Args:
            column: a timestamp (without a zone: UTC), a date, or an integer of milliseconds since the epoch; no nulls.
                Or a strategy that says itself where timestamps are.
            strategy: how far rows may be out of order; by default not at all within one subtask.

        Raises:
            GraphError: there is no such column, it holds no time, `strategy` is none, says nothing or something else
                about timestamps, or is of an alignment group, which only `from_source` can hold back.

        Example:
            >>> stream.assign_timestamps("at", WatermarkStrategy.for_bounded_out_of_orderness("5s"))  # doctest: +SKIP
            >>> stream.assign_timestamps(WatermarkStrategy.for_ingestion_time())  # doctest: +SKIP
        """
        spec = TimestampSpec(complete_strategy(column, strategy))
        spec.bind(self._schema, "assign_timestamps")
        return self._add(spec, self._schema, timed=True)

    def sort(self, *columns: str, descending: bool | Sequence[bool] = False) -> DataStream:
        """All rows in order, when the stream has ended.

        Null comes first and NaN last; texts and bytes go by their bytes. Descending is exactly the reverse. Rows that
        are equal in `columns` come in any order: name as many as make it unique. The rows have no event time any more.

        The order holds within each subtask, and all rows of one come before those of the next. So `collect()` gives
        rows in order, and so do the files of a `FileSink`, one after another by their names, unless the parallelism
        changes or rows are partitioned anew on the way. In streaming mode all rows are state of the first subtask until
        the stream has ended, and so have to fit its memory twice. In batch mode, Spark sorts what comes from Parquet
        files, in as many parts as there are subtasks, and keeps on disk what does not fit.

        Args:
            columns: names of the columns to sort by, the first one first: numbers, texts, bytes, booleans, times.
            descending: whether the largest value comes first; for all columns, or a value for each.

        Raises:
            GraphError: no column, one twice, one that is not there or has no order, or a source of the stream, which is
                named, has no end.

        Example:
            >>> flights.sort("carrier", "delay", descending=[False, True]).sink_to(sink)  # doctest: +SKIP
        """
        keys = sort_keys(columns, descending, self._schema)
        check_bounded(
            self._program,
            self._edges,
            "sort",
            "rows are in order",
            "window_all(...).process(...) to sort the rows of each window",
        )
        return self._partition(Global())._add(SortSpec(keys), self._schema, timed=False)

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
        from penstock.engine.api.connected import BroadcastConnectedStream, BroadcastStream, ConnectedStreams

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
        from penstock.engine.api.windowed import windowed

        return windowed(self, (), windows, "window_all")

    def count_window_all(self, size: int, slide: int | None = None) -> WindowedStream:
        """Divide all rows together into windows of so many rows; arguments as for `KeyedStream.count_window`."""
        from penstock.engine.api.windowed import count_windowed

        return count_windowed(self, (), size, slide, "count_window_all")

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
            raise GraphError(f"sink_to takes a Sink, not {sink!r}")
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
        return CollectResult(rows, self._program.submit_once)

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

    def _partition(self, partitioner: Partitioner) -> DataStream:
        edges = tuple(replace(edge, partitioner=partitioner) for edge in self._edges)
        return DataStream(self._program, edges, self._schema, self._timed, None)

    def _add_columns(self, step: Select | WithColumns, returns: Returns) -> DataStream:
        verb = describe((step,))
        declared = declared_schema(returns, verb)
        if not step.row_columns and declared is None:
            return self._add_steps((step,))
        spec = RowColumnsSpec(step, declared)
        return self._add(spec, spec.output_schema(self._schema, verb))

    def _add_steps(self, steps: tuple[Step, ...]) -> DataStream:
        spec = ExpressionSpec(steps)
        # bind() quotes the step itself.
        schema = None if self._schema is None else bind(steps, self._schema, spec.describe().partition("(")[0])
        return self._add(spec, schema)

    def _add(
        self,
        role: Role,
        schema: SchemaOrUnknown,
        timed: bool | None = None,
        sides: Mapping[str, SchemaOrUnknown] | None = None,
        name: str | None = None,
    ) -> DataStream:
        """The stream behind a new operator, which describes itself unless the verb has a better name for it."""
        self._program.check_open()
        chosen = self._timed if timed is None else timed
        node = self._program.graph.add(name or role.describe(), role, self._edges, schema, chosen, sides)
        return DataStream.of_node(self._program, node)
