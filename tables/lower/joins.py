"""Lowers joins within an interval of time onto the engine's."""

from __future__ import annotations

from typing import Final

from penstock.engine.api.joins import KeyedInput, near_join
from penstock.engine.api.streams import DataStream
from penstock.engine.exchange.partitioners import Hash
from penstock.engine.operators.join_columns import LEFT, RIGHT
from penstock.engine.operators.joins.interval_join import JoinTime
from penstock.tables import types as t
from penstock.tables.building import call
from penstock.tables.expressions import Conditional, Constant, Expression, InputColumn, on_columns
from penstock.tables.lower.base import Lowering, schema_of
from penstock.tables.lower.changing import Pairs
from penstock.tables.lower.keys import encoded_keys
from penstock.tables.lower.windows import TICK_MS, by_clock
from penstock.tables.plan import nodes as p
from penstock.tables.plan.nodes import JoinKind, TimeAttribute

_OUTER: Final = {
    JoinKind.INNER: (),
    JoinKind.LEFT: (LEFT,),
    JoinKind.RIGHT: (RIGHT,),
    JoinKind.FULL: (LEFT, RIGHT),
}
_MARK: Final = t.INT.with_nullable(False)


def lower_interval_join(lowering: Lowering, node: p.IntervalJoin) -> DataStream:
    """Pairs of rows whose times are near each other."""
    outer = _OUTER[node.kind]
    if node.lower_ms > node.upper_ms:
        return _apart(lowering, node, outer)
    left = _side(lowering, node.left, [one for one, _ in node.keys], LEFT)
    right = _side(lowering, node.right, [other for _, other in node.keys], RIGHT)
    names = [tuple(f"{side}k{number}" for number in range(len(node.keys) + 1)) for side in "lr"]

    def place(column: int) -> int:
        # The keys of the left stand in front of its columns, those of the right nowhere.
        return column + len(names[LEFT])

    condition = None if node.condition is None else Pairs(on_columns(node.condition, place), lowering.zone)
    time = JoinTime.PROCESSING if node.time is TimeAttribute.PROCTIME else JoinTime.EVENT
    if outer and time is JoinTime.PROCESSING:
        # When a row will meet nothing any more is said by watermarks.
        left, right, time = by_clock(left, TICK_MS), by_clock(right, TICK_MS), JoinTime.EVENT
    sides = (_keyed(left, names[LEFT]), _keyed(right, names[RIGHT]))
    joined = near_join(*sides, (node.lower_ms, node.upper_ms), outer, condition, time)
    own = tuple(InputColumn(column.type, place(i)) for i, column in enumerate(node.columns))
    return lowering.projected(joined, own, node.columns)


def _keyed(stream: DataStream, keys: tuple[str, ...]) -> KeyedInput[DataStream]:
    return KeyedInput(stream._partition(Hash(keys)), keys)


def _apart(lowering: Lowering, node: p.IntervalJoin, outer: tuple[int, ...]) -> DataStream:
    """No rows can be near enough: those of outer sides come alone."""
    width = len(node.left.columns)
    never = Constant(t.BOOLEAN.with_nullable(False), False)
    streams = []
    for side, child in ((LEFT, node.left), (RIGHT, node.right)):
        if side not in outer and (outer or side == RIGHT):
            continue
        own = range(width) if side == LEFT else range(width, len(node.columns))
        expressions = tuple(
            InputColumn(column.type, i - own.start) if i in own else Constant(column.type.with_nullable(True), None)
            for i, column in enumerate(node.columns)
        )
        condition = None if side in outer else never
        streams.append(lowering.calc(lowering.stream(child), condition, expressions, schema_of(node.columns)))
    return streams[0].union(*streams[1:]) if len(streams) > 1 else streams[0]


def _side(lowering: Lowering, node: p.PlanNode, keys: list[int], side: int) -> DataStream:
    """A side with its keys in front of its columns, and a mark that keeps rows with a null in them from meeting any."""
    prefix = "lr"[side]
    known: Expression | None = None
    for key in keys:
        if node.columns[key].type.nullable:
            test = call("IS_NOT_NULL", InputColumn(node.columns[key].type, key))
            known = test if known is None else call("AND", known, test)
    encoded = encoded_keys(node.columns, keys, "JOIN")
    values = tuple(encoded.expressions[value] for value, _ in encoded.places)
    alone = Constant(_MARK, side + 1)
    mark: Expression = Constant(_MARK, 0)
    if known is not None:
        mark = Conditional(_MARK, ((known, mark),), alone)
    own = tuple(InputColumn(column.type, place) for place, column in enumerate(node.columns))
    columns = (
        *(p.Column(f"{prefix}k{number}", value.type) for number, value in enumerate(values)),
        p.Column(f"{prefix}k{len(keys)}", _MARK),
        *(p.Column(f"{prefix}{place}", column.type) for place, column in enumerate(node.columns)),
    )
    return lowering.projected(lowering.stream(node), (*values, mark, *own), columns)
