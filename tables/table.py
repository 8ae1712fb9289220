"""Tables: what queries give, to be turned into streams, read, shown or explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.engine.api.sinks import StreamSink
from penstock.engine.api.streams import DataStream
from penstock.engine.errors import GraphError, SqlError
from penstock.engine.functions import OutputTag
from penstock.engine.job.handle import CollectResult
from penstock.tables.lower.changelogs import KINDS, ToChangelogSpec
from penstock.tables.parse.text import SqlText
from penstock.tables.plan.changelog import changelog_mode, shown_mode
from penstock.tables.plan.explain import explained
from penstock.tables.plan.nodes import INSERT_ONLY, ChangelogMode, Column, PlanNode
from penstock.tables.types import SqlType

if TYPE_CHECKING:
    from penstock.tables.environment import TableEnvironment

_CODES = dict(zip(KINDS, ("+I", "-U", "+U", "-D"), strict=True))
OP = "op"
"""The column of `to_changelog()` that says what a row means: +I, -U, +U or -D."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the query of a table stands in a text, for errors that are found when operators are made."""

    source: SqlText
    at: int


class Table:
    """The result of a query: rows that come, and, where results change, go again.

    Get one from `env.sql("SELECT ...")`. Nothing runs before the program is executed, or the table is read.

    Example:
        >>> from penstock import StreamEnvironment
        >>> env = StreamEnvironment(runtime="local")
        >>> list(env.sql("SELECT a + 1 AS b FROM (VALUES (1), (2)) AS t (a)").collect())
        [{'b': 2}, {'b': 3}]
    """

    def __init__(self, environment: TableEnvironment, plan: PlanNode, origin: Origin | None = None) -> None:
        self._environment = environment
        self._plan = plan
        self._origin = origin

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
        from penstock.tables.lower.lowering import schema_of
        from penstock.tables.types import STRING

        if any(column.name == OP for column in self._plan.columns):
            raise GraphError(f"to_changelog: the table has a column {OP!r} of its own; rename it with AS")
        schema = schema_of((Column(OP, STRING), *self._plan.columns))
        return self._lowered()._add(ToChangelogSpec(_CODES, schema), schema)

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
        """Bring the rows to the client, with their `op` where they change; as `DataStream.collect`."""
        return self.rows().collect()

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
