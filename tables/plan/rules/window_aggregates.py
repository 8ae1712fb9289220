"""A grouping by `window_start` and `window_end` of a window table function is an aggregation by windows.

The windows are then those of the aggregation, so that rows are not copied into each of them: the window function is
taken out, and its columns are only in the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from penstock.engine.errors import GraphError
from penstock.tables.expressions import Expression, InputColumn, columns_in, on_columns
from penstock.tables.plan.changelog import changelog_mode
from penstock.tables.plan.nodes import (
    INSERT_ONLY,
    Aggregate,
    AggregateCall,
    Filter,
    PlanNode,
    Project,
    TimeAttribute,
    WindowAggregate,
    WindowKind,
    WindowSpec,
    WindowTable,
)
from penstock.tables.types import Kind, may_be_key

_PARTIAL: Final = ("COUNT", "SUM", "AVG", "MIN", "MAX")
_SPREADS: Final = ("STDDEV", "STDDEV_POP", "STDDEV_SAMP")
_BOUNDS: Final = {TimeAttribute.WINDOW_START: "start", TimeAttribute.WINDOW_END: "end"}


@dataclass(frozen=True, slots=True)
class _Opened:
    """A node without the window function below it.

    Args:
        node: gives the same rows, each once.
        places: where the columns are that are left, by their place before.
        origins: the columns of the window function's input that these are, by their place before.
        bounds: the columns that were its bounds: `start`, `end` or `time`, by their place before.
        table: the window function.
    """

    node: PlanNode
    places: Mapping[int, int]
    origins: Mapping[int, int]
    bounds: Mapping[int, str]
    table: WindowTable


def window_aggregates(node: PlanNode) -> PlanNode:
    """The rule; groupings that it cannot take stay as they are."""
    if not isinstance(node, Aggregate):
        return node
    times = {node.input.columns[key].time for key in node.keys}
    if not {TimeAttribute.WINDOW_START, TimeAttribute.WINDOW_END} <= times:
        return node
    if not _comes_once(node.input) or not all(map(_has_partials, node.calls)):
        return node
    if not all(may_be_key(node.input.columns[key].type) for key in node.keys):
        return node
    opened = _opened(node.input)
    if opened is None:
        return _of_complete_sessions(node)
    if opened.table.window.zone is not None:
        # The windows of the engine lie in UTC.
        return node
    read = {place for call in node.calls for place in (*call.arguments, *_filter(call.filter))}
    keys = [key for key in node.keys if key not in opened.bounds]
    if not (read | set(keys)) <= opened.places.keys():
        return _of_complete_sessions(node)
    if opened.table.window.kind is WindowKind.SESSION and not _are_sessions_of(keys, opened):
        return _of_complete_sessions(node)
    places = opened.places
    calls = tuple(
        replace(
            call,
            arguments=tuple(places[argument] for argument in call.arguments),
            filter=None if call.filter is None else places[call.filter],
        )
        for call in node.calls
    )
    results = [opened.bounds[key] if key in opened.bounds else f"key {keys.index(key)}" for key in node.keys]
    results += [f"call {place}" for place in range(len(calls))]
    own = tuple(places[key] for key in keys)
    return WindowAggregate(opened.node, opened.table.window, own, calls, tuple(results), node.columns)


def _comes_once(node: PlanNode) -> bool:
    """Whether rows are known to be only inserted, also where some below are not known yet to come within windows."""
    try:
        return changelog_mode(node) == INSERT_ONLY
    except GraphError:
        return False


def _has_partials(call: AggregateCall) -> bool:
    """Whether the windows of the engine compute an aggregate as rows come, without keeping these."""
    if call.name in _SPREADS and call.type.kind is Kind.DECIMAL:
        return False
    return call.name in (*_PARTIAL, *_SPREADS) and (not call.distinct or call.name == "COUNT")


def _filter(place: int | None) -> tuple[int, ...]:
    return () if place is None else (place,)


def _are_sessions_of(keys: list[int], opened: _Opened) -> bool:
    """Whether sessions are told apart by the same columns as groups are."""
    return {opened.origins.get(key, -1) for key in keys} == set(opened.table.partition)


def _of_complete_sessions(node: Aggregate) -> PlanNode:
    """Groups by other keys than those of sessions, or of some of their rows.

    These come when their session is complete, all at its last millisecond: a window of that millisecond holds them.
    """
    below = node.input
    while isinstance(below, Project | Filter):
        below = below.input
    if not isinstance(below, WindowTable) or below.window.kind is not WindowKind.SESSION:
        return node
    results = [*(f"key {place}" for place in range(len(node.keys))), *(f"call {i}" for i in range(len(node.calls)))]
    at_end = WindowSpec(WindowKind.TUMBLE, 1)
    return WindowAggregate(node.input, at_end, node.keys, node.calls, tuple(results), node.columns)


def _opened(node: PlanNode) -> _Opened | None:
    match node:
        case WindowTable():
            width = len(node.input.columns)
            own = {place: place for place in range(width)}
            names = ("start", "end", "time")
            return _Opened(node.input, own, own, {width + i: name for i, name in enumerate(names)}, node)
        case Filter():
            below = _opened(node.input)
            if below is None or not _goes_below(node.condition, below):
                return None
            condition = on_columns(node.condition, below.places.__getitem__)
            return replace(below, node=Filter(below.node, condition))
        case Project():
            return _opened_projection(node)
    return None


def _goes_below(condition: Expression, below: _Opened) -> bool:
    """Whether a condition may stand below the windows: rows that it drops hold a session together all the same."""
    read = columns_in(condition)
    if below.table.window.kind is not WindowKind.SESSION:
        return read <= below.places.keys()
    return {below.origins.get(column) for column in read} <= set(below.table.partition)


def _opened_projection(node: Project) -> _Opened | None:
    below = _opened(node.input)
    if below is None:
        return None
    places: dict[int, int] = {}
    origins: dict[int, int] = {}
    bounds: dict[int, str] = {}
    kept: list[int] = []
    for place, expression in enumerate(node.expressions):
        column = expression.index if isinstance(expression, InputColumn) else None
        if column is not None and column in below.bounds:
            bounds[place] = below.bounds[column]
        elif columns_in(expression) <= below.places.keys():
            places[place] = len(kept)
            kept.append(place)
            if column is not None and column in below.origins:
                origins[place] = below.origins[column]
    if not bounds:
        return None
    if not kept:  # rows without columns could not be counted
        return _Opened(below.node, places, origins, bounds, below.table)
    expressions = tuple(on_columns(node.expressions[place], below.places.__getitem__) for place in kept)
    columns = tuple(node.columns[place] for place in kept)
    return _Opened(Project(below.node, expressions, columns), places, origins, bounds, below.table)
