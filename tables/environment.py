"""The environment of tables: runs statements against a catalog, and gives `Table`s for queries.

`StreamEnvironment.sql` and `StreamEnvironment.tables` lead here; the command line runs scripts by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from penstock.engine.api.streams import DataStream
from penstock.engine.durations import parse_duration
from penstock.engine.errors import ConfigurationError, GraphError, PenstockError, SqlError, nearest
from penstock.engine.graph.logical import GraphBuilder
from penstock.tables.bind.inserts import bind_insert
from penstock.tables.bind.queries import QueryContext
from penstock.tables.bind.query_binder import bind_query
from penstock.tables.bind.session_calls import with_session_values
from penstock.tables.bind.user_calls import resolved
from penstock.tables.catalog.catalog import Catalog, PlannedTable, StreamTable
from penstock.tables.catalog.connectors import Connectors, TableConnector
from penstock.tables.definitions import Definitions
from penstock.tables.functions.user import UserFunction
from penstock.tables.ibis_queries import compiled, unbound_table
from penstock.tables.lower.base import FromSource, Lowering
from penstock.tables.lower.lowering import LOWERED
from penstock.tables.lower.shared import SharedParts
from penstock.tables.lower.sinks import write
from penstock.tables.lower.uids import Placed, StatementUids
from penstock.tables.parse import statements as s
from penstock.tables.parse import table_statements as d
from penstock.tables.parse.queries import Query
from penstock.tables.parse.statement_parser import TOO_DEEP, parse_name, parse_script, parse_statement
from penstock.tables.parse.text import SqlText
from penstock.tables.plan.changelog import changelog_mode
from penstock.tables.plan.explain import explained
from penstock.tables.plan.nodes import Column, PlanNode, Scan, SinkPlan, TimeAttribute
from penstock.tables.plan.rules.apply import rewritten_plan
from penstock.tables.session_options import JobOptions, SessionOptions
from penstock.tables.shows import Shows
from penstock.tables.table import Answer, Origin, Table
from penstock.tables.types import type_of_arrow
from penstock.tables.upgrade import SavedOperator, upgrade
from penstock.tables.user_functions import UserFunctions

if TYPE_CHECKING:
    import ibis

_Statement = TypeVar("_Statement", bound=s.Statement)


class TableEnvironment:
    """Tables, views and options, and the statements that use them.

    Args:
        from_source: begins a stream of the program; the name is for `explain()`.
        from_rows: begins a stream of rows that are here.
        apart: begins such a stream in a program of its own, with no settings of the session.
        connectors: what tables can be made of.
        job_options: the options of SET that are settings of jobs.
        graph: the program that is being written.
        saved_operators: those of the savepoint at a path.

    Example:
        >>> from penstock import StreamEnvironment
        >>> tables = StreamEnvironment(runtime="local").tables
        >>> tables.sql("CREATE VIEW v AS SELECT 1 AS one")
        >>> tables.sql("SELECT one + one AS two FROM v").columns
        {'two': SqlType(kind=<Kind.INT: 'INT'>, nullable=False, precision=0, scale=0, parts=(), fields=())}
    """

    def __init__(
        self,
        from_source: FromSource,
        from_rows: Callable[[pa.Table], DataStream],
        apart: Callable[[pa.Table], DataStream],
        connectors: Sequence[TableConnector],
        job_options: JobOptions,
        graph: Callable[[], GraphBuilder],
        saved_operators: Callable[[str], Sequence[SavedOperator]],
    ) -> None:
        self.catalog = Catalog()
        self.connectors = Connectors(connectors)
        self._from_source = from_source
        self._from_rows = from_rows
        self._apart = apart
        self._graph = graph
        self._saved_operators = saved_operators
        self._options = SessionOptions(job_options)
        self._functions = UserFunctions()
        self._stream_numbers = count()
        self._definitions = Definitions(self.catalog, self.connectors, self._functions, self._context)

    # Statements

    def sql(self, text: str) -> Table | None:
        """Run one statement: a query gives a `Table`, and so do SHOW, DESCRIBE, EXPLAIN and SET; others give None.

        INSERT INTO adds a sink to the program, which the environment's `execute()` runs.

        Raises:
            SqlError: the statement cannot be run; says where and why.
            GraphError: it is no text.
        """
        if not isinstance(text, str):
            raise GraphError(f"sql takes a statement as a text, such as 'SELECT * FROM t', not {text!r:.200}")
        return self.run(parse_statement(text), SqlText(text))

    def run(self, statement: s.Statement, source: SqlText) -> Table | None:
        """Run a parsed statement of a text; as `sql`."""
        try:
            return self._run(self._resolved(statement, source), source)
        except SqlError:
            raise
        except RecursionError:
            raise source.unsupported(statement.at, TOO_DEEP) from None
        except GraphError as error:
            # What is found while operators are made knows no place in the text.
            raise source.unsupported(statement.at, str(error)) from error

    def script(self, text: str) -> list[tuple[s.Statement, SqlText]]:
        """The statements of a script, to be given to `run` one after another.

        Raises:
            SqlError: the text is no SQL.
        """
        source = SqlText(text)
        return [(statement, source) for statement in parse_script(text)]

    def _run(self, statement: s.Statement, source: SqlText) -> Table | None:
        match statement:
            case Query():
                return Table(self, self.planned(statement, source), Origin(source, statement.at))
            case s.Insert():
                self._write([bind_insert(statement, self._context(source))])
            case s.StatementSet():
                self._write([bind_insert(insert, self._context(source)) for insert in statement.inserts])
            case d.CreateTable():
                if (plan := self._definitions.create_table(statement, source)) is not None:
                    self._fill(plan)
            case d.CreateView():
                self._definitions.create_view(statement, source)
            case s.CreateFunction():
                self._definitions.create_function(statement, source)
            case s.CreatePlace():
                self._definitions.create_place(statement, source)
            case d.Alter():
                self._definitions.alter(statement, source)
            case s.Drop():
                self._definitions.drop(statement, source)
            case s.Explain():
                if statement.savepoint is not None:
                    return self._table(self._upgrade(statement, *statement.savepoint, source))
                lines = self._explained(statement, source).splitlines()
                return self._table(pa.table({"plan": pa.array(lines, pa.string())}))
            case s.Show():
                return self._table(Shows(self._context(source), self._functions).show(statement))
            case s.Describe():
                return self._table(Shows(self._context(source), self._functions).describe(statement))
            case s.JobStatement():
                raise source.unsupported(
                    statement.at,
                    "statements about jobs are for `penstock sql`; a program has its job from env.submit()",
                )
            case s.Use():
                self._use(statement, source)
            case s.SetOption():
                return self._set(statement, source)
            case s.ResetOption():
                self._options.reset(statement, source)
        return None

    def _resolved(self, statement: _Statement, source: SqlText) -> _Statement:
        """The statement with what the functions of the user and the session's values are."""
        known = with_session_values(statement, self.catalog.current[1], source)
        return resolved(known, self._functions.named, source)

    # Tables by Python

    def create_temporary_view(self, name: str, rows: DataStream | Table, rowtime: str | None = None) -> None:
        """Give a stream, or a table of this environment, a name in SQL.

        Args:
            name: of the table.
            rows: whose columns become the table's.
            rowtime: of a stream, the column that its event timestamps were taken from; windows can then be over it.

        Raises:
            GraphError: the columns are not known, or of a type that SQL does not have; `rowtime` is none of them, or
                the stream has no timestamps.
            ConfigurationError: a statement has taken the name, or a stream that can still be read.
        """
        whole = self.catalog.entry_name(name)
        there = self.catalog.find(whole)
        # A cell of a notebook that is run again gives its names again.
        is_over = isinstance(there, PlannedTable) or (isinstance(there, StreamTable) and there.has_run)
        if there is not None and not is_over:
            raise ConfigurationError(f"there is a table {name!r} already; DROP it before")
        if isinstance(rows, Table):
            if rows._environment is not self:
                raise ConfigurationError(f"create_temporary_view: the table for {name!r} is of another environment")
            self.catalog.add(PlannedTable(whole, rows.plan), own=name)
        else:
            self.catalog.add(StreamTable(whole, rows, stream_columns(rows, rowtime)), own=name)

    def from_stream(self, stream: DataStream, rowtime: str | None = None) -> Table:
        """The stream as a table.

        Args:
            stream: its columns become the table's.
            rowtime: the column that its event timestamps were taken from; windows can then be over it.

        Raises:
            GraphError: the columns are not known, or `rowtime` is none of them, or the stream has no timestamps.
        """
        name = f"stream ${next(self._stream_numbers)}"
        columns = stream_columns(stream, rowtime)
        self.catalog.add(StreamTable(name, stream, columns, is_named=False))
        return Table(self, Scan(name, columns, bounded=stream.is_bounded))

    def ibis_table(self, name: str) -> ibis.Table:
        """A table or view of the catalog as a table of Ibis's (extra `ibis`), for expressions that `from_ibis` takes.

        Args:
            name: as in SQL; `from_ibis` looks it up again, in the database that is current then.

        Raises:
            SqlError: there is none by that name.
            GraphError: a column has a type that Ibis does not have.
            ConfigurationError: Ibis is not installed.
        """
        return unbound_table(parse_name(name), self.table(name).columns)

    def from_ibis(self, expression: ibis.Expr) -> Table:
        """The table of an expression of Ibis's (extra `ibis`), which is compiled to SQL.

        Args:
            expression: over tables of `ibis_table`, or others that have the names of tables here.

        Raises:
            GraphError: Ibis cannot say it in Flink's SQL.
            SqlError: it says what cannot be run; line and column are those of the SQL that Ibis wrote.
            ConfigurationError: Ibis is not installed, or this is no expression of its.

        Example:
            >>> from penstock import StreamEnvironment
            >>> tables = StreamEnvironment(runtime="local").tables
            >>> tables.sql("CREATE VIEW clicks AS SELECT * FROM (VALUES ('ann', 3), ('bob', 1)) AS t (name, n)")
            >>> clicks = tables.ibis_table("clicks")
            >>> list(tables.from_ibis(clicks.filter(clicks.n > 1).select("name")).to_stream().collect())
            [{'name': 'ann'}]
        """
        return self.queried(compiled(expression), {})

    def create_temporary_function(self, name: str, function: UserFunction) -> None:
        """Give a function of the user a name in SQL, in any letter case.

        Args:
            name: letters, digits and _; no function of SQL has it.
            function: made by `udf`, `arrow_udf`, `udtf` or `udaf`.

        Raises:
            ConfigurationError: the name is taken, or none.

        Example:
            >>> from penstock import StreamEnvironment, udf
            >>> env = StreamEnvironment(runtime="local")
            >>> env.tables.create_temporary_function("half", udf(lambda n: n / 2, returns="DOUBLE"))
            >>> list(env.sql("SELECT half(3) AS n").collect())
            [{'n': 1.5}]
        """
        if not isinstance(function, UserFunction):
            raise ConfigurationError(f"create_temporary_function takes udf(...) and its like, not {function!r}")
        self._functions.add(name, function)

    def drop_temporary_function(self, name: str) -> bool:
        """Forget a function of the user; whether there was one. Views keep those that they were made with."""
        return self._functions.remove(name)

    def register_connector(self, connector: TableConnector) -> None:
        """Add a kind of table: what CREATE TABLE may name as its `connector`."""
        self.connectors.register(connector)

    @property
    def graph(self) -> GraphBuilder:
        """The program that is being written."""
        return self._graph()

    @property
    def zone(self) -> str:
        """The session's time zone."""
        return self.option("table.local-time-zone")

    def option(self, key: str) -> str:
        """The value of an option of SET."""
        return self._options.value(key)

    def table(self, name: str) -> Table:
        """A table or view of the catalog.

        Raises:
            SqlError: there is none by that name.
        """
        return self.queried(f"SELECT * FROM {name}", {})

    def queried(
        self, query: str, tables: Mapping[str, PlanNode], functions: Mapping[str, UserFunction] | None = None
    ) -> Table:
        """The result of a query that may also name the tables `tables`, and call `functions` (names in capitals).

        Raises:
            SqlError: it cannot be run; or it is no query.
        """
        source = SqlText(query)
        statement = parse_statement(query)
        if not isinstance(statement, Query):
            raise source.invalid(statement.at, "a query is wanted here; run other statements by sql()")
        context = replace(self._context(source), common=tables)
        known = resolved(self._resolved(statement, source), functions or {}, source)
        node = rewritten_plan(bind_query(known, context))
        changelog_mode(node)
        return Table(self, node, Origin(source, statement.at))

    def insert(self, name: str, plan: PlanNode) -> None:
        """Add a sink to the program: the rows of a plan go into the table `name`."""
        text = f"INSERT INTO {name} SELECT * FROM this"
        source, statement = SqlText(text), parse_statement(text)
        assert isinstance(statement, s.Insert), "it is one"
        self._write([bind_insert(statement, replace(self._context(source), common={"this": plan}))])

    # Plans

    def planned(self, query: Query, source: SqlText) -> PlanNode:
        """The logical plan of a query, after all rules; checked."""
        node = rewritten_plan(bind_query(query, self._context(source)))
        changelog_mode(node)
        return node

    def lowered(self, node: PlanNode) -> DataStream:
        """The stream of a plan's rows."""
        return self._lowering(node, StatementUids(self.graph)).stream(node)

    def _lowering(self, plan: PlanNode, uids: StatementUids) -> Lowering:
        ttl_ms, idle_ms = map(self._milliseconds, ("table.exec.state.ttl", "table.exec.source.idle-timeout"))
        shared = SharedParts(plan) if self.option("table.optimizer.reuse-sub-plan-enabled") == "true" else None
        return Lowering(
            LOWERED,
            self._from_source,
            self._from_rows,
            self.catalog,
            self.connectors,
            self.zone,
            uids,
            shared,
            ttl_ms,
            idle_ms,
        )

    def _milliseconds(self, option: str) -> int | None:
        return parse_duration(self.option(option), option) or None

    def _context(self, source: SqlText) -> QueryContext:
        return QueryContext(source, self.catalog, self.connectors, self._options.values())

    def _write(self, plans: Sequence[SinkPlan]) -> list[Placed]:
        """Add all sinks to the program, or nothing: what a statement that fails had added would keep its uids."""
        graph, placed = self.graph, []
        first = graph.next_id
        try:
            for plan in plans:
                lowering = self._lowering(plan.input, StatementUids(graph, plan.table))
                write(lowering, plan, self.option)
                placed += lowering.uids.placed
        except Exception:
            graph.forget(first)
            raise
        return placed

    def _fill(self, plan: SinkPlan) -> None:
        """Write into a table that was made for it, and is not there where that cannot be done."""
        try:
            self._write([plan])
        except Exception:
            self.catalog.remove(plan.table)
            raise

    def _explained(self, statement: s.Explain, source: SqlText) -> str:
        inner = statement.statement
        if isinstance(inner, Query):
            return explained(self.planned(inner, source))
        inserts = inner.inserts if isinstance(inner, s.StatementSet) else (inner,)
        plans = [bind_insert(insert, self._context(source)) for insert in inserts]
        return "\n".join(f"Sink({plan.table})\n{explained(plan.input)}" for plan in plans)

    def _upgrade(self, statement: s.Explain, path: str, at: int, source: SqlText) -> pa.Table:
        """What becomes of a savepoint's state; the program stays as it is."""
        try:
            saved = self._saved_operators(path)
        except PenstockError as error:
            raise source.invalid(at, str(error)) from error
        graph, inner = self.graph, statement.statement
        first = graph.next_id
        try:
            if isinstance(inner, Query):
                uids = StatementUids(graph)
                node = self.planned(inner, source)
                self._lowering(node, uids).stream(node)
                placed = uids.placed
            else:
                inserts = inner.inserts if isinstance(inner, s.StatementSet) else (inner,)
                placed = self._write([bind_insert(insert, self._context(source)) for insert in inserts])
        finally:
            graph.forget(first)
        return upgrade(placed, saved)

    @property
    def has_inserts(self) -> bool:
        """Whether the program has something to write, so that there is a job to run."""
        return any(node.is_end for node in self.graph.build())

    # USE and SET

    def _use(self, statement: s.Use, source: SqlText) -> None:
        name = statement.name
        if statement.kind == "DATABASE":
            self.catalog.use(*self.catalog.find_place(name, source))
        elif name.text not in (known := self.catalog.catalogs()):
            hint = nearest(name.text, known)
            raise source.invalid(name.at, f"there is no catalog {name.text!r}{hint}; there are {', '.join(known)}")
        else:
            self.catalog.use(name.text)

    def _set(self, statement: s.SetOption, source: SqlText) -> Table | None:
        if statement.key is None or statement.value is None:
            return self._table(self._options.shown(statement, source))
        self._options.set(statement.key, statement.value, statement.at, source)
        return None

    def _table(self, rows: pa.Table) -> Table:
        return Answer(self, self.from_stream(self._from_rows(rows)).plan, lambda: self._apart(rows))


def stream_columns(stream: DataStream, rowtime: str | None) -> tuple[Column, ...]:
    """The columns of a stream as those of a table.

    Raises:
        GraphError: they are not known, or of a type that SQL does not have; `rowtime` is none of them, or no time.
    """
    if rowtime is not None and not stream._timed:
        raise GraphError(f"rowtime: call assign_timestamps({rowtime!r}, ...) before; the stream has no event time")
    if stream.schema is None:
        raise GraphError("the columns of the stream are not known; declare them with returns={...} behind the function")
    columns = []
    for field in stream.schema:
        kind = type_of_arrow(field.type)
        if kind is None:
            raise GraphError(f"column {field.name!r} is {field.type}, which SQL does not have; cast it before")
        time = TimeAttribute.ROWTIME if field.name == rowtime else None
        columns.append(Column(field.name, kind, time))
    if rowtime is not None and not any(column.time is not None for column in columns):
        raise GraphError(f"rowtime: no column {rowtime!r}{nearest(rowtime, stream.schema.names)}")
    return tuple(columns)
