"""Queries in two texts, in Flink's dialect and in DuckDB's over numbers, with what is known of their columns.

In DuckDB a time is a BIGINT of microseconds, so that what windows, bounds and frames mean stands in plain arithmetic;
`fdiv(a, b)` is a macro that rounds down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

SECOND: Final = 1_000_000
"""Microseconds."""


class ImpossibleError(Exception):
    """What was drawn cannot be made of what there is."""


@dataclass(frozen=True, slots=True)
class Col:
    """A column of a query.

    Args:
        name: in both texts.
        kind: "i" BIGINT, "s" STRING, "x" DOUBLE, "t" a time as the inputs have it, "w" a bound of a window.
        is_time: whether rows can go by it.
        may_lack: whether it may be null.
        bound: "start" or "end" of the window that the row is in.
    """

    name: str
    kind: str
    is_time: bool = False
    may_lack: bool = True
    bound: str | None = None


@dataclass(frozen=True, slots=True)
class Rel:
    """A query.

    Args:
        flink: in Flink's dialect.
        duck: in DuckDB's.
        cols: named c0, c1, ...
        is_append: whether its rows are only inserted.
        is_distinct_in_time: whether no two rows have one millisecond, in its one column of time.
    """

    flink: str
    duck: str
    cols: tuple[Col, ...]
    is_append: bool = True
    is_distinct_in_time: bool = False

    @property
    def times(self) -> list[Col]:
        """The columns that rows can go by."""
        return [col for col in self.cols if col.is_time]

    @property
    def is_windowed(self) -> bool:
        """Whether it has both bounds of the windows that its rows are in."""
        return {"start", "end"} <= {col.bound for col in self.cols}

    def of(self, kinds: str) -> list[Col]:
        """The columns of some kinds."""
        return [col for col in self.cols if col.kind in kinds]

    @property
    def bounds(self) -> list[Col]:
        """Those of its windows."""
        return [next(col for col in self.cols if col.bound == bound) for bound in ("start", "end")]


@dataclass(frozen=True, slots=True)
class Value:
    """What stands in SELECT, in both dialects, and the column that it makes, whatever its name."""

    flink: str
    duck: str
    col: Col

    @classmethod
    def plain(cls, text: str, col: Col) -> Value:
        """One that is the same in both."""
        return cls(text, text, col)

    def but(self, **changes: Any) -> Value:
        """With another column."""
        return replace(self, col=replace(self.col, **changes))


def made(
    rows: tuple[str, str],
    values: Sequence[Value],
    is_append: bool = True,
    is_distinct_in_time: bool = False,
) -> Rel:
    """SELECT of values in front of what follows, FROM and on, in both dialects."""
    flink = ", ".join(f"{value.flink} AS c{place}" for place, value in enumerate(values))
    duck = ", ".join(f"{value.duck} AS c{place}" for place, value in enumerate(values))
    cols = tuple(replace(value.col, name=f"c{place}") for place, value in enumerate(values))
    is_distinct = is_distinct_in_time and sum(col.is_time for col in cols) == 1
    return Rel(f"SELECT {flink} {rows[0]}", f"SELECT {duck} {rows[1]}", cols, is_append, is_distinct)


@dataclass(frozen=True, slots=True)
class Span:
    """Windows; lengths in seconds. The size of SESSION is its gap."""

    kind: str
    size: int
    step: int = 0
    offset: int = 0

    def flink(self, table: str, column: str) -> str:
        """The call of the function over a table, `TABLE t` or `(query)`."""
        offset = f", {interval(self.offset)}" if self.offset else ""
        lengths = {"HOP": (self.step, self.size), "CUMULATE": (self.step, self.size)}.get(self.kind, (self.size,))
        shown = ", ".join(interval(length) for length in lengths)
        return f"TABLE({self.kind}({table}, DESCRIPTOR({column}), {shown}{offset}))"

    def duck(self, rows: str, time: str, partition: str, zone_us: int) -> str:
        """A query of the rows with window_start, window_end and window_time behind their columns.

        Args:
            rows: a query.
            time: the column that they go by.
            partition: the column that tells sessions apart; empty for none.
            zone_us: by how many microseconds the clocks of the session are before those of times.
        """
        given = f"SELECT *, fdiv({time} + {zone_us}, 1000) * 1000 AS w_at FROM ({rows}) AS i WHERE {time} IS NOT NULL"
        spread = self._sessions(given, partition) if self.kind == "SESSION" else self._aligned(given)
        return f"SELECT *, window_end - 1000 - {zone_us} AS window_time FROM ({spread}) AS i"

    def _sessions(self, rows: str, partition: str) -> str:
        gap, by = self.size * SECOND, f"PARTITION BY {partition} " if partition else ""
        # Sessions that touch are one, as in Flink.
        is_new = f"CASE WHEN w_at - lag(w_at) OVER ({by}ORDER BY w_at) <= {gap} THEN 0 ELSE 1 END"
        numbered = (
            f"SELECT *, SUM(w_new) OVER ({by}ORDER BY w_at) AS w_n FROM (SELECT *, {is_new} AS w_new FROM ({rows}))"
        )
        session = f"PARTITION BY w_n, {partition}" if partition else "PARTITION BY w_n"
        bounds = f"MIN(w_at) OVER ({session}) AS window_start, MAX(w_at) OVER ({session}) + {gap} AS window_end"
        return f"SELECT *, {bounds} FROM ({numbered})"

    def _aligned(self, rows: str) -> str:
        size, step, offset = self.size * SECOND, (self.step or self.size) * SECOND, self.offset * SECOND
        if self.kind == "CUMULATE":
            first = f"(fdiv(w_at - {offset}, {size}) * {size} + {offset})"
            ends = f"[e for e in range({first} + {step}, {first} + {size} + 1, {step}) if e > w_at]"
            start = f"fdiv(window_end - 1 - {offset}, {size}) * {size} + {offset}"
        else:
            last = f"(fdiv(w_at - {offset}, {step}) * {step} + {offset})"
            starts = f"range({last} - {size // step * step}, {last} + 1, {step})"
            ends = f"[s + {size} for s in {starts} if s <= w_at and s + {size} > w_at]"
            start = f"window_end - {size}"
        return f"SELECT *, {start} AS window_start FROM (SELECT *, unnest({ends}) AS window_end FROM ({rows}))"


def interval(seconds: float) -> str:
    """A length of time in Flink's dialect.

    Example:
        >>> interval(30), interval(-120)
        ("INTERVAL '30' SECOND", "-INTERVAL '2' MINUTE")
    """
    if seconds < 0:
        return f"-{interval(-seconds)}"
    return f"INTERVAL '{seconds:g}' SECOND" if seconds < 100 else f"INTERVAL '{seconds / 60:g}' MINUTE"


def moved(time: str, seconds: float) -> str:
    """A time and so many seconds, in Flink's dialect."""
    if not seconds:
        return time
    return f"{time} {'-' if seconds < 0 else '+'} {interval(abs(seconds))}"


def micros(seconds: float) -> int:
    """Seconds as what is counted in DuckDB."""
    return round(seconds * SECOND)
