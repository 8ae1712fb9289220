"""Tables: what queries give, to be turned into streams, read, shown or explained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from penstock.engine.api.sinks import StreamSink
from penstock.engine.api.streams import DataStream
from penstock.engine.errors import ConfigurationError, GraphError, SqlError, nearest
from penstock.engine.functions import OutputTag
from penstock.engine.graph.logical import GraphBuilder
from penstock.engine.job.display import columns_html, columns_text
from penstock.engine.job.handle import CollectResult
from penstock.tables.catalog.catalog import quoted
from penstock.tables.functions.user import UserFunction
from penstock.tables.lower.changelogs import KINDS, ToChangelogSpec
from penstock.tables.parse.text import SqlText
from penstock.tables.plan.changelog import changelog_mode, shown_mode
from penstock.tables.plan.explain import explained
from penstock.tables.plan.nodes import INSERT_ONLY, ChangelogMode, Column, PlanNode
from penstock.tables.reading import Reading
from penstock.tables.types import SqlType

if TYPE_CHECKING:
    from penstock.engine.expressions import Expr

_CODES = dict(zip(KINDS, ("+I", "-U", "+U", "-D"), strict=True))
OP = "op"
"""The column of `to_changelog()` that says what a row means: +I, -U, +U or -D."""


_JOINS: Final = ("INNER", "LEFT", "RIGHT", "FULL")
_NAMING: Final = ("select", "add_columns")
"""The verbs whose expressions name columns."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the query of a table stands in a text, for errors that are found when operators are made."""

    source: SqlText
    at: int


class Tables(Protocol):
    """What a table asks of the environment that it belongs to; `TableEnvironment` is the one that answers."""

    @property
    def zone(self) -> str:
        """The session's time zone."""

    @property
    def graph(self) -> GraphBuilder:
        """The program that is being written."""

    def queried(
        self, query: str, tables: Mapping[str, PlanNode], functions: Mapping[str, UserFunction] | None = None
    ) -> Table:
        """The result of a query that may also name the tables `tables`, and call `functions` (names in capitals)."""

    def insert(self, name: str, plan: PlanNode) -> None:
        """Add a sink to the program: the rows of a plan go into the table `name`."""

    def lowered(self, node: PlanNode) -> DataStream:
        """The stream of a plan's rows."""


class Table:
    """The result of a query: rows that come, and, where results change, go again.

    Get one from `env.sql("SELECT ...")`. Nothing runs before the program is executed, or the table is read.

    Example:
        >>> from penstock import StreamEnvironment
        >>> env = StreamEnvironment(runtime="local")
        >>> list(env.sql("SELECT a + 1 AS b FROM (VALUES (1), (2)) AS t (a)").collect())
        [{'b': 2}, {'b': 3}]
    """

    def __init__(self, environment: Tables, plan: PlanNode, origin: Origin | None = None) -> None:
        self._environment = environment
        self._plan = plan
        self._origin = origin

    def __repr__(self) -> str:
        return f"<table ({columns_text(self.columns)}): {self._how_read}>"

    def _repr_html_(self) -> str:
        return columns_html(self.columns, [], self._how_read)

    @property
    def _how_read(self) -> str:
        changes = "rows only come" if self.changelog_mode == INSERT_ONLY else "rows change: each has an `op`"
        return f"{changes}; collect() gives them, print() prints them"

    @property
    def plan(self) -> PlanNode:
        """Its logical plan."""
        return self._plan

    @property
    def columns(self) -> dict[str, SqlType]:
        """The columns and their SQL types."""
        return {column.name: column.type for column in self._plan.columns}

    @property
    def changelog_mode(self) -> ChangelogMode:
        """The kinds of changes among its rows; `INSERT_ONLY` where rows only come."""
        return changelog_mode(self._plan)

    # Verbs

    def select(self, *items: str | Expr) -> Table:
        """The table with other columns.

        Args:
            items: SQL, such as `"price * 2 AS twice"`, `"*"`, or a call with OVER; or expressions as of streams, such
                as `(col("price") * 2).alias("twice")`.

        Raises:
            SqlError: an item does not fit; says where, in the query that the verb stands for.

        Example:
            >>> bids.where("price > 3").select("item", "price * 2 AS twice")  # doctest: +SKIP
        """
        return self._computed("select", items, "SELECT {} FROM this")

    def where(self, condition: str | Expr) -> Table:
        """The rows for which a condition is true: SQL, or an expression as of streams, such as `col("price") > 3`."""
        return self._computed("where", (condition,), "SELECT * FROM this WHERE {}")

    def distinct(self) -> Table:
        """The different rows."""
        return self._asked("SELECT DISTINCT * FROM this")

    def group_by(self, *keys: str | Expr) -> GroupedTable:
        """The rows by keys; `select` says what each group gives.

        Args:
            keys: columns, expressions of SQL, or `ROLLUP (a, b)`; or expressions as of streams, which `select` knows
                by their names, such as `(col("price") // 10).alias("tens")`.

        Raises:
            ConfigurationError: an expression has the name of a column of the table.
        """
        return GroupedTable(*self._with_keys(keys))

    def _with_keys(self, keys: Sequence[str | Expr]) -> tuple[Table, tuple[str, ...]]:
        """The table with the keys that are computed, and what all keys are in SQL."""
        texts = tuple(key for key in keys if isinstance(key, str))
        if len(texts) == len(keys):
            return self, texts
        from penstock.tables.column_expressions import written

        functions: dict[str, UserFunction] = {}
        found = written("group_by", keys, self.columns, functions)
        made = [(text, name) for text, name in found if name is not None and text != quoted(name)]
        for _, name in made:
            if name in self.columns:
                raise ConfigurationError(f"group_by: there is a column {name!r}; name the key with .alias(...)")
        items = ", ".join(["*", *(f"{text} AS {quoted(name)}" for text, name in made)])
        table = self._environment.queried(f"SELECT {items} FROM this", {"this": self._plan}, functions)
        return table, tuple(text if name is None else quoted(name) for text, name in found)

    def join(self, other: Table, on: str | Expr, how: str = "INNER") -> Table:
        """The rows of this table with those of another.

        Args:
            other: of the same environment.
            on: a condition over `this` and `other`, such as `"this.id = other.id"`; or an expression as of
                streams, such as `col("this.id") == col("other.id")`, in which a column that only one table has may
                stand without its table.
            how: INNER, LEFT, RIGHT or FULL.

        Raises:
            ConfigurationError: no such join.
        """
        kind = how.upper()
        if kind not in _JOINS:
            raise ConfigurationError(f"join: how={how!r} is no join; take {', '.join(_JOINS)}")
        functions: dict[str, UserFunction] = {}
        if not isinstance(on, str):
            from penstock.tables.column_expressions import join_condition

            on = join_condition(on, self.columns, other.columns, functions)
        return self._asked(f"SELECT * FROM this {kind} JOIN other ON {on}", other, functions)

    def union_all(self, other: Table) -> Table:
        """The rows of both tables; their columns go by their order."""
        return self._asked("SELECT * FROM this UNION ALL SELECT * FROM other", other)

    def union(self, other: Table) -> Table:
        """The different rows of both tables."""
        return self._asked("SELECT * FROM this UNION SELECT * FROM other", other)

    def intersect(self, other: Table) -> Table:
        """The different rows that both tables have."""
        return self._asked("SELECT * FROM this INTERSECT SELECT * FROM other", other)

    def minus(self, other: Table) -> Table:
        """The different rows that the other table does not have."""
        return self._asked("SELECT * FROM this EXCEPT SELECT * FROM other", other)

    def order_by(self, *items: str | Expr) -> Table:
        """The rows in order; what it takes is said of ORDER BY.

        Args:
            items: columns, with `DESC` or `NULLS LAST` behind them; or expressions as of streams, which ascend.
        """
        return self._computed("order_by", items, "SELECT * FROM this ORDER BY {}")

    def limit(self, count: int, offset: int = 0) -> Table:
        """So many rows, without the first `offset`."""
        return self._asked(f"SELECT * FROM this LIMIT {count} OFFSET {offset}")

    def first(self, count: int, *items: str | Expr) -> Table:
        """The first rows in an order, kept up to date.

        Args:
            count: how many.
            items: as of `order_by`.
        """
        return self._computed("first", items, f"SELECT * FROM this ORDER BY {{}} LIMIT {count}")

    def add_columns(self, *items: str | Expr) -> Table:
        """The table with further columns behind its own; items as of `select`."""
        return self._computed("add_columns", items, "SELECT *, {} FROM this")

    def drop_columns(self, *names: str) -> Table:
        """The table without some columns.

        Raises:
            ConfigurationError: it has no such column, or no other.
        """
        for name in names:
            if name not in self.columns:
                raise ConfigurationError(f"drop_columns: there is no column {name!r}{nearest(name, self.columns)}")
        kept = [quoted(name) for name in self.columns if name not in names]
        return self._asked(f"SELECT {_listed(kept, 'drop_columns')} FROM this")

    def sql(self, query: str) -> Table:
        """A query of SQL in which this table is `this`.

        Example:
            >>> bids.sql("SELECT item, COUNT(*) AS n FROM this GROUP BY item")  # doctest: +SKIP
        """
        return self._asked(query)

    def insert_into(self, name: str) -> None:
        """Add a sink to the program: the rows go into a table of the catalog, as INSERT INTO writes them."""
        self._environment.insert(name, self._plan)

    def _computed(self, verb: str, items: Sequence[str | Expr], query: str) -> Table:
        """A query with items in the place of `{}`, which are SQL or expressions as of streams."""
        texts = [item for item in items if isinstance(item, str)]
        if len(texts) == len(items):
            return self._asked(query.format(_listed(texts, verb)))
        from penstock.tables.column_expressions import written

        functions: dict[str, UserFunction] = {}
        found = written(verb, items, self.columns, functions)
        are_named = verb in _NAMING
        given = [f"{text} AS {quoted(name)}" if are_named and name is not None else text for text, name in found]
        return self._asked(query.format(", ".join(given)), functions=functions)

    def _asked(
        self, query: str, other: Table | None = None, functions: Mapping[str, UserFunction] | None = None
    ) -> Table:
        tables = {"this": self._plan}
        if other is not None:
            if other._environment is not self._environment:
                raise ConfigurationError("both tables must be of one environment")
            tables["other"] = other._plan
        return self._environment.queried(query, tables, functions)

    # Streams

    def to_stream(self) -> DataStream:
        """The rows as a stream with the table's columns.

        Raises:
            GraphError: rows are updated or deleted, too; `to_changelog()` gives these.
            SqlUnsupportedError: no operator computes a part of the query.
        """
        mode = self.changelog_mode
        if mode != INSERT_ONLY:
            raise GraphError(f"the rows of this table change ({shown_mode(mode)}); use to_changelog()")
        return self._lowered()

    def to_changelog(self) -> DataStream:
        """The changes as a stream: the column `op` (+I, -U, +U, -D), then the table's."""
        from penstock.tables.lower.base import in_order, schema_of
        from penstock.tables.types import STRING

        if any(column.name == OP for column in self._plan.columns):
            raise GraphError(f"to_changelog: the table has a column {OP!r} of its own; rename it with AS")
        schema = schema_of((Column(OP, STRING), *self._plan.columns))
        return in_order(self._lowered()._add(ToChangelogSpec(_CODES, schema), schema))

    def _lowered(self) -> DataStream:
        """The stream of the plan; what no operator computes is refused at the query's place."""
        try:
            return self._environment.lowered(self._plan)
        except SqlError:
            raise
        except GraphError as error:
            if self._origin is None:
                raise
            raise self._origin.source.unsupported(self._origin.at, str(error)) from error

    def rows(self) -> DataStream:
        """The stream that shows all there is: `to_stream()`, or `to_changelog()` where rows change."""
        return self.to_stream() if self.changelog_mode == INSERT_ONLY else self.to_changelog()

    def collect(self) -> CollectResult:
        """Bring the rows to the client, with their `op` where they change; as `DataStream.collect`.

        Where the program cannot start when they are read, the query is no part of it any more.
        """
        graph = self._environment.graph
        first = graph.next_id
        stream = self.rows()
        rows, program = stream.collect(), stream._program
        # A stream of a program that was cleared may have a name in SQL still.
        return CollectResult(rows._rows, Reading(program, first)) if program.graph is graph else rows

    def print(self, label: str = "") -> StreamSink:
        """Print each row on the client, with its `op` where rows change; as `DataStream.print`."""
        return self.rows().print(label)

    def match_patterns(
        self,
        patterns: DataStream,
        *,
        partition_by: Sequence[str],
        measures: Mapping[str, str],
        refused: OutputTag | None = None,
    ) -> DataStream:
        """Look for row patterns that come, change and go while the job runs.

        Args:
            patterns: a stream with event time, the columns `pattern` (a name) and `clause` (what stands in
                MATCH_RECOGNIZE, from MEASURES on; null removes the pattern). A change holds for rows of its time and
                later ones. A pattern that changes begins anew; others keep what they have under way.
            partition_by: the columns that divide rows.
            measures: what MEASURES of each pattern must give, with SQL types: `{"amount": "DOUBLE"}`.
            refused: the side output for patterns that cannot be read: `pattern`, `clause`, `problem`. What was looked
                for by that name stays. Without it such a pattern fails the job.

        Returns:
            A row for each match: `pattern`, the columns of `partition_by`, the measures; its timestamp is the match's.

        Raises:
            GraphError: a column that is not there, a stream without event time, or a table whose rows change.

        Example:
            >>> payments.match_patterns(rules, partition_by=["card"], measures={"n": "BIGINT"})  # doctest: +SKIP
        """
        from penstock.tables.lower.matching.lower import changing_patterns

        zone = self._environment.zone
        return changing_patterns(self.to_stream(), self._plan.columns, patterns, partition_by, measures, refused, zone)

    def explain(self) -> str:
        """The plan with the changes that flow and what bounds the state."""
        return explained(self._plan)


class Answer(Table):
    """What SHOW, DESCRIBE, EXPLAIN and SET give: `collect()` reads it beside the program, which does not run.

    Args:
        apart: begins a stream of its rows in a program of its own.
    """

    def __init__(self, environment: Tables, plan: PlanNode, apart: Callable[[], DataStream]) -> None:
        super().__init__(environment, plan)
        self._apart = apart

    def collect(self) -> CollectResult:
        """Bring the rows to the client."""
        return self._apart().collect()


@dataclass(frozen=True, slots=True)
class GroupedTable:
    """The rows of a table by keys; see `Table.group_by`."""

    table: Table
    keys: tuple[str, ...]

    def select(self, *items: str) -> Table:
        """A row for each group.

        Args:
            items: keys and aggregates in SQL.

        Example:
            >>> bids.group_by("item").select("item", "COUNT(*) AS n", "MAX(price) AS best")  # doctest: +SKIP
        """
        return self.table.sql(f"SELECT {_listed(items, 'select')} FROM this GROUP BY {_listed(self.keys, 'group_by')}")


def _listed(items: Sequence[str], verb: str) -> str:
    if not items:
        raise ConfigurationError(f"{verb}: name a column at least")
    return ", ".join(items)
