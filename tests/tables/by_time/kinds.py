"""The kinds of random queries but those of windows: joins, what goes by the order of time, and plain ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.tables.by_time.collections import as_changes, lateral, unnested
from tests.tables.by_time.drawing import Draw, Drawing
from tests.tables.by_time.late import late_first, late_matched, late_over, late_windows
from tests.tables.by_time.relations import Col, ImpossibleError, Rel, Span, Value, interval, made, micros, moved
from tests.tables.by_time.windows import window_first, window_groups, window_join, windows

_OUTER: Final = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
VERSIONS: Final = "versions"
"""A table of c0 (its key), c1 and the time from which on a row counts, c2; in DuckDB of all rows, with `op`."""


def both(left: Rel, right: Rel, between: str, behind: tuple[str, str] = ("", "")) -> tuple[str, str]:
    """FROM of two queries, l and r, in both dialects."""
    return (
        f"FROM ({left.flink}) AS l {between} ({right.flink}) AS r{behind[0]}",
        f"FROM ({left.duck}) AS l {between} ({right.duck}) AS r{behind[1]}",
    )


def of_one(rel: Rel, alias: str, behind: str = "") -> tuple[str, str]:
    """FROM of one query, in both dialects."""
    return f"FROM ({rel.flink}) AS {alias}{behind}", f"FROM ({rel.duck}) AS {alias}{behind}"


def computed(drawing: Drawing, depth: int) -> Rel:
    """Columns, values and a condition."""
    rel = drawing.query(depth)
    values = drawing.own(rel, "r")
    if drawing.chance.random() < 0.5:
        values.append(drawing.value(rel, "r"))
    where = f" WHERE {drawing.condition(rel, 'r')}" if drawing.chance.random() < 0.6 else ""
    return made(of_one(rel, "r", where), values, rel.is_append, rel.is_distinct_in_time)


# Joins


def _of_both(drawing: Drawing, left: Rel, right: Rel, kind: str) -> list[Value]:
    """Columns of both sides, which may lack where the other may stand alone."""
    values = []
    for rel, alias, alone in ((left, "l", ("RIGHT JOIN", "FULL JOIN")), (right, "r", ("LEFT JOIN", "FULL JOIN"))):
        values += [v.but(bound=None, may_lack=v.col.may_lack or kind in alone) for v in drawing.own(rel, alias)]
    return values


def near(drawing: Drawing, depth: int) -> Rel:
    """A join within an interval."""
    left = drawing.timed(depth)
    right = drawing.timed(drawing.chance.randint(0, depth))
    one, other = drawing.key(left, right)
    times = f"l.{drawing.chance.choice(left.times).name}", f"r.{drawing.chance.choice(right.times).name}"
    bounds = drawing.near(*times)
    kind = drawing.chance.choice(("JOIN", *_OUTER))
    values = _of_both(drawing, left, right, kind)
    if kind == "JOIN" and drawing.chance.random() < 0.3:
        on = tuple(f" WHERE {one} = {other} AND {bound}" for bound in bounds)
        return made(both(left, right, ",", (on[0], on[1])), values)
    more = ""
    if left.of("i") and right.of("i") and drawing.chance.random() < 0.2:
        more = f" AND l.{left.of('i')[0].name} < r.{right.of('i')[-1].name}"
    on = tuple(f" ON {one} = {other} AND {bound}{more}" for bound in bounds)
    return made(both(left, right, kind, (on[0], on[1])), values)


def joined(drawing: Drawing, depth: int) -> Rel:
    """A join of rows of any times, also where a bound of time is open."""
    left, right = drawing.query(depth), drawing.part(depth)
    one, other = drawing.key(left, right)
    kind, on = drawing.chance.choice(_OUTER), f"{one} = {other}"
    if drawing.chance.random() < 0.4 and left.of("t") and right.of("t"):
        times = drawing.chance.choice(left.of("t")).name, drawing.chance.choice(right.of("t")).name
        on += f" AND l.{times[0]} <= r.{times[1]}"
    values = _of_both(drawing, left, right, kind)
    if drawing.chance.random() < 0.3:
        drawing.is_daring = True
    else:
        values = [value.but(is_time=False) for value in values]
    is_append = kind == "JOIN" and left.is_append and right.is_append
    return made(both(left, right, kind, (f" ON {on}",) * 2), values, is_append)


def met(drawing: Drawing, depth: int) -> Rel:
    """Rows for which another query has one, or none."""
    outer, inner = drawing.query(depth), drawing.part(depth)
    one, other = drawing.key(outer, inner)
    negated = drawing.chance.choice(("", "NOT "))
    tests = [
        (f"{one} {negated}IN (SELECT {other} FROM ({{}}) AS r)",) * 2,
        (f"{negated}EXISTS (SELECT 1 FROM ({{}}) AS r WHERE {one} = {other})",) * 2,
    ]
    if outer.of("t") and inner.of("t"):
        times = f"l.{drawing.chance.choice(outer.of('t')).name}", f"r.{drawing.chance.choice(inner.of('t')).name}"
        flink, duck = (
            f"{negated}EXISTS (SELECT 1 FROM ({{}}) AS r WHERE {one} = {other} AND {bound})"
            for bound in drawing.near(*times)
        )
        tests.append((flink, duck))
    flink, duck = drawing.chance.choice(tests)
    rows = (
        f"FROM ({outer.flink}) AS l WHERE {flink.format(inner.flink)}",
        f"FROM ({outer.duck}) AS l WHERE {duck.format(inner.duck)}",
    )
    values = [value.but(is_time=False, bound=None) for value in drawing.own(outer, "l")]
    return made(rows, values, not negated and outer.is_append and inner.is_append)


def as_of(drawing: Drawing, depth: int) -> Rel:
    """Each row with the version of its time."""
    rel = drawing.timed(depth)
    if not rel.of("s"):
        raise ImpossibleError
    key, time = f"l.{drawing.chance.choice(rel.of('s')).name}", f"l.{drawing.chance.choice(rel.times).name}"
    kind = drawing.chance.choice(("LEFT JOIN", "JOIN"))
    version = (
        f"(SELECT * FROM {VERSIONS} AS x WHERE x.c0 = {key} AND fdiv(x.c2, 1000) <= fdiv({time}, 1000) "
        "ORDER BY x.c2 DESC LIMIT 1) AS v ON v.op <> '-D'"
    )
    rows = (
        f"FROM ({rel.flink}) AS l {kind} {VERSIONS} FOR SYSTEM_TIME AS OF {time} AS v ON {key} = v.c0",
        f"FROM ({rel.duck}) AS l {kind} LATERAL {version}",
    )
    found = [Value.plain("v.c1", Col("", "i")), Value.plain("v.c2", Col("", "t"))]
    return made(rows, [*drawing.own(rel, "l"), *found], True, rel.is_distinct_in_time)


# By the order of time


def over(drawing: Drawing, depth: int) -> Rel:
    """Aggregates over the rows before each one."""
    rel, time = drawing.all_timed(depth)
    part, seconds = drawing.partition(rel, "r"), drawing.chance.choice((0, 1, 15, 60))
    whole = "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    frames = [
        ("", ""),
        (whole, whole),
        (
            f"RANGE BETWEEN {interval(seconds)} PRECEDING AND CURRENT ROW",
            f"RANGE BETWEEN {seconds * 1000} PRECEDING AND CURRENT ROW",
        ),
    ]
    if rel.is_distinct_in_time:
        frames += [(f"ROWS BETWEEN {first} PRECEDING AND CURRENT ROW",) * 2 for first in ("2", "2", "UNBOUNDED")]
    frame = drawing.chance.choice(frames)
    calls = [drawing.aggregate(rel, is_plain=True) for _ in range(drawing.chance.randint(1, 2))]
    values = [
        Value(
            f"{call.flink} OVER ({part}ORDER BY r.{time.name} {frame[0]})",
            f"{call.duck} OVER ({part}ORDER BY fdiv(r.{time.name}, 1000) {frame[1]})",
            call.col,
        )
        for call in calls
    ]
    return made(of_one(rel, "r"), [*drawing.own(rel, "r"), *values], True, rel.is_distinct_in_time)


def updating_over(drawing: Drawing, depth: int) -> Rel:
    """Aggregates over the rows before each one, of rows that change, or against time."""
    rel = drawing.query(depth, lambda rel: bool(rel.of("t")))
    rel, time = drawing.present(rel, drawing.chance.choice(rel.of("t")))
    part, way = drawing.partition(rel, "r"), "DESC"
    if not rel.is_append or not time.is_time:
        way = drawing.chance.choice(("ASC", "DESC"))
    call = drawing.aggregate(rel, is_plain=True)
    value = Value.plain(f"{call.flink} OVER ({part}ORDER BY r.{time.name} {way})", call.col)
    values = [one.but(is_time=False, bound=None) for one in drawing.own(rel, "r")]
    return made(of_one(rel, "r"), [*values, value], False)


def _numbered(rel: Rel, over_text: str, bound: str) -> tuple[str, str]:
    """Rows whose number is bounded, in both dialects."""
    ranked = f"SELECT r.*, ROW_NUMBER() OVER ({over_text}) AS rn FROM"
    return (
        f"FROM ({ranked} ({rel.flink}) AS r) AS q WHERE q.rn {bound}",
        f"FROM ({ranked} ({rel.duck}) AS r) AS q WHERE q.rn {bound}",
    )


def first(drawing: Drawing, depth: int) -> Rel:
    """First rows by any order."""
    rel = drawing.query(depth)
    order = drawing.order(rel, "r")
    if rel.of("t") and drawing.chance.random() < 0.6:
        way = drawing.chance.choice(("ASC NULLS FIRST", "DESC NULLS LAST"))
        order = f"r.{drawing.chance.choice(rel.of('t')).name} {way}, {order}"
    bound = drawing.chance.choice(("= 1", "<= 2", "<= 3", "= 2"))
    rows = _numbered(rel, f"{drawing.partition(rel, 'r')}ORDER BY {order}", bound)
    return made(rows, [value.but(bound=None) for value in drawing.own(rel, "q")], False)


def deduplicated(drawing: Drawing, depth: int) -> Rel:
    """The first or the last row of each key, by time."""
    rel, time = drawing.all_timed(depth, is_distinct=True)
    way, bound = drawing.chance.choice(("", " ASC", " DESC")), drawing.chance.choice(("= 1", "= 1", "<= 3"))
    rows = _numbered(rel, f"{drawing.partition(rel, 'r')}ORDER BY r.{time.name}{way}", bound)
    values = drawing.own(rel, "q")
    if way == " DESC" or bound != "= 1":
        return made(rows, [value.but(bound=None) for value in values], False, True)
    return made(rows, values, True, True)


def matched(drawing: Drawing, depth: int) -> Rel:
    """Two rows one behind the other."""
    rel, time = drawing.all_timed(depth, is_distinct=True)
    if not rel.of("i"):
        raise ImpossibleError
    number, at = drawing.chance.choice(rel.of("i")).name, time.name
    key = drawing.chance.choice(rel.of("s")).name if rel.of("s") else None
    part = "" if key is None else f"PARTITION BY {key} "
    test = drawing.chance.choice((">=", "<", "<>"))
    flink = (
        f"FROM ({rel.flink}) MATCH_RECOGNIZE ({part}ORDER BY {at} MEASURES A.{number} AS m0, B.{number} AS m1, "
        f"A.{at} AS m2, MATCH_ROWTIME() AS m3 ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) "
        f"DEFINE B AS B.{number} {test} A.{number}) AS m"
    )
    order = f"OVER ({part}ORDER BY {at})"
    # MATCH_ROWTIME has milliseconds.
    pairs = (
        f"SELECT *, {number} AS m0, lead({number}) {order} AS m1, {at} AS m2, "
        f"fdiv(lead({at}) {order}, 1000) * 1000 AS m3 FROM ({rel.duck}) AS i"
    )
    values = [Value.plain(f"m.m{i}", Col("", kind, i == 3, i < 2)) for i, kind in enumerate("iitt")]
    if key is not None:
        values.append(Value.plain(f"m.{key}", Col("", "s")))
    return made((flink, f"FROM ({pairs}) AS m WHERE m.m1 {test} m.m0"), values, True, True)


# Others


def limited(drawing: Drawing, depth: int) -> Rel:
    """The first rows of an order."""
    rel = drawing.query(depth)
    order = drawing.order(rel, "r")
    if rel.times and drawing.chance.random() < 0.7:
        order = f"r.{drawing.chance.choice(rel.times).name} ASC NULLS FIRST, {order}"
    rows = of_one(rel, "r", f" ORDER BY {order} LIMIT {drawing.chance.choice((1, 5, 10))}")
    values = [Value.plain(f"r.{col.name}", replace(col, bound=None)) for col in rel.cols]
    drawing.is_daring = True
    return made(rows, values, rel.is_append)


def sets(drawing: Drawing, depth: int) -> Rel:
    """The rows of two queries."""
    one, other = drawing.query(depth), drawing.part(depth)
    pairs: list[tuple[Col, Col]] = []
    left = list(one.cols)
    for col in other.cols:
        same = next((c for c in left if (c.kind, c.is_time) == (col.kind, col.is_time)), None)
        if same is not None:
            left.remove(same)
            pairs.append((same, col))
    if not pairs:
        raise ImpossibleError
    operator = drawing.chance.choice(
        ("UNION ALL",) * 3 + ("UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL")
    )
    is_all = operator == "UNION ALL"
    names = [", ".join(f"{pair[side].name} AS c{i}" for i, pair in enumerate(pairs)) for side in (0, 1)]
    cols = tuple(
        replace(
            a,
            name=f"c{i}",
            is_time=a.is_time and is_all,
            may_lack=a.may_lack or b.may_lack,
            bound=a.bound if a.bound == b.bound and is_all else None,
        )
        for i, (a, b) in enumerate(pairs)
    )
    flink, duck = (
        f"SELECT {names[0]} FROM ({left_text}) AS l {operator} SELECT {names[1]} FROM ({right_text}) AS r"
        for left_text, right_text in ((one.flink, other.flink), (one.duck, other.duck))
    )
    return Rel(flink, duck, cols, is_all and one.is_append and other.is_append)


def grouped(drawing: Drawing, depth: int) -> Rel:
    """Groups whose results change; times among the keys stay times."""
    rel = drawing.query(depth)
    keys = drawing.chance.sample(list(rel.cols), min(len(rel.cols), drawing.chance.randint(1, 2)))
    values = [Value.plain(f"r.{col.name}", replace(col, bound=None)) for col in keys]
    grouping = ", ".join(value.flink for value in values)
    values += [drawing.aggregate(rel) for _ in range(drawing.chance.randint(0, 2))]
    return made(of_one(rel, "r", f" GROUP BY {grouping}"), values, False)


def held(drawing: Drawing, depth: int) -> Rel:
    """What goes by the earlier time of a join within an interval, for which watermarks wait."""
    left, right = drawing.timed(depth), drawing.timed(0)
    one, other = drawing.key(left, right)
    times = drawing.chance.choice(left.times), drawing.chance.choice(right.times)
    low, high = drawing.chance.choice(((-120, 0), (0, 120), (-60, 90)))
    flink = f"r.{times[1].name} BETWEEN {moved(f'l.{times[0].name}', low)} AND {moved(f'l.{times[0].name}', high)}"
    at = f"l.{times[0].name}"
    duck = f"r.{times[1].name} BETWEEN {at} + {micros(low)} AND {at} + {micros(high)}"
    kind = drawing.chance.choice(("JOIN", "JOIN", *_OUTER))
    values = [
        value.but(
            bound=None, may_lack=value.col.may_lack or kind != "JOIN", is_time=value.flink in (at, f"r.{times[1].name}")
        )
        for rel, alias in ((left, "l"), (right, "r"))
        for value in (Value.plain(f"{alias}.{col.name}", col) for col in rel.cols)
    ]
    on = tuple(f" ON {one} = {other} AND {bound}" for bound in (flink, duck))
    joined_rows = made(both(left, right, kind, (on[0], on[1])), values)
    time = drawing.chance.choice(joined_rows.times).name
    if drawing.chance.random() < 0.5:
        rel, known = drawing.present(joined_rows, next(col for col in joined_rows.cols if col.name == time))
        number = Value(
            f"COUNT(*) OVER (ORDER BY r.{known.name})",
            f"COUNT(*) OVER (ORDER BY fdiv(r.{known.name}, 1000))",
            Col("", "i"),
        )
        return made(of_one(rel, "r"), [*drawing.own(rel, "r"), number])
    span = Span("TUMBLE", drawing.chance.choice((3, 10)))
    rows = (
        f"FROM {span.flink(f'({joined_rows.flink})', time)} AS w GROUP BY w.window_start, w.window_end",
        f"FROM ({span.duck(joined_rows.duck, time, '', drawing.zone_us)}) AS w GROUP BY w.window_start, w.window_end",
    )
    bounds = [Value.plain(f"w.window_{bound}", Col("", "w", False, False, bound)) for bound in ("start", "end")]
    return made(rows, [*bounds, Value.plain("COUNT(*)", Col("", "i"))])


KINDS: Final[tuple[Draw, ...]] = (
    *(near,) * 4,
    *(windows,) * 2,
    *(window_groups,) * 2,
    *(over,) * 2,
    computed,
    joined,
    met,
    as_of,
    updating_over,
    first,
    limited,
    deduplicated,
    matched,
    window_first,
    window_join,
    sets,
    grouped,
    held,
    unnested,
    lateral,
    as_changes,
    late_windows,
    late_over,
    late_first,
    late_matched,
)
"""All of them."""
