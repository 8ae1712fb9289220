"""Random queries over a stream whose rows come late, too: windows, OVER, first rows, patterns.

A row knows the watermark before it, `w` (int64 ms), and the session of its key that it is in, if it is not late for it:
then DuckDB can leave out what is late.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tests.property.cuts.models import SessionsOfOne
from tests.tables.by_time.drawing import Drawing
from tests.tables.by_time.relations import Col, Rel, Span, Value, interval, made

GAPS_S: Final = (3, 10, 20)
ROWS: Final = Rel(
    "SELECT id AS c0, k AS c1, v AS c2, x AS c3, ts AS c4 FROM l",
    "SELECT id AS c0, k AS c1, v AS c2, x AS c3, ts AS c4, w FROM l",
    tuple(Col(f"c{place}", kind, kind == "t", kind != "t") for place, kind in enumerate("isixt")),
)
"""The stream, with `w` in DuckDB alone."""
_OPEN: Final = "fdiv(r.c4, 1000) > r.w"


def session_columns(rows: Sequence[dict[str, Any]], zone_us: int) -> dict[str, list[int | None]]:
    """First and last bound of each row's session, null for late ones, by gap, of all rows or by `k`: microseconds."""
    columns: dict[str, list[int | None]] = {}
    for gap in GAPS_S:
        for by in ("", "k"):
            found = _sessions(rows, gap * 1000, by)
            for side, name in enumerate("se"):
                columns[f"{name}{gap}{by}"] = [one and one[side] * 1000 + zone_us for one in found]
    return columns


def _sessions(rows: Sequence[dict[str, Any]], gap_ms: int, by: str) -> list[tuple[int, int] | None]:
    sessions: dict[Any, SessionsOfOne] = {}
    found: list[tuple[int, int] | None] = [None] * len(rows)
    for number, row in enumerate(rows):
        of_key = sessions.setdefault(row[by] if by else None, SessionsOfOne())
        for members, window in of_key.closed(row["w"]):
            for member in members:
                found[member] = window
        of_key.add(number, row["ts"] // 1000, gap_ms, row["w"])
    for of_key in sessions.values():
        for members, window in of_key.closed(2**62):
            for member in members:
                found[member] = window
    return found


def late_windows(drawing: Drawing, depth: int) -> Rel:
    """Groups of windows; a row counts for those that have not ended when it comes."""
    chance, drawing.reads_late = drawing.chance, True
    kind, size = chance.choice(("TUMBLE", "HOP", "CUMULATE", "SESSION", "SESSION")), chance.choice((10, 30, 60))
    keys = ["w.c1"] if chance.random() < 0.6 else []
    if kind == "SESSION":
        gap = chance.choice(GAPS_S)
        by = "k" if keys else ""
        flink_rows = Span(kind, gap).flink("TABLE late" + (" PARTITION BY c1" if keys else ""), "c4")
        names = ", ".join(f"l.{name}" for name in ("id AS c0", "k AS c1", "v AS c2", "x AS c3", "ts AS c4"))
        duck_rows = (
            f"SELECT {names}, s{gap}{by} AS window_start, e{gap}{by} AS window_end FROM l WHERE s{gap}{by} IS NOT NULL"
        )
        duck_rows = f"SELECT *, window_end - 1000 - {drawing.zone_us} AS window_time FROM ({duck_rows}) AS i"
    else:
        step = chance.choice((size // 2, size, size // 5)) if kind != "TUMBLE" else 0
        span = Span(kind, size, step, chance.choice((0, 3, -7)))
        flink_rows = span.flink("TABLE late", "c4")
        duck_rows = (
            f"SELECT * FROM ({span.duck(ROWS.duck, 'c4', '', drawing.zone_us)}) AS i WHERE window_time > w * 1000"
        )
    groups = [
        Value.plain("w.window_start", Col("", "w", False, False, "start")),
        Value.plain("w.window_end", Col("", "w", False, False, "end")),
    ]
    if chance.random() < 0.5:
        groups.append(Value.plain("w.window_time", Col("", "t", True, False)))
    values = [*groups, *(Value.plain(key, Col("", "s")) for key in keys)]
    calls = (
        ("COUNT(*)", "i"),
        ("SUM(w.c2)", "i"),
        ("MIN(w.c4)", "t"),
        ("MAX(w.c3)", "x"),
        ("COUNT(DISTINCT w.c2)", "i"),
    )
    values += [Value.plain(text, Col("", of)) for text, of in chance.sample(calls, 2)]
    grouping = ", ".join([*(group.flink for group in groups), *keys])
    behind = f" AS w GROUP BY {grouping}"
    return made((f"FROM {flink_rows}{behind}", f"FROM ({duck_rows}){behind}"), values)


def _own(drawing: Drawing, alias: str) -> list[Value]:
    kept = [col for col in ROWS.cols if col.is_time or drawing.chance.random() < 0.7]
    return [Value.plain(f"{alias}.{col.name}", col) for col in kept]


def late_over(drawing: Drawing, depth: int) -> Rel:
    """Aggregates over the rows before each one; a row at or behind the watermark is left out."""
    drawing.reads_late = True
    part = drawing.chance.choice(("", "PARTITION BY r.c1 "))
    seconds = drawing.chance.choice((0, 1, 15))
    calls = drawing.chance.sample((("COUNT(*)", "i"), ("SUM(r.c2)", "i"), ("MAX(r.c3)", "x")), 2)
    values = [
        Value(
            f"{call} OVER ({part}ORDER BY r.c4 RANGE BETWEEN {interval(seconds)} PRECEDING AND CURRENT ROW)",
            f"{call} OVER ({part}ORDER BY fdiv(r.c4, 1000) RANGE BETWEEN {seconds * 1000} PRECEDING AND CURRENT ROW)",
            Col("", kind),
        )
        for call, kind in calls
    ]
    rows = ("FROM late AS r", f"FROM (SELECT * FROM ({ROWS.duck}) AS r WHERE {_OPEN}) AS r")
    return made(rows, [*_own(drawing, "r"), *values])


def late_first(drawing: Drawing, depth: int) -> Rel:
    """The first row of each key, by time."""
    drawing.reads_late = True
    part = drawing.chance.choice(("", "PARTITION BY r.c1 "))
    ranked = f"SELECT r.*, ROW_NUMBER() OVER ({part}ORDER BY r.c4) AS rn FROM"
    rows = (
        f"FROM ({ranked} late AS r) AS q WHERE q.rn = 1",
        f"FROM ({ranked} (SELECT * FROM ({ROWS.duck}) AS r WHERE {_OPEN}) AS r) AS q WHERE q.rn = 1",
    )
    return made(rows, _own(drawing, "q"))


def late_matched(drawing: Drawing, depth: int) -> Rel:
    """Two rows one behind the other."""
    drawing.reads_late = True
    part = drawing.chance.choice(("", "PARTITION BY c1 "))
    flink = (
        f"FROM late MATCH_RECOGNIZE ({part}ORDER BY c4 MEASURES A.c0 AS m0, B.c0 AS m1, MATCH_ROWTIME() AS m2 "
        "ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) DEFINE B AS B.c2 >= A.c2) AS m"
    )
    order = f"OVER ({part}ORDER BY c4)"
    pairs = (
        f"SELECT c0 AS m0, lead(c0) {order} AS m1, c2 AS before, lead(c2) {order} AS behind, "
        f"fdiv(lead(c4) {order}, 1000) * 1000 AS m2 FROM ({ROWS.duck}) AS r WHERE {_OPEN}"
    )
    values = [Value.plain(f"m.m{place}", Col("", kind, kind == "t", False)) for place, kind in enumerate("iit")]
    return made((flink, f"FROM ({pairs}) AS m WHERE m.behind >= m.before"), values)
