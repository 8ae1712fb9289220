"""Lowers what keeps state by key onto the changelog operators: groups without windows, and regular joins."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from penstock.engine.api.changelog import add_changelog
from penstock.engine.api.streams import DataStream
from penstock.engine.changelog import ChangelogMode
from penstock.engine.errors import GraphError
from penstock.engine.operators.changelog.calls import AggregateCall
from penstock.engine.operators.changelog.complete_windows import CompleteWindowsSpec, WindowedSpec
from penstock.engine.operators.changelog.counted_rows import Ties
from penstock.engine.operators.changelog.first_rows import FirstRowsSpec
from penstock.engine.operators.changelog.group_aggregate import GroupAggregateSpec
from penstock.engine.operators.changelog.join import ChangelogJoinSpec, JoinInput
from penstock.engine.operators.changelog.join import JoinKind as EngineJoinKind
from penstock.engine.operators.changelog.over import OverTime
from penstock.engine.operators.changelog.ranks import Nulls, Order
from penstock.engine.operators.changelog.set_operation import SetOperation, SetOperationSpec
from penstock.engine.operators.changelog.top_n import Rank, TopNSpec
from penstock.tables.building import call
from penstock.tables.expressions import Expression, InputColumn, conjuncts, on_columns
from penstock.tables.functions.signatures import SessionValues
from penstock.tables.lower.base import Lowering, schema_of
from penstock.tables.lower.evaluation import Evaluation
from penstock.tables.lower.failing_rows import computed
from penstock.tables.plan import nodes as p
from penstock.tables.plan.changelog import changelog_mode, check_clock, engine_mode, first_time
from penstock.tables.plan.join_conditions import conjunction, equal_expressions
from penstock.tables.plan.nodes import JoinKind
from penstock.tables.plan.time_columns import keeps_last
from penstock.tables.types import arrow_type

_FUNCTIONS: Final = {
    "COUNT": "count",
    "SUM": "sum",
    "SUM0": "sum0",
    "AVG": "avg",
    "MIN": "min",
    "MAX": "max",
    "FIRST_VALUE": "first_value",
    "LAST_VALUE": "last_value",
    "STDDEV_POP": "stddev_pop",
    "STDDEV_SAMP": "stddev_samp",
    "STDDEV": "stddev_samp",
    "VAR_POP": "var_pop",
    "VAR_SAMP": "var_samp",
    "VARIANCE": "var_samp",
    "COLLECT": "collect",
    "LISTAGG": "listagg",
    "ARRAY_AGG": "array_agg",
}
_KINDS: Final = {
    JoinKind.INNER: EngineJoinKind.INNER,
    JoinKind.LEFT: EngineJoinKind.LEFT,
    JoinKind.RIGHT: EngineJoinKind.RIGHT,
    JoinKind.FULL: EngineJoinKind.FULL,
    JoinKind.SEMI: EngineJoinKind.SEMI,
    JoinKind.ANTI: EngineJoinKind.ANTI,
}


def lower_aggregate(lowering: Lowering, node: p.Aggregate) -> DataStream:
    """Groups whose results change with each row.

    Raises:
        GraphError: an aggregate that the engine does not have.
    """
    stream = lowering.stream(node.input)
    names = [column.name for column in node.input.columns]
    width = len(node.keys)
    calls = tuple(
        _engine_call(aggregate, column, names)
        for aggregate, column in zip(node.calls, node.columns[width:], strict=True)
    )
    takes = _takes(node.input)
    keys = tuple(names[key] for key in node.keys)
    ttl_ms = lowering.ttl_ms if node.ttl_ms is None else node.ttl_ms
    ttl_ms = None if node.in_windows else ttl_ms
    spec = GroupAggregateSpec(schema_of(node.input.columns), keys, calls, takes, ChangelogMode.RETRACT, ttl_ms)
    aggregated = in_windows(spec, stream) if node.in_windows else add_changelog(spec, spec.schema, stream)
    if spec.schema.names == [column.name for column in node.columns]:
        return aggregated
    own = tuple(InputColumn(column.type, place) for place, column in enumerate(node.columns))
    return lowering.projected(aggregated, own, node.columns)


def in_windows(spec: WindowedSpec, *streams: DataStream) -> DataStream:
    """What an operator gives for the rows of each window, when it is complete."""
    schemas = tuple(stream.schema for stream in streams)
    complete = CompleteWindowsSpec(spec, schemas, spec.schema)
    return add_changelog(complete, spec.schema, *streams, timed=True)


def _takes(node: p.PlanNode) -> ChangelogMode:
    mode = engine_mode(changelog_mode(node))
    if mode is ChangelogMode.UPSERT:
        raise GraphError(
            "updates that come without the rows before them are not supported here; give the table a changelog with "
            "UPDATE_BEFORE"
        )
    return mode


def _engine_call(aggregate: p.AggregateCall, column: p.Column, names: list[str]) -> AggregateCall:
    argument = names[aggregate.arguments[0]] if aggregate.arguments else None
    condition = None if aggregate.filter is None else names[aggregate.filter]
    separator = str(aggregate.constants[0]) if aggregate.constants else ","
    function = _FUNCTIONS[aggregate.name]
    kind = arrow_type(aggregate.type)
    return AggregateCall(function, column.name, kind, argument, aggregate.distinct, condition, separator)


def lower_join(lowering: Lowering, node: p.Join) -> DataStream:
    """Joins whose rows change with each row of either side.

    Raises:
        GraphError: a condition over the time of the clock.
    """
    if node.condition is not None:
        check_clock(node.condition, (*node.left.columns, *node.right.columns))
    if node.kind is JoinKind.NULL_AWARE_ANTI:
        # A row stays away from NOT IN as soon as one comparison is not false: a null on either side meets all.
        assert node.condition is not None, "IN compares something"
        meets = call("NOT", call("IS_FALSE", node.condition))
        return _joined(lowering, replace(node, condition=meets), EngineJoinKind.ANTI)
    return _joined(lowering, node, _KINDS[node.kind])


@dataclass(frozen=True, slots=True)
class Pairs:
    """Says which pairs of rows meet.

    Args:
        condition: over the columns of both sides.
        zone: the session's time zone.
    """

    condition: Expression
    zone: str

    def __call__(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        return computed("the condition of a join", rows, self._answers)

    def _answers(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        found = Evaluation(rows.columns, rows.num_rows, SessionValues(self.zone))
        return found.value(self.condition).cast(pa.bool_())


def _joined(lowering: Lowering, node: p.Join, kind: EngineJoinKind) -> DataStream:
    width, right_width = len(node.left.columns), len(node.right.columns)
    conditions = [] if node.condition is None else conjuncts(node.condition)
    keys, rest = equal_expressions(conditions, width)
    left = side_of(lowering, node.left, [one for one, _ in keys], "l")
    right = side_of(lowering, node.right, [other for _, other in keys], "r")
    condition = conjunction(rest)
    number = len(keys)

    def place(column: int) -> int:
        return column if column < width else column + number

    pairs = None if condition is None else Pairs(on_columns(condition, place), lowering.zone)
    left_ttl, right_ttl = (lowering.ttl_ms if ttl_ms is None else ttl_ms for ttl_ms in node.ttl_ms)
    if node.in_windows:
        left_ttl = right_ttl = None
    left_input = JoinInput(left.schema, tuple(f"lk{i}" for i in range(number)), _takes(node.left), left_ttl)
    right_input = JoinInput(right.schema, tuple(f"rk{i}" for i in range(number)), _takes(node.right), right_ttl)
    mode = ChangelogMode.RETRACT if node.in_windows else engine_mode(changelog_mode(node))
    spec = ChangelogJoinSpec(left_input, right_input, kind, pairs, emits=mode)
    joined = in_windows(spec, left, right) if node.in_windows else add_changelog(spec, spec.schema, left, right)
    columns: list[Expression] = [InputColumn(column.type, i) for i, column in enumerate(node.left.columns)]
    if kind.pairs:
        first = width + number
        columns += [InputColumn(c.type, first + i) for i, c in enumerate(node.columns[width : width + right_width])]
    return lowering.projected(joined, tuple(columns), node.columns)


def side_of(lowering: Lowering, node: p.PlanNode, keys: list[Expression], prefix: str) -> DataStream:
    """The rows of a side with the keys behind their columns, and names that the other side does not have."""
    own: list[Expression] = [InputColumn(column.type, place) for place, column in enumerate(node.columns)]
    columns = (
        *(p.Column(f"{prefix}{place}", column.type) for place, column in enumerate(node.columns)),
        *(p.Column(f"{prefix}k{place}", key.type) for place, key in enumerate(keys)),
    )
    return lowering.projected(lowering.stream(node), (*own, *keys), columns)


def lower_top_n(lowering: Lowering, node: p.TopN) -> DataStream:
    """The first rows of partitions: once, where they go by time; else as they change with each row."""
    time = first_time(node)
    if time is not None:
        return _lower_first_rows(lowering, node, time)
    names = [column.name for column in node.columns]
    order = tuple(
        Order(names[key.column], key.descending, Nulls.FIRST if key.nulls_first else Nulls.LAST) for key in node.order
    )
    spec = TopNSpec(
        schema_of(node.input.columns),
        tuple(names[key] for key in node.partition),
        order,
        node.last,
        node.first,
        Rank[node.function],
        names[-1],
        ties=Ties.LAST_ARRIVED if keeps_last(node) else Ties.FIRST_ARRIVED,
        takes=_takes(node.input),
        ttl_ms=None if node.in_windows else lowering.ttl_ms,
    )
    stream = lowering.stream(node.input)
    return in_windows(spec, stream) if node.in_windows else add_changelog(spec, spec.schema, stream)


def _lower_first_rows(lowering: Lowering, node: p.TopN, time: p.TimeAttribute) -> DataStream:
    names = [column.name for column in node.columns]
    partition = tuple(names[key] for key in node.partition)
    by = OverTime.EVENT if time is p.TimeAttribute.ROWTIME else OverTime.PROCESSING
    spec = FirstRowsSpec(schema_of(node.input.columns), partition, names[-1], by, lowering.ttl_ms)
    stream = lowering.stream(node.input)
    return add_changelog(spec, spec.schema, stream, timed=stream._timed)


def lower_set_operation(lowering: Lowering, node: p.SetOperation) -> DataStream:
    """INTERSECT and EXCEPT, which change with each row of either side."""
    left, right = lowering.stream(node.left), lowering.stream(node.right)
    modes = {_takes(node.left), _takes(node.right)}
    takes = ChangelogMode.APPEND if modes == {ChangelogMode.APPEND} else ChangelogMode.RETRACT
    operation = SetOperation[f"{node.operator}_ALL" if node.keep_all else node.operator]
    spec = SetOperationSpec(
        schema_of(node.left.columns), schema_of(node.right.columns), operation, takes, ttl_ms=lowering.ttl_ms
    )
    made = add_changelog(spec, spec.schema, left, right)
    own = tuple(InputColumn(column.type, place) for place, column in enumerate(node.columns))
    return lowering.projected(made, own, node.columns)
