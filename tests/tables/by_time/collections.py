"""Random queries of joins with collections and with a query for each row, and of changes as plain rows and back."""

from __future__ import annotations

from tests.tables.by_time.drawing import Drawing
from tests.tables.by_time.relations import Col, ImpossibleError, Rel, Value, made


def unnested(drawing: Drawing, depth: int) -> Rel:
    """The rows with each element of an array that they give, which may be empty or null."""
    chance = drawing.chance
    rel = drawing.query(depth, lambda rel: bool(rel.of("i")))
    name = f"l.{chance.choice(rel.of('i')).name}"
    items = chance.choice((f"{name}", f"{name}, {name} + 1", f"{name}, {name}, -1"))
    array, listed = f"ARRAY[{items}]", f"[{items}]"
    if chance.random() < 0.3:
        array, listed = (f"CASE WHEN {name} > 2 THEN {one} END" for one in (array, listed))
    is_left, has_place, test = chance.random() < 0.3, chance.random() < 0.3, chance.random() < 0.3
    columns = "(e, n)" if has_place else "(e)"
    unnest = f"UNNEST({array}){' WITH ORDINALITY' if has_place else ''}"
    duck = f"(SELECT unnest({listed}) AS e, generate_subscripts({listed}, 1) AS n)"
    if test:
        inner = f"SELECT e{', n' if has_place else ''} FROM {unnest} AS i {columns} WHERE e > 1"
        flink = f"LATERAL ({inner}) AS u {columns}"
        duck = f"(SELECT * FROM {duck} AS i WHERE e > 1)"
    else:
        flink = f"{unnest} AS u {columns}"
    join, on = ("LEFT JOIN", " ON TRUE") if is_left else ("CROSS JOIN", "")
    rows = (
        f"FROM ({rel.flink}) AS l {join} {flink}{on}",
        f"FROM ({rel.duck}) AS l {join} LATERAL {duck} AS u{on}",
    )
    values = [*drawing.own(rel, "l"), Value.plain("u.e", Col("", "i"))]
    if has_place:
        values.append(Value.plain("u.n", Col("", "n")))
    return made(rows, values, rel.is_append)


def lateral(drawing: Drawing, depth: int) -> Rel:
    """The rows with the first ones of another query that have their key."""
    outer, inner = drawing.query(depth), drawing.part(depth)
    if inner.is_windowed or not inner.cols:
        raise ImpossibleError
    one, other = drawing.key(outer, inner)
    names = ", ".join(f"r.{col.name}" for col in inner.cols)
    limit = drawing.chance.choice((1, 2))
    query = (
        f"(SELECT {names} FROM ({{}}) AS r WHERE {one} = {other} ORDER BY {drawing.order(inner, 'r')} LIMIT {limit})"
    )
    join, on = drawing.chance.choice((("CROSS JOIN", ""), ("LEFT JOIN", " ON TRUE")))
    rows = (
        f"FROM ({outer.flink}) AS l {join} LATERAL {query.format(inner.flink)} AS q{on}",
        f"FROM ({outer.duck}) AS l {join} LATERAL {query.format(inner.duck)} AS q{on}",
    )
    values = [value.but(is_time=False, bound=None) for value in drawing.own(outer, "l")]
    values += [value.but(is_time=False, bound=None, may_lack=True) for value in drawing.own(inner, "q")]
    return made(rows, values, False)


def as_changes(drawing: Drawing, depth: int) -> Rel:
    """The rows, as plain rows that say what changes, and back."""
    rel = drawing.query(depth)
    said = f"SELECT * FROM TO_CHANGELOG(input => ({rel.flink}))"
    rows = (f"FROM FROM_CHANGELOG(input => ({said})) AS r", f"FROM ({rel.duck}) AS r")
    values = [value.but(is_time=False, bound=None) for value in drawing.own(rel, "r")]
    return made(rows, values, False)
