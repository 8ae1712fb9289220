"""What all kinds of random queries are drawn with: queries that something holds of, columns, conditions, aggregates.

`kinds.py` says which kinds there are; each is a function that draws one query whose parts have some depth.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from tests.tables.by_time.relations import SECOND, Col, ImpossibleError, Rel, Value, interval, micros, moved

_TRIES: Final = 40
_STEPS: Final = (-120, -30, -5, -1, 0, 1, 5, 30, 90)
"""By how many seconds a time may be behind another one."""
_TURNED: Final = {"<": ">", "<=": ">="}

Draw: TypeAlias = "Callable[[Drawing, int], Rel]"
"""Draws a query of one kind, whose parts are so deep at the most."""


@dataclass(slots=True)
class Drawing:
    """Draws one query.

    Args:
        chance: what is drawn from.
        tables: what it reads.
        kinds: of queries; one that is there twice is drawn twice as often.
        zone_us: by how many microseconds the clocks of the session are before those of times.
        finest_s: the unit of some bounds of time, in seconds.
    """

    chance: random.Random
    tables: Sequence[Rel]
    kinds: Sequence[Draw]
    zone_us: int = 0
    finest_s: float = 1
    views: list[tuple[str, str]] = field(default_factory=list)
    """What they are of, in both dialects; they are called v0, v1, ..."""
    needs_all: bool = False
    """Whether windows are over rows that may be taken back, so that no watermark may pass before all have come."""
    is_daring: bool = False
    """Whether what goes by time may be behind a join of rows of any times."""
    reads_late: bool = False
    """Whether rows are late: which ones is known where each operator has one subtask, that never fails."""
    _named: list[Rel] = field(default_factory=list)

    # Queries

    def query(self, depth: int, wanted: Callable[[Rel], bool] = lambda rel: True) -> Rel:
        """A query, of which something holds.

        Raises:
            ImpossibleError: none was found.
        """
        for _ in range(_TRIES):
            before = len(self.views), self.needs_all, self.is_daring, self.reads_late
            rel = self._any(depth)
            if wanted(rel):
                is_plain = rel in self.tables or rel in self._named
                return rel if is_plain or self.chance.random() < 0.6 else self.view(rel)
            del self.views[before[0] :], self._named[before[0] :]
            _, self.needs_all, self.is_daring, self.reads_late = before
        if wanted(self.tables[0]):
            return self.tables[0]
        raise ImpossibleError

    def _any(self, depth: int) -> Rel:
        if self._named and self.chance.random() < 0.15:
            return self.chance.choice(self._named)
        if depth == 0:
            return self.chance.choice(self.tables)
        try:
            return self.chance.choice(self.kinds)(self, depth - 1)
        except ImpossibleError:
            return self.chance.choice(self.tables)

    def view(self, rel: Rel) -> Rel:
        """A view of the query, which others may read, too."""
        name = f"SELECT * FROM v{len(self.views)}"
        self.views.append((rel.flink, rel.duck))
        self._named.append(replace(rel, flink=name, duck=name))
        return self._named[-1]

    def statements(self) -> list[tuple[str, str]]:
        """CREATE VIEW of the views, in both dialects."""
        return [
            (f"CREATE VIEW v{i} AS {one}", f"CREATE VIEW v{i} AS {other}") for i, (one, other) in enumerate(self.views)
        ]

    def part(self, depth: int, wanted: Callable[[Rel], bool] = lambda rel: True) -> Rel:
        """A query that may be less deep."""
        return self.query(self.chance.randint(0, depth), wanted)

    def timed(self, depth: int) -> Rel:
        """A query whose rows only come and can go by a time."""
        return self.query(depth, lambda rel: rel.is_append and bool(rel.times))

    def all_timed(self, depth: int, is_distinct: bool = False) -> tuple[Rel, Col]:
        """A query whose rows only come, and all have the time to go by; each has its own where it is distinct."""
        rel = self.query(
            depth, lambda rel: rel.is_append and bool(rel.times) and (rel.is_distinct_in_time or not is_distinct)
        )
        return self.present(rel, self.chance.choice(rel.times))

    def present(self, rel: Rel, col: Col) -> tuple[Rel, Col]:
        """The rows that have a value in a column."""
        if not col.may_lack:
            return rel, col
        kept = f"SELECT * FROM ({{}}) AS n WHERE n.{col.name} IS NOT NULL"
        known = replace(col, may_lack=False)
        cols = tuple(known if one is col else one for one in rel.cols)
        return replace(rel, flink=kept.format(rel.flink), duck=kept.format(rel.duck), cols=cols), known

    # Parts of queries

    def own(self, rel: Rel, alias: str) -> list[Value]:
        """Most of the columns of a query, perhaps in another order; bounds of windows always."""
        kept = [col for col in rel.cols if col.bound or self.chance.random() > (0.12 if col.is_time else 0.25)]
        kept = kept or [rel.cols[0]]
        if self.chance.random() < 0.3:
            self.chance.shuffle(kept)
        return [Value.plain(f"{alias}.{col.name}", col) for col in kept]

    def key(self, left: Rel, right: Rel) -> tuple[str, str]:
        """A column of each of both that can be compared, `l.c0` and `r.c1`."""
        kind = next(
            (kind for kind in self.chance.choice(("si", "si", "si", "si", "is")) if left.of(kind) and right.of(kind)),
            None,
        )
        if kind is None:
            raise ImpossibleError
        return f"l.{self.chance.choice(left.of(kind)).name}", f"r.{self.chance.choice(right.of(kind)).name}"

    def partition(self, rel: Rel, alias: str) -> str:
        """PARTITION BY a column, or nothing."""
        columns = rel.of("si")
        if not columns or self.chance.random() < 0.3:
            return ""
        return f"PARTITION BY {alias}.{self.chance.choice(columns).name} "

    def condition(self, rel: Rel, alias: str) -> str:
        """A condition, the same in both dialects."""
        col, number = self.chance.choice(rel.cols), self.chance.randrange(6)
        name = f"{alias}.{col.name}"
        choices = [f"{name} IS NOT NULL"]
        match col.kind:
            case "i":
                choices += [f"{name} > {number}", f"({name} <> {number} OR {name} IS NULL)"]
            case "x":
                choices += [f"{name} <= {number}"]
            case "d":
                choices += [f"{name} > 1.25", f"{name} * 2 <= 2.5"]
            case "s":
                choices += [f"{name} <> 'z'", f"COALESCE({name}, 'x') = 'x'"]
            case _:
                others = [other for other in rel.of(col.kind) if other is not col]
                choices += [f"{name} {sign} {alias}.{other.name}" for other in others[:1] for sign in ("<", "<=", "<>")]
        return self.chance.choice(choices)

    def value(self, rel: Rel, alias: str) -> Value:
        """Something that is computed."""
        times = rel.of("t")
        if times and self.chance.random() < 0.6:
            return self._time(*(f"{alias}.{self.chance.choice(times).name}" for _ in range(2)))
        if rel.of("d") and self.chance.random() < 0.4:
            name = f"{alias}.{self.chance.choice(rel.of('d')).name}"
            texts = (f"{name} + 0.25", f"{name} * 3", f"COALESCE({name}, 0.5)", f"CAST({name} AS DECIMAL(12, 1))")
            return Value.plain(self.chance.choice(texts), Col("", "d"))
        if not rel.of("i"):
            return Value.plain("1", Col("", "n"))
        name = f"{alias}.{self.chance.choice(rel.of('i')).name}"
        choices = (f"{name} + 1", f"COALESCE({name}, -1)", f"CASE WHEN {name} > 2 THEN {name} END")
        return Value.plain(self.chance.choice(choices), Col("", "i"))

    def _time(self, one: str, other: str) -> Value:
        seconds, time = self.chance.choice((-61, -1, 1, 90)), Col("", "t")
        choices = (
            Value(moved(one, seconds), f"{one} + {micros(seconds)}", time),
            Value(f"TIMESTAMPADD(SECOND, {seconds}, {one})", f"{one} + {micros(seconds)}", time),
            Value.plain(f"COALESCE({one}, {other})", time),
            Value.plain(f"CASE WHEN {one} < {other} THEN {one} ELSE {other} END", time),
            Value(
                f"TIMESTAMPDIFF(SECOND, {one}, {other})",
                f"CAST(trunc(({other} - {one}) / {SECOND}) AS BIGINT)",
                Col("", "i"),
            ),
        )
        return self.chance.choice(choices)

    def near(self, one: str, other: str) -> tuple[str, str]:
        """A condition, in both dialects, that bounds how far two times are apart."""
        unit = self.finest_s if self.chance.random() < 0.3 else 1
        low, high = sorted(self.chance.choice(_STEPS) * unit for _ in range(2))
        less, more = self.chance.choice(("<=", "<")), self.chance.choice(("<=", "<"))
        forms = (
            f"{other} - {interval(low)} {_TURNED[less]} {one} AND {moved(one, high)} {_TURNED[more]} {other}",
            f"{moved(one, low)} {less} {other} AND {moved(other, -high)} {more} {one}",
            f"{moved(one, low)} {less} {other} AND {other} {more} {moved(one, high)}",
            f"{other} BETWEEN {moved(one, low)} AND {moved(one, high)}",
        )
        form = self.chance.randrange(len(forms))
        if form == len(forms) - 1:
            less = more = "<="
        return forms[form], f"{one} + {micros(low)} {less} {other} AND {other} {more} {one} + {micros(high)}"

    def aggregate(self, rel: Rel, is_plain: bool = False) -> Value:
        """An aggregate, the same in both dialects; without DISTINCT and FILTER where it is plain."""
        calls = [("COUNT(*)", "i")]
        with_bounds = self.chance.random() < 0.3
        for col in (col for col in rel.cols if with_bounds or (col.kind != "w" and not col.is_time)):
            name = f"r.{col.name}"
            extremes = [] if col.kind in "sn" else [(f"{call}({name})", col.kind) for call in ("MIN", "MAX")]
            sums = [(f"SUM({name})", col.kind)] if col.kind in "ixd" else []
            calls += [*extremes, *sums, (f"COUNT({name})", "i")]
            if not is_plain:
                sums = [(f"SUM(DISTINCT {name})", "i")] if col.kind == "i" else []
                calls += [*sums, (f"COUNT(DISTINCT {name})", "i")]
        choices = [Value.plain(text, Col("", kind)) for text, kind in calls]
        chosen = self.chance.choice(choices)
        if is_plain or self.chance.random() > 0.2:
            return chosen
        return Value.plain(f"{chosen.flink} FILTER (WHERE {self.condition(rel, 'r')})", chosen.col)

    def order(self, rel: Rel, alias: str) -> str:
        """An order of all columns, so that only equal rows are at one place."""
        ways = ("ASC NULLS FIRST", "DESC NULLS LAST")
        chosen = self.chance.sample(list(rel.cols), len(rel.cols))
        return ", ".join(f"{alias}.{col.name} {self.chance.choice(ways)}" for col in chosen)
