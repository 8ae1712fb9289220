"""What a stream of rows is, a place in the job graph, and the verbs that add one operator to it.

Each verb returns a stream of the same class. Streams with keys, windows and partners are made in `streams.py`, which
stands above; their verbs, below it, know the streams that they are of by this class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import pyarrow as pa

from penstock.engine.api.checks import check_bounded, check_keys, sort_keys
from penstock.engine.api.program import Program
from penstock.engine.api.settings import OperatorSettings
from penstock.engine.compiled.functions import CompiledFunction
from penstock.engine.durations import Duration
from penstock.engine.errors import GraphError
from penstock.engine.exchange.partitioners import Forward, Global, Hash, Partitioner, Rebalance, Rescale
from penstock.engine.expressions import Expr, Filter, Select, Step, WithColumns, bind, describe, select, with_columns
from penstock.engine.functions import ProcessFunction
from penstock.engine.graph.logical import Edge, Node, Role
from penstock.engine.operators.base import SchemaOrUnknown
from penstock.engine.operators.expressions import ExpressionSpec
from penstock.engine.operators.rows import RowColumnsSpec, RowFilterSpec, RowFlatMapSpec, RowMapSpec
from penstock.engine.operators.spec import Resources
from penstock.engine.operators.timestamps import TimestampSpec, complete_strategy
from penstock.engine.rows import Returns, declared_schema
from penstock.engine.texts import columns_text
from penstock.engine.windows.watermarks import WatermarkStrategy

if TYPE_CHECKING:
    from penstock.engine.operators.async_function import AsyncRetry

Row: TypeAlias = dict[str, Any]
StreamT = TypeVar("StreamT", bound="Stream")
"""The class of the stream that a verb is called on."""


class Stream(OperatorSettings):
    """A place in the job graph, and what can be done with its rows alone; `DataStream` is the one that users have."""

    def __init__(
        self, program: Program, edges: tuple[Edge, ...], schema: SchemaOrUnknown, timed: bool, node: int | None
    ) -> None:
        self._program = program
        self._edges = edges
        self._schema = schema
        self._timed = timed
        self._node = node

    @classmethod
    def of_node(cls: type[StreamT], program: Program, node: Node) -> StreamT:
        """The stream behind a node."""
        return cls(program, (Edge(node.id),), node.schema, node.timed, node.id)

    def __repr__(self) -> str:
        return self._shown(type(self).__name__)

    def _shown(self, kind: str, divided: str = "") -> str:
        behind = " + ".join(self._program.graph[edge.source].name for edge in self._edges)
        columns = "columns not declared" if self._schema is None else columns_text(self._schema)
        return f"<{kind} behind {behind}{divided}: {columns}>"

    @property
    def schema(self) -> pa.Schema | None:
        """The columns, or None behind a Python function whose result was not declared by `returns=`."""
        return self._schema

    def filter(self: StreamT, *predicates: Any) -> StreamT:
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

    def select(self: StreamT, *columns: Any, returns: Returns = None, **named: Any) -> StreamT:
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

    def with_columns(self: StreamT, *columns: Any, returns: Returns = None, **named: Any) -> StreamT:
        """Add or replace columns; arguments as for `select`.

        Example:
            >>> stream.with_columns(late=col("delay") > 15, label=lambda row: row["a"] + row["b"])  # doctest: +SKIP
        """
        return self._add_columns(with_columns(*columns, **named), returns)

    def map(self: StreamT, function: Callable[[Row], Row], returns: Returns = None) -> StreamT:
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

    def flat_map(self: StreamT, function: Callable[[Row], Iterable[Row]], returns: Returns = None) -> StreamT:
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
        self: StreamT, function: Any, returns: Returns = None, num_cpus: float = 0.0, num_gpus: float = 0.0
    ) -> StreamT:
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
        from penstock.engine.operators.batches import BatchMapSpec

        wanted = Resources(num_cpus, num_gpus)
        schema = declared_schema(returns, "map_batches")
        resources = wanted if num_cpus or num_gpus else None
        return self._add(BatchMapSpec(function, schema, resources), schema)

    def process(self: StreamT, function: ProcessFunction | type[ProcessFunction], returns: Returns = None) -> StreamT:
        """Call a `ProcessFunction` with each row: any number of rows out, side outputs, state of the subtask.

        Args:
            function: an object, of which each subtask gets a copy, or the class.
            returns: the columns of the result, as for `map`.

        Raises:
            GraphError: another kind of function, or one that does not implement `process_element`.

        Example:
            >>> numbers.process(Split(), returns={"n": "int64"})  # doctest: +SKIP
        """
        from penstock.engine.operators.functions.process import ProcessSpec

        schema = declared_schema(returns, "process")
        return self._add(ProcessSpec(function, schema, self._timed), schema)

    def map_async(
        self: StreamT,
        function: Any,
        returns: Returns = None,
        timeout: Duration = "60s",
        capacity: int = 100,
        order: Literal["ordered", "unordered"] = "ordered",
        retry: AsyncRetry | None = None,
    ) -> StreamT:
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
        from penstock.engine.operators.async_function import AsyncFunctionSpec

        schema = declared_schema(returns, "map_async")
        return self._add(AsyncFunctionSpec(function, schema, timeout, capacity, order, retry), schema)

    def assign_timestamps(
        self: StreamT, column: str | WatermarkStrategy, strategy: WatermarkStrategy | None = None
    ) -> StreamT:
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

    def sort(self: StreamT, *columns: str, descending: bool | Sequence[bool] = False) -> StreamT:
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
        from penstock.engine.operators.sort import SortSpec

        keys = sort_keys(columns, descending, self._schema)
        check_bounded(
            self._program,
            self._edges,
            "sort",
            "rows are in order",
            "window_all(...).process(...) to sort the rows of each window",
        )
        return self._partition(Global())._add(SortSpec(keys), self._schema, timed=False)

    # Where its rows go next

    def rebalance(self: StreamT) -> StreamT:
        """Deal the rows out evenly to the subtasks of the next operator."""
        return self._partition(Rebalance())

    def rescale(self: StreamT) -> StreamT:
        """Deal the rows out evenly within groups of neighbouring subtasks."""
        return self._partition(Rescale())

    def forward(self: StreamT) -> StreamT:
        """Send subtask i's rows to subtask i of the next operator, which must have the same parallelism."""
        return self._partition(Forward())

    def global_(self: StreamT) -> StreamT:
        """Send all rows to the first subtask of the next operator."""
        return self._partition(Global())

    # What verbs are made of

    def _by_key(self: StreamT, columns: Sequence[str], verb: str = "key_by") -> StreamT:
        """The same rows, those with equal keys brought together."""
        check_keys(verb, columns, self._schema)
        return self._partition(Hash(tuple(columns)))

    def _partition(self: StreamT, partitioner: Partitioner) -> StreamT:
        edges = tuple(replace(edge, partitioner=partitioner) for edge in self._edges)
        return type(self)(self._program, edges, self._schema, self._timed, None)

    def _add_columns(self: StreamT, step: Select | WithColumns, returns: Returns) -> StreamT:
        verb = describe((step,))
        declared = declared_schema(returns, verb)
        if not step.row_columns and declared is None:
            return self._add_steps((step,))
        spec = RowColumnsSpec(step, declared)
        return self._add(spec, spec.output_schema(self._schema, verb))

    def _add_steps(self: StreamT, steps: tuple[Step, ...]) -> StreamT:
        spec = ExpressionSpec(steps)
        # bind() quotes the step itself.
        schema = None if self._schema is None else bind(steps, self._schema, spec.describe().partition("(")[0])
        return self._add(spec, schema)

    def _add(
        self: StreamT,
        role: Role,
        schema: SchemaOrUnknown,
        timed: bool | None = None,
        sides: Mapping[str, SchemaOrUnknown] | None = None,
        name: str | None = None,
    ) -> StreamT:
        """The stream behind a new operator, which describes itself unless the verb has a better name for it."""
        self._program.check_open()
        chosen = self._timed if timed is None else timed
        node = self._program.graph.add(name or role.describe(), role, self._edges, schema, chosen, sides)
        return self.of_node(self._program, node)
