"""Windows in GROUP BY, as Flink had them before table functions: `GROUP BY TUMBLE(time, INTERVAL '1' HOUR)`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.tables.bind.expression_binder import ExpressionBinder
from penstock.tables.bind.scopes import Scope
from penstock.tables.bind.table_functions import window_table
from penstock.tables.expressions import Constant, Expression, InputColumn
from penstock.tables.parse import nodes as n
from penstock.tables.parse.text import SqlText
from penstock.tables.plan.nodes import (
    Column,
    PlanNode,
    Project,
    TimeAttribute,
    WindowKind,
    WindowSpec,
    WindowTable,
    unique_names,
)
from penstock.tables.types import Kind

_WINDOWS: Final = ("TUMBLE", "HOP", "SESSION")
_BOUNDS: Final = {"START": 0, "END": 1, "ROWTIME": 2, "PROCTIME": 2}
BOUND_CALLS: Final = frozenset(f"{window}_{bound}" for window in _WINDOWS for bound in _BOUNDS)
"""`TUMBLE_START` and its like: what is called for a bound of a window of GROUP BY."""


@dataclass(frozen=True, slots=True)
class GroupWindow:
    """A window of GROUP BY.

    Args:
        call: as it stands there.
        node: the rows with their windows.
        bounds: the columns of window_start, window_end and window_time.
    """

    call: n.Call
    node: WindowTable
    bounds: tuple[InputColumn, ...]

    def bound_of(self, node: n.Node) -> InputColumn | None:
        """The bound that a call such as `TUMBLE_START(...)` means."""
        if not isinstance(node, n.Call):
            return None
        name, _, bound = node.name.rpartition("_")
        if name != self.call.name or bound not in _BOUNDS:
            return None
        return self.bounds[_BOUNDS[bound]]


def find_group_window(
    group_by: Sequence[n.Node], node: PlanNode, scope: Scope, source: SqlText, zone: str
) -> GroupWindow | None:
    """The window among the items of GROUP BY, if there is one; `zone` is the session's.

    Raises:
        SqlError: two of them, or one that is not as it should be.
    """
    calls = [item for item in group_by if isinstance(item, n.Call) and item.name in _WINDOWS]
    if not calls:
        return None
    if len(calls) > 1:
        raise source.unsupported(calls[1].at, "GROUP BY takes one window")
    call = calls[0]
    binder = ExpressionBinder(source, scope)
    arguments = [binder.bind(argument.value) for argument in call.arguments]
    wanted = 3 if call.name == "HOP" else 2
    if len(arguments) != wanted:
        raise source.invalid(call.at, f"{call.name} in GROUP BY takes {wanted} arguments, not {len(arguments)}")
    time = arguments[0]
    if not isinstance(time, InputColumn) or node.columns[time.index].time not in (
        TimeAttribute.ROWTIME,
        TimeAttribute.PROCTIME,
    ):
        raise source.invalid(
            call.at,
            f"the first argument of {call.name} must be a time attribute: declare WATERMARK FOR it in CREATE TABLE",
        )
    lengths = [
        _length(bound, argument.at, source) for bound, argument in zip(arguments[1:], call.arguments[1:], strict=True)
    ]
    chosen = node.columns[time.index].time
    assert chosen is not None
    step, size = (lengths[0], lengths[1]) if call.name == "HOP" else (0, lengths[0])
    spec = WindowSpec(WindowKind(call.name), size, step, 0, chosen)
    # Sessions are those of each group: of the other keys.
    keys = [binder.bind(item) for item in group_by if item is not call] if call.name == "SESSION" else []
    node, partition = _with_columns(node, keys)
    windowed = window_table(node, spec, time.index, partition, zone)
    width = len(node.columns)
    bounds = tuple(InputColumn(column.type, width + place) for place, column in enumerate(windowed.columns[width:]))
    return GroupWindow(call, windowed, bounds)


def _with_columns(node: PlanNode, keys: Sequence[Expression]) -> tuple[PlanNode, tuple[int, ...]]:
    """The rows with what keys are computed behind their columns, and the places of all keys."""
    own: list[Expression] = [InputColumn(column.type, place) for place, column in enumerate(node.columns)]
    values = list(dict.fromkeys([*own, *keys]))
    places = tuple(values.index(key) for key in keys)
    if len(values) == len(own):
        return node, places
    names = unique_names([*(c.name for c in node.columns), *(f"key${i}" for i in range(len(values) - len(own)))])
    added = (Column(name, value.type) for name, value in zip(names[len(own) :], values[len(own) :], strict=True))
    return Project(node, tuple(values), (*node.columns, *added)), places


def _length(bound: Expression, at: int, source: SqlText) -> int:
    if isinstance(bound, Constant) and bound.type.kind is Kind.INTERVAL_MILLIS and isinstance(bound.value, int):
        return bound.value
    raise source.invalid(at, "the length of a window is an interval without months, such as INTERVAL '5' MINUTE")
