"""The aggregate functions by name: what they take and what type they give.

Source: Flink's documentation, "Aggregate Functions", and `LogicalTypeMerging.findSumAggType` and `findAvgAggType`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.tables import types as t
from penstock.tables.functions import signatures as s
from penstock.tables.types import Kind, SqlType


def _sum(given: Sequence[SqlType]) -> SqlType:
    kind = given[0]
    return t.decimal(t.MAX_PRECISION, kind.scale) if kind.kind is Kind.DECIMAL else kind


def _avg(given: Sequence[SqlType]) -> SqlType:
    kind = given[0]
    return t.decimal(t.MAX_PRECISION, max(6, kind.scale)) if kind.kind is Kind.DECIMAL else kind


def _spread(given: Sequence[SqlType]) -> SqlType:
    kind = given[0]
    return _avg(given) if kind.kind is Kind.DECIMAL else kind


def _multiset(given: Sequence[SqlType]) -> SqlType:
    return SqlType(Kind.MULTISET, parts=(given[0],))


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate function.

    Args:
        parameters: what each argument must be.
        infer: the result's type.
        counts: whether the result is 0, not null, where there is no row.
        never_null: whether it is not null then, and where all values are.
        optional: how many of the last parameters may be left out.
    """

    name: str
    parameters: tuple[str, ...]
    infer: s.Infer
    counts: bool = False
    never_null: bool = False
    optional: int = 0


def _function(name: str, parameter: str, infer: s.Infer, *more: str) -> AggregateFunction:
    return AggregateFunction(name, (parameter, *more), infer, optional=len(more))


AGGREGATES: Final = {
    function.name: function
    for function in (
        AggregateFunction("COUNT", (s.ANY,), s.always(t.BIGINT), counts=True, never_null=True),
        _function("SUM", s.NUMBER, _sum),
        _function("SUM0", s.NUMBER, _sum),
        _function("AVG", s.NUMBER, _avg),
        _function("MIN", s.ORDERED, s.like_first),
        _function("MAX", s.ORDERED, s.like_first),
        _function("FIRST_VALUE", s.ANY, s.like_first),
        _function("LAST_VALUE", s.ANY, s.like_first),
        *(_function(name, s.NUMBER, _spread) for name in ("STDDEV_POP", "STDDEV_SAMP", "STDDEV")),
        *(_function(name, s.NUMBER, _spread) for name in ("VAR_POP", "VAR_SAMP", "VARIANCE")),
        AggregateFunction("COLLECT", (s.FLAT,), _multiset, never_null=True),
        _function("LISTAGG", s.TEXT, s.always(t.STRING), s.TEXT),
        _function("ARRAY_AGG", s.ANY, lambda given: t.array(given[0])),
    )
}
"""By name."""
RANKS: Final = frozenset({"ROW_NUMBER", "RANK", "DENSE_RANK"})
OVER_ONLY: Final = frozenset({"LAG", "LEAD", "NTILE", "PERCENT_RANK", "CUME_DIST"})
