"""What flows out of each node of a plan: the kinds of changes, which columns tell rows apart, and what state stays.

EXPLAIN shows it, `to_stream` and sinks ask for it, and operators that cannot take changes back refuse them here.
"""

from __future__ import annotations

from penstock.engine.changelog import ChangelogMode as EngineMode
from penstock.engine.errors import GraphError
from penstock.tables.expressions import Expression, FunctionCall, UserCall, columns_in, walk
from penstock.tables.plan import nodes as p
from penstock.tables.plan.expression_traits import is_deterministic
from penstock.tables.plan.nodes import INSERT_ONLY, RETRACT, Change, ChangelogMode, PlanNode, inputs_of
from penstock.tables.plan.time_columns import goes_by_time, time_by

_NEEDS_INSERTS = (p.WindowAggregate, p.IntervalJoin, p.MatchRecognize)
_SESSION = p.WindowKind.SESSION
_STATELESS = (p.Project, p.Filter, p.Watermarks, p.EventTime, p.WindowTable, p.Unnest)


def changelog_mode(node: PlanNode) -> ChangelogMode:
    """The kinds of changes that a node gives.

    Raises:
        GraphError: an operator gets changes that it cannot take.

    Example:
        >>> changelog_mode(p.Values((), ())) == INSERT_ONLY
        True
    """
    given = [changelog_mode(child) for child in inputs_of(node)]
    if isinstance(node, _NEEDS_INSERTS) and any(mode != INSERT_ONLY for mode in given):
        raise GraphError(
            f"{_shown(node)} takes rows that are only inserted, and gets updates or deletes from below it; aggregate "
            "without windows, or read the changes by TO_CHANGELOG"
        )
    if isinstance(node, p.FromChangelog) and given[0] != INSERT_ONLY:
        raise GraphError(
            "FROM_CHANGELOG takes rows that are only inserted, each of which says what it does, and gets updates or "
            "deletes from below it; leave it out"
        )
    if isinstance(node, p.TemporalJoin) and given[0] != INSERT_ONLY:
        raise GraphError("a temporal join takes rows on its left that are only inserted, and gets updates or deletes")
    if any(mode != INSERT_ONLY for mode in given):
        _check_repeatable(node)
    if isinstance(node, p.Filter) and isinstance(node.input, p.Join):
        check_clock(node.condition, node.columns)
    match node:
        case p.Scan():
            if engine_mode(node.mode) is not EngineMode.UPSERT or not node.normalized:
                return node.mode
            if not node.primary_key:
                raise GraphError(f"table {node.table!r} gives updates by key and has no PRIMARY KEY; declare it")
            # Normalized where it is read.
            return RETRACT
        case p.Values() | p.ToChangelog():
            return INSERT_ONLY
        case p.FromChangelog():
            return frozenset(Change[kind] for kind in node.kinds.values())
        case p.Union():
            return frozenset().union(*given)
        case p.Sort():
            if given[0] != INSERT_ONLY:
                raise GraphError(
                    "ORDER BY takes rows that are only inserted, and gets updates or deletes from below it; add LIMIT, "
                    "so that the first rows are kept up to date"
                )
            return INSERT_ONLY
        case p.Aggregate() | p.Join() | p.TopN() if node.in_windows:
            return INSERT_ONLY
        case p.TemporalJoin():
            return INSERT_ONLY
        case p.LookupJoin():
            return given[0]
        case p.OverAggregate():
            return RETRACT if over_time(node) is None else INSERT_ONLY
        case p.TopN():
            return RETRACT if first_time(node) is None else INSERT_ONLY
        case p.Join():
            plain = node.kind in (p.JoinKind.INNER, p.JoinKind.SEMI) and given == [INSERT_ONLY, INSERT_ONLY]
            return INSERT_ONLY if plain else RETRACT
    if isinstance(node, (*_NEEDS_INSERTS, *_STATELESS)):
        return given[0]
    return RETRACT


def may_split_updates(node: PlanNode) -> bool:
    """Whether a row before an update may come without the one that it is now, or with a row of another key.

    A condition may be true of one of them alone; first rows are updated by their rank, which has another row then.
    """
    if isinstance(node, p.Filter | p.Unnest | p.WindowTable | p.LookupJoin | p.TopN):
        return True
    return isinstance(node, p.Project | p.Watermarks | p.EventTime | p.Union) and any(
        map(may_split_updates, inputs_of(node))
    )


def over_time(node: p.OverAggregate) -> p.TimeAttribute | None:
    """By which time OVER goes where each row gets its results once; None where they change with other rows.

    Raises:
        GraphError: rows that change are ordered by the time of the clock.
    """
    key = node.order[0] if len(node.order) == 1 else None
    time = None if key is None else time_by(node.input, key.column)
    if time is None:
        return None
    if key is not None and not key.descending and changelog_mode(node.input) == INSERT_ONLY:
        return time
    if time is p.TimeAttribute.PROCTIME:
        raise GraphError("OVER in the order of PROCTIME takes rows that are only inserted, in ascending order")
    return None


def first_time(node: p.TopN) -> p.TimeAttribute | None:
    """By which time the first row of each partition comes once; None where first rows change with others.

    Of rows that are only inserted, none that comes later is before the first one by ascending time.

    Source: Flink's documentation, "Deduplication", and its `RankUtil.canConvertToDeduplicate`.
    """
    key = node.order[0] if len(node.order) == 1 else None
    if key is None or key.descending or node.function != "ROW_NUMBER" or node.last != 1 or node.in_windows:
        return None
    return time_by(node.input, key.column) if changelog_mode(node.input) == INSERT_ONLY else None


def check_clock(condition: Expression, columns: p.Columns) -> None:
    """A column of PROCTIME is the time when a row is looked at, so a comparison of two of them says nothing of rows.

    Raises:
        GraphError: the condition of a join reads one.
    """
    if any(columns[place].time is p.TimeAttribute.PROCTIME for place in columns_in(condition)):
        raise GraphError("a join by columns of PROCTIME is not supported; join by event time")


def _check_repeatable(node: PlanNode) -> None:
    """A row that is taken back must be computed as it was when it came."""
    for part in (part for expression in _computed_by(node) for part in walk(expression)):
        if isinstance(part, FunctionCall | UserCall) and not is_deterministic(part):
            raise GraphError(
                f"{part.name} gives another value when a row is taken back, and rows change here; compute it "
                "where rows are only inserted"
            )


def _computed_by(node: PlanNode) -> tuple[Expression, ...]:
    """What a node computes of rows that may be taken back."""
    match node:
        case p.Project():
            return node.expressions
        case p.Unnest():
            return (node.collection,)
        case p.Filter() | p.Join() if node.condition is not None:
            return (node.condition,)
    return ()


def _shown(node: PlanNode) -> str:
    return {
        p.WindowAggregate: "an aggregation by windows",
        p.IntervalJoin: "a join within an interval",
        p.MatchRecognize: "MATCH_RECOGNIZE",
    }[type(node)]


def shown_mode(mode: ChangelogMode) -> str:
    """The mode as Flink's EXPLAIN writes it.

    Example:
        >>> shown_mode(RETRACT)
        '[I,UB,UA,D]'
    """
    return f"[{','.join(change.value for change in Change if change in mode)}]"


def engine_mode(mode: ChangelogMode) -> EngineMode:
    """The mode as the engine's operators have it."""
    if mode == INSERT_ONLY:
        return EngineMode.APPEND
    upserts = Change.UPDATE_AFTER in mode and Change.UPDATE_BEFORE not in mode
    return EngineMode.UPSERT if upserts else EngineMode.RETRACT


def state_bound(node: PlanNode) -> str | None:
    """What bounds the state of a node's operator; None where it has none."""
    match node:
        case p.WindowTable():
            return "the rows of sessions that the watermark has not passed" if node.window.kind is _SESSION else None
        case p.WindowAggregate():
            return (
                "the windows that the watermark has not passed"
                if node.window.time.value == "rowtime"
                else ("the windows that the clock has not passed")
            )
        case p.IntervalJoin():
            return f"rows of {node.upper_ms - node.lower_ms} ms of event time"
        case p.Aggregate() | p.Join() | p.TopN() if node.in_windows:
            return "the rows of windows that the watermark has not passed"
        case p.TemporalJoin():
            return "left rows that the watermark has not passed, and the last version of each key, for ever"
        case p.Sort() if goes_by_time(node):
            return "rows that the watermark has not passed"
        case p.Sort() if not node.order:
            return None
        case p.Sort():
            return "all rows, until the input ends"
        case p.Aggregate():
            return "none: one row a group, for ever"
        case p.OverAggregate():
            frame = node.frame
            if over_time(node) is None:
                return "none: all rows of each partition, for ever"
            if frame.preceding is None:
                return "one row a partition, for ever"
            last = f"{frame.preceding} rows a partition, for ever" if frame.rows else f"rows of {frame.preceding} ms"
            return f"rows that the watermark has not passed, and the last {last}"
        case p.TopN() if first_time(node) is p.TimeAttribute.ROWTIME:
            return "the first row of each partition until the watermark has passed it, then that it came, for ever"
        case p.TopN() if first_time(node) is not None:
            return "the key of each partition, for ever"
        case p.TopN():
            whole = changelog_mode(node.input) == INSERT_ONLY
            return f"{node.last} rows a partition, for ever" if whole else "none: all rows of each partition, for ever"
        case p.SetOperation():
            return "none: all different rows of both sides, for ever"
        case p.Scan():
            normalized = engine_mode(node.mode) is EngineMode.UPSERT and node.normalized
            return "one row a primary key, for ever" if normalized else None
        case p.Normalize():
            return "one row a key, for ever"
        case p.Join():
            return "none: all rows of both sides, for ever"
        case p.MatchRecognize():
            return _matched_rows(node)
    return None


def _matched_rows(node: p.MatchRecognize) -> str:
    match = node.match
    rows = "rows of matches under way"
    if match.within_ms is None:
        rows += ", for ever where a partition gets no further rows; bound it by WITHIN"
    else:
        rows += f", for {match.within_ms} ms"
    back = max((reference.back for reference in match.references), default=0)
    return f"{rows}, and the last {back} rows a partition, for ever" if back else rows
