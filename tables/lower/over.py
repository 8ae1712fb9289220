"""Lowers OVER: aggregates, numbers and LAG over rows before each one, by event time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.engine.api.changelog import add_changelog
from penstock.engine.api.streams import DataStream
from penstock.engine.errors import GraphError
from penstock.engine.operators.changelog.frames import OverCall
from penstock.engine.operators.changelog.over import FrameUnit, OverSpec
from penstock.tables.expressions import InputColumn
from penstock.tables.functions.aggregates import RANKS
from penstock.tables.plan import nodes as p
from penstock.tables.plan.nodes import TimeAttribute
from penstock.tables.types import arrow_type

if TYPE_CHECKING:
    from penstock.tables.lower.lowering import Lowering

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
    "ROW_NUMBER": "row_number",
    "RANK": "rank",
    "DENSE_RANK": "dense_rank",
    "LAG": "lag",
}


def lower_over(lowering: Lowering, node: p.OverAggregate) -> DataStream:
    """Each row with its results, when the watermark has passed it.

    Raises:
        GraphError: another order than ascending event time, or a call that the engine does not have.
    """
    _check_order(node)
    stream = lowering.stream(node.input)
    assert stream.schema is not None, "the columns of tables are known"
    names = [column.name for column in node.input.columns]
    partition = tuple(names[place] for place in node.partition)
    added = node.columns[len(names) :]
    calls = [_engine_call(call, column, names) for call, column in zip(node.calls, added, strict=True)]
    made = []
    for unit, preceding, chosen in _frames(node, calls):
        spec = OverSpec(stream.schema, partition, unit, preceding, tuple(chosen))
        stream = add_changelog(spec, spec.schema, stream, timed=True)
        made += [call.name for call in chosen]
    places = {name: len(names) + place for place, name in enumerate(made)}
    own = [InputColumn(column.type, place) for place, column in enumerate(node.input.columns)]
    results = [InputColumn(column.type, places[column.name]) for column in added]
    return lowering.projected(stream, (*own, *results), node.columns)


def _check_order(node: p.OverAggregate) -> None:
    numbers = [call.name for call in node.calls if call.name in RANKS]
    key = node.order[0] if len(node.order) == 1 else None
    if key is not None and not key.descending and node.columns[key.column].time is TimeAttribute.ROWTIME:
        return
    if numbers:
        raise GraphError(
            f"{numbers[0]} without an upper bound is not supported but in ascending order of event time; bound it: "
            f"WHERE {node.columns[-1].name} <= 10"
        )
    raise GraphError(
        "OVER of aggregates is supported in ascending order of event time alone: ORDER BY a time attribute"
    )


def _engine_call(call: p.AggregateCall, column: p.Column, names: list[str]) -> OverCall:
    if call.distinct or call.filter is not None:
        raise GraphError(f"{call.name} with DISTINCT or FILTER is not supported in OVER")
    if call.name not in _FUNCTIONS:
        raise GraphError(f"{call.name} is not supported in OVER; there are {', '.join(_FUNCTIONS)}")
    if call.name == "LAG" and len(call.constants) > 1:
        raise GraphError("LAG with a default is not supported; write COALESCE(LAG(...) OVER (...), default)")
    offset = call.constants[0] if call.name == "LAG" and call.constants else 1
    if not isinstance(offset, int) or offset < 1:
        raise GraphError(f"LAG goes back by 1 or more rows, not by {offset!r}")
    argument = names[call.arguments[0]] if call.arguments else None
    return OverCall(_FUNCTIONS[call.name], column.name, arrow_type(call.type), argument, offset)


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
