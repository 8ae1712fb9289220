"""Lowers OVER: aggregates, numbers and LAG over the rows before each one, by time or in another order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from penstock.engine.api.changelog import add_changelog
from penstock.engine.api.streams import DataStream
from penstock.engine.changelog import ChangelogMode
from penstock.engine.errors import GraphError
from penstock.engine.operators.changelog.frames import OverCall
from penstock.engine.operators.changelog.over import FrameUnit, OverSpec, OverTime
from penstock.engine.operators.changelog.ranks import Nulls, Order
from penstock.engine.operators.changelog.updating_over import UpdatingOverSpec
from penstock.tables.building import converted
from penstock.tables.expressions import Conditional, Constant, Expression, InputColumn
from penstock.tables.lower.base import Lowering
from penstock.tables.plan import nodes as p
from penstock.tables.plan.changelog import changelog_mode, engine_mode, over_time
from penstock.tables.plan.nodes import TimeAttribute
from penstock.tables.types import BIGINT, arrow_type

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
    "ROW_NUMBER": "row_number",
    "RANK": "rank",
    "DENSE_RANK": "dense_rank",
    "LAG": "lag",
}


def lower_over(lowering: Lowering, node: p.OverAggregate) -> DataStream:
    """Each row with its results: once, where rows only come and are ordered by time; else as they change.

    Raises:
        GraphError: a call that the engine does not have.
    """
    time, mode = over_time(node), engine_mode(changelog_mode(node.input))
    filtered = _with_filters(node)
    stream = lowering.stream(filtered.input)
    names = [column.name for column in filtered.input.columns]
    added = filtered.columns[len(names) :]
    calls = [_engine_call(call, column, names) for call, column in zip(filtered.calls, added, strict=True)]
    made = []
    for unit, preceding, chosen in _frames(filtered, calls):
        over = _Over(stream, filtered, unit, preceding, tuple(chosen), lowering.ttl_ms)
        stream = over.updating(mode) if time is None else over.timed(time)
        mode = ChangelogMode.RETRACT
        made += [call.name for call in chosen]
    places = {name: len(names) + place for place, name in enumerate(made)}
    own = [InputColumn(column.type, place) for place, column in enumerate(node.input.columns)]
    results = [InputColumn(column.type, places[column.name]) for column in added]
    return lowering.projected(stream, (*own, *results), node.columns)


def _with_filters(node: p.OverAggregate) -> p.OverAggregate:
    """The node with arguments that are null where the filters of their calls say so; ARRAY_AGG has nulls of its own."""
    if all(call.filter is None or call.name == "ARRAY_AGG" for call in node.calls):
        return node
    own = node.input.columns
    values: list[Expression] = [InputColumn(column.type, place) for place, column in enumerate(own)]
    calls = []
    for call in node.calls:
        if call.filter is None or call.name == "ARRAY_AGG":
            calls.append(call)
            continue
        value = values[call.arguments[0]] if call.arguments else Constant(BIGINT.with_nullable(False), 1)
        kind = value.type.with_nullable(True)
        calls.append(replace(call, arguments=(len(values),), filter=None))
        values.append(Conditional(kind, ((values[call.filter], converted(value, kind)),), Constant(kind, None)))
    names = p.unique_names([*(column.name for column in own), *("filtered" for _ in values[len(own) :])])
    extra = [p.Column(name, value.type) for name, value in zip(names[len(own) :], values[len(own) :], strict=True)]
    columns = (*own, *extra)
    below = p.Project(node.input, tuple(values), columns)
    return replace(node, input=below, calls=tuple(calls), columns=(*columns, *node.columns[len(own) :]))


@dataclass(frozen=True, slots=True)
class _Over:
    """One frame of a node, and the stream that it is over."""

    stream: DataStream
    node: p.OverAggregate
    unit: FrameUnit
    preceding: int | None
    calls: tuple[OverCall, ...]
    ttl_ms: int | None

    def timed(self, time: TimeAttribute) -> DataStream:
        """Each row once with its results."""
        by = OverTime.EVENT if time is TimeAttribute.ROWTIME else OverTime.PROCESSING
        spec = OverSpec(self._schema, self._partition, self.unit, self.preceding, self.calls, self.ttl_ms, by)
        return add_changelog(spec, spec.schema, self.stream, timed=self.stream._timed)

    def updating(self, takes: ChangelogMode) -> DataStream:
        """Rows whose results change with others."""
        columns = self.node.input.columns
        order = tuple(
            Order(columns[key.column].name, key.descending, Nulls.FIRST if key.nulls_first else Nulls.LAST)
            for key in self.node.order
        )
        spec = UpdatingOverSpec(
            self._schema, self._partition, order, self.unit, self.preceding, self.calls, takes, self.ttl_ms
        )
        return add_changelog(spec, spec.schema, self.stream)

    @property
    def _schema(self) -> pa.Schema:
        assert self.stream.schema is not None, "the columns of tables are known"
        return self.stream.schema

    @property
    def _partition(self) -> tuple[str, ...]:
        return tuple(self.node.input.columns[place].name for place in self.node.partition)


def _engine_call(call: p.AggregateCall, column: p.Column, names: list[str]) -> OverCall:
    offset = call.constants[0] if call.name == "LAG" and call.constants else 1
    if not isinstance(offset, int) or offset < 1:
        raise GraphError(f"LAG goes back by 1 or more rows, not by {offset!r}")
    argument = names[call.arguments[0]] if call.arguments else None
    separator = str(call.constants[0]) if call.name == "LISTAGG" and call.constants else ","
    kind = arrow_type(call.type)
    condition = None if call.filter is None else names[call.filter]
    return OverCall(_FUNCTIONS[call.name], column.name, kind, argument, offset, call.distinct, separator, condition)


def _frames(node: p.OverAggregate, calls: Sequence[OverCall]) -> list[tuple[FrameUnit, int | None, list[OverCall]]]:
    """The calls by the frames that they need: numbers and LAG have frames of their own."""
    numbers = [call for call in calls if call.function in ("row_number", "rank", "dense_rank")]
    lags = [call for call in calls if call.function == "lag"]
    others = [call for call in calls if call not in numbers and call not in lags]
    unit = FrameUnit.ROWS if node.frame.rows else FrameUnit.RANGE
    frames: list[tuple[FrameUnit, int | None, list[OverCall]]] = [
        (unit, node.frame.preceding, others),
        (FrameUnit.ROWS, None, numbers),
        (FrameUnit.ROWS, max((call.offset for call in lags), default=1), lags),
    ]
    return [frame for frame in frames if frame[2]]
