"""Aggregate calls of SQL as values: which function of which column, over which rows, and what comes out.

The group aggregate takes them. A call is checked when it is made, so that a plan with a wrong one does not run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.engine.errors import GraphError, nearest

COUNTS: Final = ("count",)
SUMS: Final = ("sum", "sum0", "avg", "var_pop", "var_samp", "stddev_pop", "stddev_samp")
EXTREMES: Final = ("min", "max")
ENDS: Final = ("first_value", "last_value")
LISTS: Final = ("array_agg", "listagg")
MULTISETS: Final = ("collect",)
FUNCTIONS: Final = (*COUNTS, *SUMS, *EXTREMES, *ENDS, *LISTS, *MULTISETS)


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate.

    Args:
        function: one of `FUNCTIONS`. Nulls are skipped, but by `array_agg`; of no values the result is null, but for
            `count` and `sum0`, which are 0. `collect` makes a map of values and how often each is there, which may be
            empty. `first_value`,
            `last_value`, `array_agg` and `listagg` go by the order of arrival.
        name: of the result's column.
        type: of the result. An average of type integer is cut off, and one of type decimal rounded half up; sums of
            integers wrap, as Flink's.
        argument: the column; None for `count` of all rows.
        distinct: whether equal values count once.
        filter: a boolean column: rows where it is not true do not count. None: all do.
        separator: between the texts of `listagg`.

    Raises:
        GraphError: no such function, or its argument is missing.

    Example:
        >>> AggregateCall("sum", "total", pa.int64(), "amount").function
        'sum'
    """

    function: str
    name: str
    type: pa.DataType
    argument: str | None = None
    distinct: bool = False
    filter: str | None = None
    separator: str = ","

    def __post_init__(self) -> None:
        if self.function not in FUNCTIONS:
            raise GraphError(
                f"aggregate {self.name!r}: there is no function {self.function!r}{nearest(self.function, FUNCTIONS)}; "
                f"there are {', '.join(FUNCTIONS)}"
            )
        if self.argument is None and (self.function != "count" or self.distinct):
            raise GraphError(f"aggregate {self.name!r}: {self.function} needs a column; give argument=...")

    @property
    def is_distinct(self) -> bool:
        """Whether it matters that equal values count once: of extremes, and of a single end, it does not."""
        return self.distinct and self.function not in (*EXTREMES, *ENDS)

    def describe(self) -> str:
        """As `explain()` shows it."""
        shown = "*" if self.argument is None else self.argument
        inside = f"distinct {shown}" if self.distinct else shown
        condition = "" if self.filter is None else f" filter {self.filter}"
        return f"{self.name}={self.function}({inside}){condition}"
