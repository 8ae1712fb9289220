"""What an operator computes, as a value that another engine can carry out: the relational part of its description.

Operators with such a form name it in their traits (`operators/spec.py`); batch mode reads it to let Spark run them
(`actors/spark/native`). An operator without one always runs here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.operators.join_columns import JoinColumns
from penstock.engine.ordering import SortKey
from penstock.engine.windows.assigners import AlignedWindows, SessionWindows, SlicedWindows
from penstock.engine.windows.watermarks import WatermarkStrategy

if TYPE_CHECKING:  # it brings narwhals, which operators of Python functions do without
    from penstock.engine.expressions import Step


@dataclass(frozen=True, slots=True)
class EventTime:
    """The same rows with event time from where `strategy` finds it."""

    strategy: WatermarkStrategy


@dataclass(frozen=True, slots=True)
class Steps:
    """Filters and computed columns, one after the other."""

    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class WindowTotals:
    """One row for each key and window."""

    windows: SlicedWindows
    aggregation: GroupedAggregation


@dataclass(frozen=True, slots=True)
class KeyTotals:
    """One row for each key, of all its rows."""

    aggregation: GroupedAggregation


@dataclass(frozen=True, slots=True)
class Ordered:
    """All rows in the order of `keys`."""

    keys: tuple[SortKey, ...]


@dataclass(frozen=True, slots=True)
class WindowPairs:
    """Rows of two inputs with equal keys in the same window, in pairs.

    Args:
        windows: those that both sides are divided into.
        columns: the inputs and the columns of the result.
        how: `"inner"`, `"left"`, `"right"` or `"full"`.
    """

    windows: AlignedWindows | SessionWindows
    columns: JoinColumns
    how: str


Relational: TypeAlias = EventTime | Steps | WindowTotals | KeyTotals | Ordered | WindowPairs
