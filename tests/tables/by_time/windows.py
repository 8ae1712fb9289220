"""Random queries of windows: their rows, groups, first rows and joins."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.tables.by_time.drawing import Drawing
from tests.tables.by_time.relations import Col, Rel, Span, Value, made

_BOUNDS: Final = (
    Value.plain("w.window_start", Col("", "w", False, False, "start")),
    Value.plain("w.window_end", Col("", "w", False, False, "end")),
    Value.plain("w.window_time", Col("", "t", True, False)),
)
_JOINS: Final = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "EXISTS", "NOT EXISTS", "IN")


def _span(drawing: Drawing) -> Span:
    choice = drawing.chance.choice
    kind, size = choice(("TUMBLE", "TUMBLE", "HOP", "HOP", "CUMULATE", "SESSION")), choice((10, 30, 60))
    offset = choice((0, 0, 3, -7))
    match kind:
        case "HOP":
            return Span(kind, size, choice((size // 2, size, size * 2, size // 5, 7)), offset)
        case "CUMULATE":
            return Span(kind, size, choice((size // 2, size, size // 5)), offset)
        case "SESSION":
            return Span(kind, choice((3, 10, 20)))
    return Span(kind, size, 0, offset)


def windows(drawing: Drawing, depth: int) -> Rel:
    """The rows of a query in windows."""
    return _in(drawing, depth, _span(drawing))


def _in(drawing: Drawing, depth: int, span: Span) -> Rel:
    rel = drawing.query(depth, lambda rel: bool(rel.times))
    time = drawing.chance.choice(rel.times).name
    if not rel.is_append and rel not in drawing.tables:
        drawing.needs_all = True
    partition = ""
    if span.kind == "SESSION" and rel.of("si") and drawing.chance.random() < 0.7:
        partition = drawing.chance.choice(rel.of("si")).name
        rel = rel if rel.flink.startswith("SELECT * FROM v") else drawing.view(rel)
    table = f"({rel.flink})"
    if rel.flink.startswith("SELECT * FROM v"):
        table = f"TABLE {rel.flink.removeprefix('SELECT * FROM ')}"
    if partition:
        table += f" PARTITION BY {partition}"
    rows = (
        f"FROM {span.flink(table, time)} AS w",
        f"FROM ({span.duck(rel.duck, time, partition, drawing.zone_us)}) AS w",
    )
    values = [value.but(is_time=False, bound=None) for value in drawing.own(rel, "w")]
    return made(rows, [*values, *_BOUNDS], rel.is_append)


def _windowed(drawing: Drawing, depth: int) -> Rel:
    if drawing.chance.random() < 0.3:
        return drawing.query(depth, lambda rel: rel.is_windowed)
    return windows(drawing, depth)


def window_groups(drawing: Drawing, depth: int) -> Rel:
    """Aggregates of windows."""
    rel = _windowed(drawing, depth)
    groups = [Value.plain(f"r.{col.name}", col) for col in rel.bounds]
    if rel.times and drawing.chance.random() < 0.6:
        groups.append(Value.plain(f"r.{rel.times[-1].name}", rel.times[-1]))
    columns = rel.of("sixd")
    keys = drawing.chance.sample(columns, min(len(columns), drawing.chance.randint(0, 2)))
    shown = [f"r.{col.name}" for col in keys]
    grouping = ", ".join([*(group.flink for group in groups), *shown])
    if keys and drawing.chance.random() < 0.3:
        sets = (f"GROUPING SETS (({shown[0]}), ({', '.join(shown)}), ())",)
        sets += tuple(f"{name} ({', '.join(shown)})" for name in ("CUBE", "ROLLUP"))
        grouping = ", ".join([*(group.flink for group in groups), drawing.chance.choice(sets)])
        keys = [replace(col, may_lack=True) for col in keys]
    values = [*groups, *(Value.plain(name, col) for name, col in zip(shown, keys, strict=True))]
    drawing.chance.shuffle(values)
    values += [drawing.aggregate(rel) for _ in range(drawing.chance.randint(0 if keys else 1, 3))]
    having = " HAVING COUNT(*) > 1" if drawing.chance.random() < 0.2 else ""
    behind = f" AS r GROUP BY {grouping}{having}"
    return made((f"FROM ({rel.flink}){behind}", f"FROM ({rel.duck}){behind}"), values)


def window_first(drawing: Drawing, depth: int) -> Rel:
    """First rows of windows."""
    rel = _windowed(drawing, depth)
    parts = [f"r.{col.name}" for col in rel.bounds]
    if rel.of("si") and drawing.chance.random() < 0.5:
        parts.append(f"r.{drawing.chance.choice(rel.of('si')).name}")
    order = drawing.order(rel, "r")
    ranked = f"SELECT r.*, ROW_NUMBER() OVER (PARTITION BY {', '.join(parts)} ORDER BY {order}) AS rn FROM"
    bound = drawing.chance.choice(("= 1", "<= 2", "<= 3", "= 2"))
    values = drawing.own(rel, "q")
    if drawing.chance.random() < 0.4:
        values.append(Value.plain("q.rn", Col("", "i")))
    rows = (
        f"FROM ({ranked} ({rel.flink}) AS r) AS q WHERE q.rn {bound}",
        f"FROM ({ranked} ({rel.duck}) AS r) AS q WHERE q.rn {bound}",
    )
    return made(rows, values)


def window_join(drawing: Drawing, depth: int) -> Rel:
    """A join of the rows of each window."""
    span = _span(drawing)
    left, right = _in(drawing, depth, span), _in(drawing, drawing.chance.randint(0, depth), span)
    one, other = drawing.key(left, right)
    tests = [f"l.{a.name} = r.{b.name}" for a, b in zip(left.bounds, right.bounds, strict=True)]
    kind = drawing.chance.choice(_JOINS)
    if kind != "IN":
        tests.append(f"{one} = {other}")
    drawing.chance.shuffle(tests)
    on = " AND ".join(tests)
    if kind in ("EXISTS", "NOT EXISTS", "IN"):
        test = f"{one} IN (SELECT {other}" if kind == "IN" else f"{kind} (SELECT 1"
        rows = (
            f"FROM ({left.flink}) AS l WHERE {test} FROM ({right.flink}) AS r WHERE {on})",
            f"FROM ({left.duck}) AS l WHERE {test} FROM ({right.duck}) AS r WHERE {on})",
        )
        return made(rows, drawing.own(left, "l"))
    values = []
    for value in drawing.own(left, "l"):
        is_alone = kind in ("RIGHT JOIN", "FULL JOIN")
        values.append(value.but(may_lack=True, bound=None) if is_alone else value)
    for value in drawing.own(right, "r"):
        may_lack = value.col.may_lack or kind in ("LEFT JOIN", "FULL JOIN")
        values.append(value.but(may_lack=may_lack, bound=None))
    rows = (
        f"FROM ({left.flink}) AS l {kind} ({right.flink}) AS r ON {on}",
        f"FROM ({left.duck}) AS l {kind} ({right.duck}) AS r ON {on}",
    )
    return made(rows, values)
