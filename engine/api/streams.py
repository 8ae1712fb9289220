"""The streams that a program is written with.

A stream is a place in the job graph. Each verb checks its arguments against the columns, where they are known, adds one
operator, and returns the stream behind it; nothing runs before the environment executes the program.

Streams with keys, windows and partners have modules of their own beside this one. Their verbs return to a `DataStream`,
so the verbs here that lead there import them when they are called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from penstock.engine.api.program import Program
from penstock.engine.api.texts import function_name
from penstock.engine.config import LARGEST_MAX_PARALLELISM, check_parallelism
from penstock.engine.connectors import Sink
from penstock.engine.elements import Batch
from penstock.engine.errors import ConfigurationError, GraphError
from penstock.engine.expressions import Expr, Filter, Select, Step, WithColumns, bind, describe, select, with_columns
from penstock.engine.functions import OutputTag
from penstock.engine.graph.logical import Chaining, Edge, Node, Resources, Results, Role
from penstock.engine.job import CollectedRows, CollectResult
from penstock.engine.operators.base import SchemaOrUnknown
from penstock.engine.operators.batches import BatchMapFactory
from penstock.engine.operators.expressions import ExpressionFactory
from penstock.engine.operators.rows import RowColumnsFactory, RowFilterFactory, RowFlatMapFactory, RowMapFactory
from penstock.engine.operators.sink import SinkFactory
from penstock.engine.operators.timestamps import TimestampFactory
from penstock.engine.rows import Returns, declared_schema, row_texts
from penstock.engine.state.key_groups import check_key_column
from penstock.engine.task.partitioners import Broadcast, Forward, Global, Hash, Partitioner, Rebalance, Rescale
from penstock.engine.task.schema_guard import SchemaGuard
from penstock.engine.windows.watermarks import WatermarkStrategy

if TYPE_CHECKING:
    from penstock.engine.api.keyed import KeyedStream

Row: TypeAlias = dict[str, Any]


class _OperatorSettings:
    """The verbs that set something about the operator just added, shared by streams and sinks."""

    _program: Program
    _node: int | None

    def _own_node(self, verb: str) -> int:
        self._program.check_open()
        if self._node is None:
            raise GraphError(f"{verb}() sets something of an operator; call it right behind the verb that adds one")
        return self._node

    def _set_name(self, name: str) -> None:
        self._program.graph.name(self._own_node("name"), name)

    def _set_uid(self, uid: str) -> None:
        if not uid:
            raise ConfigurationError("uid must not be empty")
        self._program.graph.uid(self._own_node("uid"), uid)

    def _set_parallelism(self, parallelism: int) -> None:
        node = self._own_node("set_parallelism")
        where = self._program.graph[node].where
        if isinstance(self._program.graph[node].role, Results):
            raise GraphError(f"{where}: rows for the client are read by one process; set the parallelism before it")
        check_parallelism(parallelism, LARGEST_MAX_PARALLELISM, where)
        self._program.graph.parallelism(node, parallelism)


class StreamSink(_OperatorSettings):
    """The end of a stream: a sink operator, to be named or given a parallelism."""

    def __init__(self, program: Program, node: int) -> None:
        self._program = program
        self._node = node

    def name(self, name: str) -> StreamSink:
        """Give the sink a name, for `explain()`, the live view and messages."""
        self._set_name(name)
        return self

    def uid(self, uid: str) -> StreamSink:
        """Give the sink an id that stays the same when the program changes."""
        self._set_uid(uid)
        return self

    def set_parallelism(self, parallelism: int) -> StreamSink:
        """Run the sink with this many subtasks.

        Raises:
            ConfigurationError: not a whole number of 1 or more.
        """
        self._set_parallelism(parallelism)
        return self


class DataStream(_OperatorSettings):
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

    # Row-wise verbs

    def filter(self, *predicates: Any) -> DataStream:
        """Keep the rows for which every predicate is true.

        Args:
            predicates: expressions such as `col("x") > 3`, or one Python function of a row (a dict).

        Raises:
            GraphError: a predicate is no row-wise boolean expression, or names a column that is not there.

        Example:
            >>> stream.filter(col("delay").is_not_null(), col("delay") > 15)  # doctest: +SKIP
        """
        if not predicates:
            raise GraphError("filter: give at least one predicate")
        if len(predicates) == 1 and not isinstance(predicates[0], Expr) and callable(predicates[0]):
            function = predicates[0]
            return self._add(f"filter({function_name(function)})", RowFilterFactory(function), self._schema)
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
            function: takes and returns a dict.
            returns: the columns of the result, as a `pa.Schema` or `{"name": "int64"}`. Without it, each column takes
                the type of its first value and keeps it, and later verbs cannot check column names in advance.

        Raises:
            GraphError: `function` cannot be called.
            ConfigurationError: `returns` declares no columns.

        Example:
            >>> stream.map(lambda row: {"word": row["word"].lower()}, returns={"word": "string"})  # doctest: +SKIP
        """
        schema = declared_schema(returns, "map")
        return self._add(f"map({function_name(function)})", RowMapFactory(function, schema), schema)

    def flat_map(self, function: Callable[[Row], Iterable[Row]], returns: Returns = None) -> DataStream:
        """Turn each row (a dict) into any number of rows; arguments as for `map`.

        Example:
            >>> lines.flat_map(lambda row: ({"word": w} for w in row["line"].split()))  # doctest: +SKIP
        """
        schema = declared_schema(returns, "flat_map")
        return self._add(f"flat_map({function_name(function)})", RowFlatMapFactory(function, schema), schema)

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
        _check_amount("num_cpus", num_cpus)
        _check_amount("num_gpus", num_gpus)
        schema = declared_schema(returns, "map_batches")
        resources = Resources(num_cpus, num_gpus) if num_cpus or num_gpus else None
        name = f"map_batches({function_name(function)})"
        return self._add(name, BatchMapFactory(function, schema), schema, resources=resources)

    def assign_timestamps(self, column: str, strategy: WatermarkStrategy | None = None) -> DataStream:
        """Take event time from a column, and emit watermarks.

        Args:
            column: a timestamp (without a zone: UTC), a date, or an integer of milliseconds since the epoch; no nulls.
            strategy: how far rows may be out of order; by default not at all within one subtask.

        Raises:
            GraphError: there is no such column, it holds no time, or `strategy` is none.

        Example:
            >>> stream.assign_timestamps("at", WatermarkStrategy.for_bounded_out_of_orderness("5s"))  # doctest: +SKIP
        """
        if not isinstance(column, str):
            raise GraphError(
                f"assign_timestamps takes the name of a column, not {column!r}; "
                "compute the column with with_columns(at=...) first"
            )
        if strategy is not None and not isinstance(strategy, WatermarkStrategy):
            raise GraphError(
                f"assign_timestamps: {strategy!r} is no WatermarkStrategy; for rows out of order, give "
                'WatermarkStrategy.for_bounded_out_of_orderness("5s")'
            )
        chosen = strategy or WatermarkStrategy.for_monotonous_timestamps()
        factory = TimestampFactory(column, chosen)
        factory.bind(self._schema, "assign_timestamps")
        return self._add(f"assign_timestamps({column}, {chosen.describe()})", factory, self._schema, timed=True)

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
                    f"union: the columns differ: ({_columns(schema)}) and ({_columns(other._schema)}); "
                    "make them equal with select"
                )
        edges = tuple(edge for stream in streams for edge in stream._edges)
        return DataStream(self._program, edges, schema, self._timed, None)

    def get_side_output(self, tag: OutputTag) -> DataStream:
        """The rows that the operator just added emits to a side output.

        Args:
            tag: the same name as that given to `ctx.output(tag, row)`, or to `side_output_late_data(tag)`.

        Raises:
            GraphError: `tag` is no OutputTag, or no operator was just added.

        Example:
            >>> late = counts.get_side_output(LATE)  # doctest: +SKIP
        """
        if not isinstance(tag, OutputTag):
            raise GraphError(f"get_side_output takes an OutputTag, not {tag!r}")
        node = self._own_node("get_side_output")
        schema = self._program.graph[node].sides.get(tag.name, tag.schema)
        return DataStream(self._program, (Edge(node, tag=tag.name),), schema, self._timed, None)

    # Partitioning

    def key_by(self, *columns: str) -> KeyedStream:
        """Bring rows with equal keys together: everything behind is computed per key.

        Args:
            columns: names of the key columns; whole numbers, text, booleans, times or decimals, without nulls.

        Raises:
            GraphError: no such column, or a key of floating or nested type.

        Example:
            >>> stream.key_by("carrier").aggregate(n=count())  # doctest: +SKIP
        """
        if not columns:
            raise GraphError("key_by: give at least one column")
        for column in columns:
            if not isinstance(column, str):
                raise GraphError(
                    f"key_by takes column names, not {column!r}; compute the key with with_columns(key=...) first"
                )
            if self._schema is not None:
                check_key_column(self._schema, column, "key_by")
        if len(set(columns)) < len(columns):
            raise GraphError(f"key_by: a column is given twice: {', '.join(columns)}")
        from penstock.engine.api.keyed import KeyedStream

        return KeyedStream(self._partition(Hash(columns)), columns)

    def rebalance(self) -> DataStream:
        """Deal the rows out evenly to the subtasks of the next operator."""
        return self._partition(Rebalance())

    def rescale(self) -> DataStream:
        """Deal the rows out evenly within groups of neighbouring subtasks."""
        return self._partition(Rescale())

    def broadcast(self) -> DataStream:
        """Send every row to every subtask of the next operator."""
        return self._partition(Broadcast())

    def forward(self) -> DataStream:
        """Send subtask i's rows to subtask i of the next operator, which must have the same parallelism."""
        return self._partition(Forward())

    def global_(self) -> DataStream:
        """Send all rows to the first subtask of the next operator."""
        return self._partition(Global())

    # Sinks

    def sink_to(self, sink: Sink) -> StreamSink:
        """End the stream in a sink."""
        if not isinstance(sink, Sink):
            raise GraphError(f"sink_to takes a Sink, not {sink!r}")
        return StreamSink(self._program, self._add(sink.describe(), SinkFactory(sink), None)._edges[0].source)

    def print(self, label: str = "") -> StreamSink:
        """Print each row on the client, behind the label if there is one."""
        node = self._add("print", Results(), self._schema)._edges[0].source
        self._program.consumers[node] = _Printer(f"{label}> " if label else "")
        return StreamSink(self._program, node)

    def collect(self) -> CollectResult:
        """Bring the rows to the client: iterate the result, or call `to_arrow()` or `to_pandas()` on it."""
        node = self._add("collect", Results(), self._schema)._edges[0].source
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
        factory = RowColumnsFactory(step, declared)
        return self._add(verb, factory, factory.output_schema(self._schema, verb))

    def _add_steps(self, steps: tuple[Step, ...]) -> DataStream:
        name = describe(steps)
        # bind() quotes the step itself.
        schema = None if self._schema is None else bind(steps, self._schema, name.partition("(")[0])
        return self._add(name, ExpressionFactory(steps), schema)

    def _add(
        self,
        name: str,
        role: Role,
        schema: SchemaOrUnknown,
        timed: bool | None = None,
        resources: Resources | None = None,
        sides: Mapping[str, SchemaOrUnknown] | None = None,
    ) -> DataStream:
        self._program.check_open()
        chosen = self._timed if timed is None else timed
        node = self._program.graph.add(name, role, self._edges, schema, chosen, resources, sides)
        return DataStream.of_node(self._program, node)


class _Printer:
    """Prints rows on the client."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._guard = SchemaGuard("print()")

    def accept(self, batch: Batch) -> None:
        self._guard.check(batch)
        for row in row_texts(batch.data):
            print(f"{self._prefix}{row}")  # noqa: T201 - this is what print() is for


def _check_amount(option: str, value: float) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise ConfigurationError(f"map_batches: {option} must be a number of 0 or more, not {value!r}")


def _columns(schema: pa.Schema | None) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema or ())
