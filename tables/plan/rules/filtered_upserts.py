"""A condition that may say otherwise each time, over a table that is updated by its key, is asked once a row.

What was before an update would have to be asked again when it is taken back. So a row of which the condition is not
true deletes the row of its key, before the rows of keys are known.

Source: Flink's documentation, "ChangelogNormalize", which takes conditions in.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock.engine.changelog import ChangelogMode
from penstock.tables import types as t
from penstock.tables.building import call
from penstock.tables.expressions import Conditional, Constant, Expression, FunctionCall, InputColumn, on_columns, walk
from penstock.tables.plan.changelog import engine_mode
from penstock.tables.plan.expression_traits import is_repeatable
from penstock.tables.plan.nodes import (
    Column,
    Filter,
    FromChangelog,
    Normalize,
    PlanNode,
    Project,
    Scan,
    ToChangelog,
    Watermarks,
    unique_names,
    with_inputs,
)

_KEPT: Final = "+"
_GONE: Final = "-"
_TEXT: Final = t.STRING.with_nullable(False)


def filtered_upserts(node: PlanNode) -> PlanNode:
    """The rule: for a filter right over the table, or over its watermark."""
    if not isinstance(node, Filter) or is_repeatable(node.condition):
        return node
    timed = node.input if isinstance(node.input, Watermarks) else None
    scan = node.input if timed is None else timed.input
    if not isinstance(scan, Scan) or not scan.primary_key or engine_mode(scan.mode) is not ChangelogMode.UPSERT:
        return node
    raw: PlanNode = replace(scan, normalized=False)
    if timed is not None and _asks_for_watermark(node.condition):
        raw = with_inputs(timed, (raw,))
    made: PlanNode = Normalize(kept_or_deleted(raw, node), scan.primary_key)
    # What is kept by key has no event time until it is told again.
    return made if timed is None else with_inputs(timed, (made,))


def _asks_for_watermark(condition: Expression) -> bool:
    return any(isinstance(part, FunctionCall) and part.name == "CURRENT_WATERMARK" for part in walk(condition))


def kept_or_deleted(below: PlanNode, node: Filter) -> FromChangelog:
    """The changes of rows by key, those of which the condition is not true as deletes.

    Args:
        below: gives the rows, as they come.
        node: the filter, over the same columns.
    """
    columns = node.columns
    names = unique_names([*(column.name for column in columns), "operation"])
    op = Column(names[-1], _TEXT)
    codes = {"INSERT": _KEPT, "UPDATE_AFTER": _KEPT, "DELETE": _GONE}
    said = ToChangelog(below, codes, (op, *columns))
    is_kept = call("=", InputColumn(_TEXT, 0), Constant(_TEXT, _KEPT))
    condition = call("AND", is_kept, on_columns(node.condition, lambda place: place + 1))
    asked: Expression = Conditional(_TEXT, ((condition, Constant(_TEXT, _KEPT)),), Constant(_TEXT, _GONE))
    own = (InputColumn(column.type, place + 1) for place, column in enumerate(columns))
    told = Project(said, (asked, *own), (op, *columns))
    return FromChangelog(told, 0, {_KEPT: "UPDATE_AFTER", _GONE: "DELETE"}, columns)
