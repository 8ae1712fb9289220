"""SQL in random programs: queries over streams that give streams, and queries whose rows change, as ends.

Random queries are those of `tests/tables/random_queries.py`, answered by DuckDB; random clauses of MATCH_RECOGNIZE
those of `tests/tables/matching`, answered by their definition.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

import duckdb
import pyarrow as pa

from penstock import DataStream, StreamEnvironment
from penstock.engine.patterns.rows.syntax import shown
from penstock.engine.schemas import parse_type
from penstock.tables.table import Table
from penstock.tables.types import arrow_type, type_of_arrow
from tests.parity.ends import End, Read
from tests.parity.rows import Row, Rows, has_extremes, known, schema_of
from tests.parity.verbs import Verb
from tests.parity.windows import (
    MOMENTS,
    NORMAL,
    aggregates,
    by_key,
    normal_row,
    random_sql_windows,
    window_rows,
)
from tests.tables.matching.definition import Meaning, moment
from tests.tables.matching.test_row_patterns import random_clause
from tests.tables.random_queries import Queries

_KINDS_OF_WINDOWS: Final = ("bool", "binary", "time")
"""Types of `x` of which SQL has no MAX."""
_PARTS: Final = (
    "t AS (SELECT t AS id, j AS a, v AS b FROM this), u AS (SELECT j AS a, v AS b FROM this WHERE MOD(j, 3) <> 0)",
    "t AS (SELECT j AS id, SUM(v) AS a, COUNT(*) AS b FROM this GROUP BY j), u AS (SELECT j AS a, v AS b FROM this)",
)
"""The tables that random queries read: one whose rows stay, or change, and one whose rows stay."""


def _kept_by_sql(kind: str) -> bool:
    """Whether SQL has the type, and gives columns of it back as they are."""
    arrow = parse_type(schema_of(kind)["x"], "x")
    found = type_of_arrow(arrow)
    return found is not None and arrow_type(found) == arrow


def _timed(row: Row) -> Row:
    return {**row, "ts": moment(row["t"])}


def _table(env: StreamEnvironment, stream: DataStream, kind: str) -> Table:
    """The rows as a table with event time in `ts`."""
    rows = stream.map(_timed, returns={**schema_of(kind), "ts": "timestamp[ms]"})
    return env.tables.from_stream(rows, rowtime="ts")


def selected(random: Random, kind: str) -> Verb | None:
    """A query that takes rows one by one."""
    if not _kept_by_sql(kind):
        return None
    c = random.randint(-2, 6)
    choices: list[tuple[str, Callable[[Row], Rows]]] = [
        (f"k, j + {c} AS j, v, f, x, t FROM this WHERE v > {c} OR f IS NULL",
         lambda r: [{**r, "j": r["j"] + c}] if (r["v"] is not None and r["v"] > c) or r["f"] is None else []),
        (f"CASE WHEN j > {c} THEN 'big' ELSE LOWER(k) END AS k, ABS(j) AS j, COALESCE(v, {c}) AS v, f, x, t FROM this",
         lambda r: [{**r, "k": "big" if r["j"] > c else r["k"].lower(), "j": abs(r["j"]),
                     "v": c if r["v"] is None else r["v"]}]),
        ("k, j + n AS j, NULLIF(v, n) AS v, f, x, t FROM this CROSS JOIN UNNEST(ARRAY[1, 2]) AS u (n)",
         lambda r: [{**r, "j": r["j"] + n, "v": None if r["v"] == n else r["v"]} for n in (1, 2)]),
    ]  # fmt: skip
    query, model = random.choice(choices)

    def build(env: StreamEnvironment, stream: DataStream) -> Sequence[DataStream]:
        return [env.tables.from_stream(stream).sql(f"SELECT {query}").to_stream()]

    return Verb(f"sql: {query}", build, lambda rows: [[out for row in rows for out in model(row)]], takes_env=True)


def windowed(random: Random, kind: str) -> Verb | None:
    """Windows of SQL with aggregates."""
    if not _kept_by_sql(kind) or not has_extremes(kind) or kind.startswith(_KINDS_OF_WINDOWS):
        return None
    function, windows = random_sql_windows(random)
    keys = random.choice([("k",), ("j",), ("k", "j")])
    names = ", ".join(keys)
    if function.startswith("SESSION"):
        function = function.replace("TABLE this", f"TABLE this PARTITION BY {names}")
    query = (
        f"SELECT {names}, COUNT(*) AS n, SUM(v) AS total, CAST(NULL AS DOUBLE) AS least, MAX(x) AS most, window_end "
        f"FROM TABLE({function}) GROUP BY window_start, window_end, {names}"
    )

    def build(env: StreamEnvironment, stream: DataStream) -> Sequence[DataStream]:
        made = _table(env, stream, kind).sql(query).to_stream()
        return [made.map(normal_row, returns=schema_of(kind))]

    def model(rows: Rows) -> Sequence[Rows]:
        return [[{**normal_row(row), "f": None} for row in window_rows(windows, keys, NORMAL, rows)]]

    return Verb(f"sql {function} by {keys}", build, model, takes_env=True)


def over(random: Random, kind: str) -> Verb | None:
    """A sum of the rows of a key so far, in order of time; those of one time have the same."""
    if not _kept_by_sql(kind):
        return None
    span = random.choice([None, 0, 300])
    frame = "UNBOUNDED" if span is None else _interval(span)
    query = (
        "SELECT k, COUNT(*) OVER w AS j, SUM(v) OVER w AS v, f, x, t FROM this "
        f"WINDOW w AS (PARTITION BY k ORDER BY ts RANGE BETWEEN {frame} PRECEDING AND CURRENT ROW)"
    )

    def build(env: StreamEnvironment, stream: DataStream) -> Sequence[DataStream]:
        return [_table(env, stream, kind).sql(query).to_stream()]

    def model(rows: Rows) -> Sequence[Rows]:
        given = []
        for of_key in by_key(rows, ["k"]).values():
            for row in of_key:
                least = -(10**15) if span is None else row["t"] - span
                values = [other["v"] for other in of_key if least <= other["t"] <= row["t"]]
                given.append({**row, "j": len(values), "v": sum(known(values)) if known(values) else None})
        return [given]

    return Verb(f"sql over {frame} preceding", build, model, takes_env=True)


def _interval(millis: int) -> str:
    return f"INTERVAL '{millis / 1000:.3f}' SECOND"


def queried(random: Random, kind: str) -> End:
    """A random query of whole numbers, whose rows may change."""
    query = f"WITH {random.choice(_PARTS)} {Queries(random).query(1)[0]}"

    def model(rows: Rows) -> Rows:
        columns = {name: pa.array([row[name] for row in rows], pa.int64()) for name in ("t", "j", "v")}
        with duckdb.connect() as database:
            database.register("this", pa.table(columns))
            answer = database.execute(query)
            names = [column[0] for column in answer.description or ()]
            return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]

    return _settled(
        f"sql: {query}", lambda env, rows: env.tables.from_stream(rows.select("t", "j", "v")).sql(query), model
    )


def near(random: Random, kind: str) -> End:
    """A table joined with itself by key and time."""
    lower, upper = random.choice([(-100, 100), (0, 0), (5, 700), (-300, -1)])
    how = random.choice(["JOIN", "LEFT JOIN", "FULL JOIN"])
    query = (
        f"SELECT a.t AS at, a.j AS aj, b.t AS bt, b.v AS bv FROM this a {how} this b ON a.k = b.k "
        f"AND b.ts BETWEEN a.ts + {_interval(lower)} AND a.ts + {_interval(upper)}"
    )

    def model(rows: Rows) -> Rows:
        pairs = [
            (one, other)
            for one, a in enumerate(rows)
            for other, b in enumerate(rows)
            if a["k"] == b["k"] and a["t"] + lower <= b["t"] <= a["t"] + upper
        ]
        lefts, rights = {one for one, _ in pairs}, {other for _, other in pairs}
        given = [_near(rows[one], rows[other]) for one, other in pairs]
        if how != "JOIN":
            given += [_near(row, None) for place, row in enumerate(rows) if place not in lefts]
        if how == "FULL JOIN":
            given += [_near(None, row) for place, row in enumerate(rows) if place not in rights]
        return given

    return _settled(f"sql {how} {lower}ms to {upper}ms", lambda env, rows: _table_of_four(env, rows).sql(query), model)


def _near(one: Row | None, other: Row | None) -> Row:
    left, right = one or {"t": None, "j": None}, other or {"t": None, "v": None}
    return {"at": left["t"], "aj": left["j"], "bt": right["t"], "bv": right["v"]}


def _table_of_four(env: StreamEnvironment, stream: DataStream) -> Table:
    rows = stream.select("k", "j", "v", "t")
    schema = {"k": "string", "j": "int64", "v": "int64", "t": "int64", "ts": "timestamp[ms]"}
    return env.tables.from_stream(rows.map(_timed, returns=schema), rowtime="ts")


def recognized(random: Random, kind: str) -> End:
    """A random clause of MATCH_RECOGNIZE, over one row a key and time."""
    names, texts, meaning = random_clause(random)
    while next(meaning.empty_ways(), None) is not None:
        names, texts, meaning = random_clause(random)
    slow = meaning if meaning.within is None else replace(meaning, within=meaning.within * 50)
    query = _clause(names, texts, slow)

    def table(env: StreamEnvironment, stream: DataStream) -> Table:
        moments = stream.key_by("k").window(MOMENTS.make()).aggregate(**aggregates(NORMAL, kind))
        rows = moments.map(_priced, returns={"k": "string", "v": "int64", "ts": "timestamp[ms]"})
        return env.tables.from_stream(rows, rowtime="ts").sql(query)

    def model(rows: Rows) -> Rows:
        priced = [_priced(row) for row in window_rows(MOMENTS, ["k"], NORMAL, rows)]
        return [row for (key,), of_key in by_key(priced, ["k"]).items() for row in _found(slow, key, of_key)]

    return _settled(f"sql {query}", table, model)


def _priced(result: Row) -> Row:
    row = normal_row(result)
    return {"k": row["k"], "v": abs(row["v"] or 0) % 4, "ts": moment(row["t"])}


def _clause(names: Sequence[str], texts: Sequence[str], meaning: Meaning) -> str:
    bound = "" if meaning.within is None else f"WITHIN {_interval(meaning.within)}"
    skip = "PAST LAST ROW" if meaning.past_last_row else "TO NEXT ROW"
    defined = ", ".join(f"{name} AS {text}" for name, text in zip(names, texts, strict=True))
    return (
        "SELECT k, ts, c, n, v FROM this MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES CLASSIFIER() AS c, "
        f"FINAL COUNT(*) AS n ALL ROWS PER MATCH AFTER MATCH SKIP {skip} PATTERN ({shown(meaning.pattern)}) {bound} "
        f"DEFINE {defined})"
    )


def _found(meaning: Meaning, key: str, rows: Rows) -> Rows:
    ordered = sorted(rows, key=lambda row: row["ts"])
    epoch = dt.datetime(1970, 1, 1)
    own = [(round((row["ts"] - epoch) / dt.timedelta(milliseconds=1)), row["v"]) for row in ordered]
    return [
        {"k": key, "ts": moment(own[start + place][0]), "c": name, "n": len(taken), "v": own[start + place][1]}
        for start, taken in meaning.matches(own)
        for place, name in enumerate(taken)
    ]


def _settled(text: str, table: Callable[[StreamEnvironment, DataStream], Table], model: Callable[[Rows], Rows]) -> End:
    """An end whose rows change, of which those are looked at that are there at last."""

    def build(env: StreamEnvironment, stream: DataStream, folder: Path) -> Read:
        result = table(env, stream).to_changelog().collect()
        return lambda: result.take().to_pylist()

    return End(text, build, model, settle=_there, takes_env=True)


def _there(changes: Iterable[Mapping[str, Any]]) -> Rows:
    """The rows that are there after all changes, with how often."""
    table: Counter[tuple[tuple[str, Any], ...]] = Counter()
    for row in changes:
        values = tuple((name, value) for name, value in row.items() if name != "op")
        table[values] += 1 if row.get("op", "+I") in ("+I", "+U") else -1
    return [{**dict(values), "count": count} for values, count in table.items() if count]
