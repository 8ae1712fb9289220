"""The nodes of the logical plan: immutable, each with the columns that it gives.

The binder makes them, rules rewrite them, `changelog.py` says what flows between them, and `lower/` makes operators.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, TypeAlias

from penstock.engine.operators.joins.lookup_join import LookupRetry
from penstock.tables.expressions import Expression
from penstock.tables.parse.statements import OnConflict
from penstock.tables.plan.row_references import RowMatch
from penstock.tables.types import SqlType


class TimeAttribute(enum.Enum):
    """Whether a column is the time by which a stream is processed."""

    ROWTIME = "rowtime"
    """Event time: the rows carry it as their timestamps, and watermarks are about it."""
    PROCTIME = "proctime"
    """The time of the clock when the row is looked at."""
    WINDOW_START = "window start"
    WINDOW_END = "window end"
    """The bounds of the window that the row is in."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a node's rows; names within a node differ."""

    name: str
    type: SqlType
    time: TimeAttribute | None = None


Columns: TypeAlias = tuple[Column, ...]


class Change(enum.Enum):
    """A kind of change, spelled as in Flink's options."""

    INSERT = "I"
    UPDATE_BEFORE = "UB"
    UPDATE_AFTER = "UA"
    DELETE = "D"


ChangelogMode: TypeAlias = frozenset[Change]
"""The kinds of changes that a node gives."""
INSERT_ONLY: Final = frozenset({Change.INSERT})
RETRACT: Final = frozenset(Change)
"""All kinds: each update says what was before."""
UPSERT: Final = frozenset({Change.INSERT, Change.UPDATE_AFTER, Change.DELETE})
"""Updates say only what is now; the row before is known by its key."""


@dataclass(frozen=True, slots=True)
class Scan:
    """The rows of the table `table` of the catalog, as its connector gives them.

    Args:
        mode: the kinds of changes that it gives.
        primary_key: places of columns; none without one.
        options: of the hint OPTIONS, over those of the table.
        normalized: whether updates by key get the rows before them.
        bounded: whether its rows end.
    """

    table: str
    columns: Columns
    mode: ChangelogMode = INSERT_ONLY
    primary_key: tuple[int, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    normalized: bool = True
    bounded: bool = True


@dataclass(frozen=True, slots=True)
class Values:
    """Rows that stand in the query: constants."""

    rows: tuple[tuple[Expression, ...], ...]
    columns: Columns


@dataclass(frozen=True, slots=True)
class Project:
    """Computes each column anew."""

    input: PlanNode
    expressions: tuple[Expression, ...]
    columns: Columns


@dataclass(frozen=True, slots=True)
class Filter:
    """Keeps the rows for which the condition is true."""

    input: PlanNode
    condition: Expression

    @property
    def columns(self) -> Columns:
        return self.input.columns


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Event time from column `column`.

    Args:
        watermark: the expression whose largest value so far is the watermark; None: the connector says it.
    """

    input: PlanNode
    column: int
    watermark: Expression | None
    columns: Columns


@dataclass(frozen=True, slots=True)
class EventTime:
    """The rows with the times of one of their columns as their event time, for what goes by that column.

    Args:
        column: of event time; the rows may go by the time of another one.
        delay_ms: how far behind the input's event time they may be, in milliseconds: watermarks are held back by it.
        drops_null: whether rows without that time are left out; else they keep the event time that they have.
    """

    input: PlanNode
    column: int
    delay_ms: int = 0
    drops_null: bool = False

    @property
    def columns(self) -> Columns:
        return self.input.columns


class WindowKind(enum.Enum):
    """How windows lie."""

    TUMBLE = "TUMBLE"
    HOP = "HOP"
    CUMULATE = "CUMULATE"
    SESSION = "SESSION"


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """Windows over time; all lengths in milliseconds.

    Args:
        size_ms: of a window; of SESSION the gap.
        step_ms: by which HOP slides and CUMULATE grows.
        offset_ms: by which all begin later than the epoch.
        time: event time or that of the clock.
        zone: the session's time zone, in which windows of TIMESTAMP_LTZ lie; None: UTC.
    """

    kind: WindowKind
    size_ms: int
    step_ms: int = 0
    offset_ms: int = 0
    time: TimeAttribute = TimeAttribute.ROWTIME
    zone: str | None = None

    def describe(self) -> str:
        """For EXPLAIN."""
        lengths = [f"{self.size_ms} ms", *([f"step {self.step_ms} ms"] if self.step_ms else [])]
        offset = [f"offset {self.offset_ms} ms"] if self.offset_ms else []
        return f"{self.kind.value}({', '.join([self.time.value, *lengths, *offset])})"


@dataclass(frozen=True, slots=True)
class WindowTable:
    """Each row once a window that it is in, with `window_start`, `window_end` and `window_time` behind its columns.

    Args:
        partition: the columns by which sessions are told apart.
        drops_late: whether rows come in no window that the watermark has passed, as what is behind waits for windows.
    """

    input: PlanNode
    window: WindowSpec
    time_column: int
    partition: tuple[int, ...]
    columns: Columns
    drops_late: bool = False


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate function over columns of the input.

    Args:
        name: in capitals; COUNT without arguments counts rows.
        arguments: places of columns.
        filter: the place of a boolean column; other rows do not count.
        type: of the result.
        shown: what messages call it.
    """

    name: str
    arguments: tuple[int, ...]
    type: SqlType
    distinct: bool = False
    filter: int | None = None
    constants: tuple[object, ...] = ()
    shown: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One row a group: the key columns, then the results.

    Args:
        ttl_ms: how long a group lives after its last change, by the clock; None: for ever.
        in_windows: whether the rows carry windows whose bounds are keys, so that results come when these are complete.
    """

    input: PlanNode
    keys: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    columns: Columns
    ttl_ms: int | None = None
    in_windows: bool = False


@dataclass(frozen=True, slots=True)
class WindowAggregate:
    """An `Aggregate` by windows, whose rows come when the window is complete.

    Args:
        window: over the event time, or the clock's, of the input's rows.
        keys: the other keys, places of columns of the input.
        results: what each column of the result is: `key 0`, `call 0`, `start`, `end` or `time`.
    """

    input: PlanNode
    window: WindowSpec
    keys: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    results: tuple[str, ...]
    columns: Columns


class JoinKind(enum.Enum):
    """Which rows a join gives."""

    INNER = "INNER"
    LEFT = "LEFT"
    RIGHT = "RIGHT"
    FULL = "FULL"
    SEMI = "SEMI"
    ANTI = "ANTI"
    NULL_AWARE_ANTI = "NULL-AWARE ANTI"
    """NOT IN: a null on either side says nothing of equality, so the row stays away."""


@dataclass(frozen=True, slots=True)
class Join:
    """Rows of both sides together, those of the left first; SEMI and ANTI give the left alone.

    Args:
        ttl_ms: how long rows of the left and of the right live, by the clock; None: as all state does.
        in_windows: whether both sides carry windows, and rows of one window meet, when it is complete.
    """

    kind: JoinKind
    left: PlanNode
    right: PlanNode
    condition: Expression | None
    columns: Columns
    ttl_ms: tuple[int | None, int | None] = (None, None)
    in_windows: bool = False


@dataclass(frozen=True, slots=True)
class IntervalJoin:
    """An equi-join of rows whose times are near: `left + lower <= right <= left + upper`, in milliseconds.

    Args:
        time: event time, or that of the clock.
        keys: pairs of columns, left and right.
        condition: what must hold besides; None for nothing.
    """

    kind: JoinKind
    left: PlanNode
    right: PlanNode
    keys: tuple[tuple[int, int], ...]
    lower_ms: int
    upper_ms: int
    condition: Expression | None
    columns: Columns
    time: TimeAttribute = TimeAttribute.ROWTIME


@dataclass(frozen=True, slots=True)
class TemporalJoin:
    """Each left row with the version of the right row that was valid at the left row's event time.

    Args:
        condition: over the columns of both sides; equalities of the right's key are among it.
        key: columns of the right that tell rows apart, of which versions are; none while that is not known.
    """

    kind: JoinKind
    left: PlanNode
    right: PlanNode
    condition: Expression
    columns: Columns
    key: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LookupJoin:
    """Each left row with what the table on the right holds for its key when the row comes.

    Args:
        table: of the catalog; `options` are those of the hint, over its own.
        physical: the columns that its connector gives.
        values: what the right side has in the result, over `physical`.
        condition: over the columns of the left, then `physical`.
        retry: of lookups that find nothing, by the hint.
    """

    kind: JoinKind
    left: PlanNode
    table: str
    options: tuple[tuple[str, str], ...]
    physical: Columns
    values: tuple[Expression, ...]
    condition: Expression
    columns: Columns
    retry: LookupRetry | None = None


@dataclass(frozen=True, slots=True)
class Union:
    """All rows of all inputs."""

    inputs_: tuple[PlanNode, ...]
    columns: Columns


@dataclass(frozen=True, slots=True)
class SetOperation:
    """INTERSECT and EXCEPT, by rows."""

    operator: str
    keep_all: bool
    left: PlanNode
    right: PlanNode
    columns: Columns


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column to order by."""

    column: int
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True)
class FrameSpec:
    """The rows around one over which an OVER aggregate runs; None for unbounded, 0 for the current row.

    Args:
        rows: counted in rows; else by the value of the ordered column (milliseconds of time).
    """

    rows: bool
    preceding: int | None
    following: int = 0


@dataclass(frozen=True, slots=True)
class OverAggregate:
    """Each row with aggregates over those before it; the results stand behind the input's columns."""

    input: PlanNode
    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    frame: FrameSpec
    calls: tuple[AggregateCall, ...]
    columns: Columns


@dataclass(frozen=True, slots=True)
class TopN:
    """The first rows of each partition, by an order, with their number behind their columns.

    Args:
        function: ROW_NUMBER, RANK or DENSE_RANK.
        first, last: the numbers that stay, from 1.
        in_windows: whether partitions are windows that the rows carry, so that results come when these are complete.
    """

    input: PlanNode
    function: str
    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    first: int
    last: int
    columns: Columns
    in_windows: bool = False


@dataclass(frozen=True, slots=True)
class Sort:
    """ORDER BY with LIMIT and OFFSET at the top of a query."""

    input: PlanNode
    order: tuple[SortKey, ...]
    limit: int | None
    offset: int

    @property
    def columns(self) -> Columns:
        return self.input.columns


@dataclass(frozen=True, slots=True)
class Unnest:
    """Each row once an element of a collection; the element's columns stand behind the row's.

    Args:
        collection: an expression of the row.
        outer: whether rows without elements stay, with nulls.
        ordinality: whether the element's number (from 1) is the last column.
    """

    input: PlanNode
    collection: Expression
    outer: bool
    ordinality: bool
    columns: Columns


@dataclass(frozen=True, slots=True)
class ToChangelog:
    """A changelog as plain rows: the operation's code in front of the others; operations without one are dropped."""

    input: PlanNode
    codes: Mapping[str, str]
    columns: Columns


@dataclass(frozen=True, slots=True)
class FromChangelog:
    """Plain rows as a changelog: column `op` says the operation; it is not among the results.

    Args:
        kinds: of changes, by what the column says.
        skips_unknown: whether rows with another operation are left out; else the job fails.
    """

    input: PlanNode
    op: int
    kinds: Mapping[str, str]
    columns: Columns
    skips_unknown: bool = False


@dataclass(frozen=True, slots=True)
class Normalize:
    """Updates by key, with the rows before them.

    Args:
        key: the columns that tell rows apart.
    """

    input: FromChangelog
    key: tuple[int, ...]

    @property
    def columns(self) -> Columns:
        return self.input.columns


@dataclass(frozen=True, slots=True)
class MatchRecognize:
    """The matches of a row pattern in each partition.

    Args:
        partition: places of columns of the input.
        time: event time or that of the clock, by which rows are in order.
        order: columns that order rows of one time.
        match: what is looked for, and what is made of it.
    """

    input: PlanNode
    partition: tuple[int, ...]
    time: TimeAttribute
    order: tuple[SortKey, ...]
    match: RowMatch
    columns: Columns


PlanNode: TypeAlias = (
    Scan
    | Values
    | Project
    | Filter
    | Watermarks
    | EventTime
    | WindowTable
    | Aggregate
    | WindowAggregate
    | Join
    | IntervalJoin
    | TemporalJoin
    | LookupJoin
    | Union
    | SetOperation
    | OverAggregate
    | TopN
    | Sort
    | Unnest
    | ToChangelog
    | FromChangelog
    | Normalize
    | MatchRecognize
)

_CHILD_NAMES: Final = ("input", "left", "right")


def inputs_of(node: PlanNode) -> tuple[PlanNode, ...]:
    """The nodes right below one."""
    if isinstance(node, Union):
        return node.inputs_
    names = [f.name for f in fields(node) if f.name in _CHILD_NAMES]
    return tuple(getattr(node, name) for name in names)


def with_inputs(node: PlanNode, inputs: Sequence[PlanNode]) -> PlanNode:
    """The node over other inputs with the same columns."""
    if isinstance(node, Union):
        return replace(node, inputs_=tuple(inputs))
    names = [f.name for f in fields(node) if f.name in _CHILD_NAMES]
    changes: dict[str, Any] = dict(zip(names, inputs, strict=True))
    return replace(node, **changes) if names else node


def walk_plan(node: PlanNode) -> Iterator[PlanNode]:
    """The node and all below it."""
    yield node
    for child in inputs_of(node):
        yield from walk_plan(child)


def unique_names(names: Sequence[str]) -> list[str]:
    """The names, with a number behind those that were there before.

    Example:
        >>> unique_names(["id", "name", "id"])
        ['id', 'name', 'id0']
    """
    taken: set[str] = set()
    result = []
    for name in names:
        chosen, number = name, 0
        while chosen in taken:
            chosen, number = f"{name}{number}", number + 1
        taken.add(chosen)
        result.append(chosen)
    return result


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """What an INSERT writes: rows with the columns of the sink, into the table `table`.

    Args:
        keys: the columns of which only one row with the same values counts; none: all rows count.
        on_conflict: which one: the last (DEDUPLICATE), the first (NOTHING), or the job fails (ERROR).
        overwrite: whether they take the place of the rows that the table has.
    """

    table: str
    input: PlanNode
    keys: tuple[str, ...] = ()
    on_conflict: OnConflict = "DEDUPLICATE"
    overwrite: bool = False
