"""Random queries over random changelogs: after each change, what is there is what DuckDB says.

`python -m tests.tables.random_queries --queries 1000 --seed 7` runs more than the tests do. Ten queries share a job,
whose source gives one change at a time and waits until all of it has been worked in.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa

from penstock import StreamEnvironment
from penstock.engine.changelog import ANY_MODE
from penstock.engine.changelog import ChangelogMode as EngineMode
from penstock.engine.clock import ManualClock
from penstock.engine.connectors import ConnectorContext, Position, Sink, SinkWriter, Source, SourceReader, Split, Wait
from penstock.engine.elements import Batch
from penstock.engine.local.manager import LocalManager
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.catalog.connectors import ScannedTable, WrittenTable
from penstock.tables.plan.nodes import RETRACT, ChangelogMode, Columns

TOGETHER = 10
"""How many queries share a job."""
_BETWEEN_S = 1000.0
"""The time between two changes, by a clock that does not wait."""

# Queries


@dataclass(slots=True)
class Queries:
    """Makes queries whose columns are c0, c1, ...; all of BIGINT."""

    chance: random.Random

    def query(self, depth: int) -> tuple[str, int]:
        """A query, and how many columns it has."""
        if depth == 0:
            return self._table()
        kinds = (
            self._computed,
            self._joined,
            self._met,
            self._grouped,
            self._sets,
            self._first,
            self._over,
            self._combined,
            self._valued,
        )
        return self.chance.choice(kinds)(depth - 1)

    def _table(self) -> tuple[str, int]:
        if self.chance.random() < 0.5:
            return "SELECT id AS c0, a AS c1, b AS c2 FROM t", 3
        return "SELECT a AS c0, b AS c1 FROM u", 2

    def _part(self, depth: int, name: str) -> tuple[str, list[str]]:
        sql, width = self.query(self.chance.randint(0, depth))
        return f"({sql}) AS {name}", [f"{name}.c{place}" for place in range(width)]

    def _named(self, values: Sequence[str]) -> str:
        return ", ".join(f"{value} AS c{place}" for place, value in enumerate(values))

    def _some(self, columns: list[str], most: int = 3) -> list[str]:
        return self.chance.sample(columns, self.chance.randint(1, min(most, len(columns))))

    def _condition(self, columns: list[str]) -> str:
        column, number = self.chance.choice(columns), self.chance.randrange(6)
        other = self.chance.choice(columns)
        return self.chance.choice(
            (
                f"{column} > {number}",
                f"{column} IS NOT NULL",
                f"{column} <= {other}",
                f"({column} = {number} OR {other} IS NULL)",
                f"{column} IN (0, 2, {number})",
                f"COALESCE({column}, 3) <> {number}",
            )
        )

    def _value(self, columns: list[str]) -> str:
        column, other = self.chance.choice(columns), self.chance.choice(columns)
        return self.chance.choice(
            (
                column,
                f"{column} + {other}",
                f"CASE WHEN {column} > 2 THEN {other} ELSE {column} END",
                f"COALESCE({column}, {other}, -1)",
                f"NULLIF({column}, 3)",
            )
        )

    def _computed(self, depth: int) -> tuple[str, int]:
        rows, columns = self._part(depth, "r")
        values = [self._value(columns) for _ in range(self.chance.randint(1, 3))]
        distinct = "DISTINCT " if self.chance.random() < 0.3 else ""
        return f"SELECT {distinct}{self._named(values)} FROM {rows} WHERE {self._condition(columns)}", len(values)

    def _joined(self, depth: int) -> tuple[str, int]:
        left, right = self._part(depth, "l"), self._part(depth, "r")
        kind = self.chance.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
        test = f"{self.chance.choice(left[1])} = {self.chance.choice(right[1])}"
        if self.chance.random() < 0.4 and kind != "FULL JOIN":
            test += f" AND {self.chance.choice(left[1])} < {self.chance.choice(right[1])}"
        values = self._some([*left[1], *right[1]])
        return f"SELECT {self._named(values)} FROM {left[0]} {kind} {right[0]} ON {test}", len(values)

    def _met(self, depth: int) -> tuple[str, int]:
        outer, inner = self._part(depth, "l"), self._part(depth, "r")
        one, other = self.chance.choice(outer[1]), self.chance.choice(inner[1])
        bound = f"{self.chance.choice(inner[1])} {self.chance.choice(('<', '>=', '<>'))} {self.chance.choice(outer[1])}"
        negated = self.chance.choice(("", "NOT "))
        test = self.chance.choice(
            (
                f"{one} {negated}IN (SELECT {other} FROM {inner[0]})",
                f"{negated}EXISTS (SELECT 1 FROM {inner[0]} WHERE {one} = {other})",
                f"{negated}EXISTS (SELECT 1 FROM {inner[0]} WHERE {one} = {other} AND {other} > {one} - 2)",
                f"({one} {negated}IN (SELECT {other} FROM {inner[0]}) OR {one} = 2)",
                f"({negated}EXISTS (SELECT 1 FROM {inner[0]} WHERE {one} = {other}) OR {one} IS NULL)",
                f"{one} <= (SELECT MAX({other}) FROM {inner[0]} WHERE {bound})",
                f"(SELECT COUNT(*) FROM {inner[0]} WHERE {bound} OR {one} IS NULL) > 1",
                f"({one} {negated}IN (SELECT {other} FROM {inner[0]} WHERE {bound}) OR {one} = 2)",
                f"({one} > ALL (SELECT {other} FROM {inner[0]} WHERE {bound}) OR {one} IS NULL)",
                f"{one} {negated}IN (SELECT COUNT({other}) FROM {inner[0]} WHERE {bound})",
                f"({one} >= ALL (SELECT MIN({other}) FROM {inner[0]} WHERE {one} = {other}) OR {one} = 1)",
                f"{negated}EXISTS (SELECT MAX({other}) FROM {inner[0]} WHERE {bound} HAVING COUNT(*) <> 1)",
            )
        )
        values = self._some(outer[1])
        return f"SELECT {self._named(values)} FROM {outer[0]} WHERE {test}", len(values)

    def _aggregate(self, columns: list[str]) -> str:
        column = self.chance.choice(columns)
        function = self.chance.choice(("COUNT", "SUM", "MIN", "MAX", "COUNT(DISTINCT", "SUM(DISTINCT"))
        made = f"{function} {column})" if function.endswith("DISTINCT") else f"{function}({column})"
        return f"{made} FILTER (WHERE {self._condition(columns)})" if self.chance.random() < 0.2 else made

    def _grouped(self, depth: int) -> tuple[str, int]:
        rows, columns = self._part(depth, "r")
        keys = self._some(columns, 2)
        values = [*keys, *(self._aggregate(columns) for _ in range(self.chance.randint(1, 3)))]
        grouping = ", ".join(keys)
        if self.chance.random() < 0.2:
            grouping = self.chance.choice((f"ROLLUP ({grouping})", f"CUBE ({grouping})"))
            # The whole of no rows is a row in DuckDB alone.
            return f"SELECT {self._named(values)} FROM {rows} GROUP BY {grouping} HAVING COUNT(*) > 0", len(values)
        having = f" HAVING COUNT(*) > {self.chance.randrange(3)}" if self.chance.random() < 0.3 else ""
        return f"SELECT {self._named(values)} FROM {rows} GROUP BY {grouping}{having}", len(values)

    def _sets(self, depth: int) -> tuple[str, int]:
        (left, one), (right, other) = self.query(depth), self.query(depth)
        width = min(one, other)
        columns = ", ".join(f"c{place}" for place in range(width))
        operator = self.chance.choice(("UNION", "INTERSECT", "EXCEPT")) + self.chance.choice(("", " ALL"))
        return f"SELECT {columns} FROM ({left}) AS l {operator} SELECT {columns} FROM ({right}) AS r", width

    def _order(self, columns: list[str]) -> str:
        """An order of all columns, so that only equal rows are at one place."""
        chosen = self.chance.sample(columns, len(columns))
        ways = ("ASC NULLS FIRST", "ASC NULLS LAST", "DESC NULLS FIRST", "DESC NULLS LAST")
        return ", ".join(f"{column} {self.chance.choice(ways)}" for column in chosen)

    def _first(self, depth: int) -> tuple[str, int]:
        rows, columns = self._part(depth, "r")
        function = self.chance.choice(("ROW_NUMBER", "ROW_NUMBER", "RANK", "DENSE_RANK"))
        order = self._order(columns) if function == "ROW_NUMBER" else self._order(self._some(columns, 1))
        partition = f"PARTITION BY {self.chance.choice(columns)} " if self.chance.random() < 0.7 else ""
        bound = self.chance.choice(("= 1", "<= 2", "<= 3", "= 2", "BETWEEN 2 AND 3"))
        kept = [f"c{place}" for place in range(len(columns))]
        if self.chance.random() < 0.5:
            kept.append("c_rank")
        ranked = f"SELECT r.*, {function}() OVER ({partition}ORDER BY {order}) AS c_rank FROM {rows}"
        return f"SELECT {self._named(kept)} FROM ({ranked}) AS q WHERE c_rank {bound}", len(kept)

    def _over(self, depth: int) -> tuple[str, int]:
        rows, columns = self._part(depth, "r")
        partition = f"PARTITION BY {self.chance.choice(columns)} " if self.chance.random() < 0.6 else ""
        frame = self.chance.choice(
            ("ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", "")
        )
        over = f"OVER ({partition}ORDER BY {self._order(columns)} {frame})"
        column = self.chance.choice(columns)
        made = self.chance.choice(
            (
                f"SUM({column}) {over}",
                f"COUNT({column}) {over}",
                f"MAX({column}) {over}",
                f"MIN({column}) {over}",
                f"COUNT(DISTINCT {column}) {over}",
                f"LAG({column}) OVER ({partition}ORDER BY {self._order(columns)})",
                # DuckDB gives the default only where there is no row.
                f"COALESCE(LAG({column}, 2, -5) OVER ({partition}ORDER BY {self._order(columns)}), -5)",
            )
        )
        values = [*self._some(columns, 2), made]
        return f"SELECT {self._named(values)} FROM {rows}", len(values)

    def _combined(self, depth: int) -> tuple[str, int]:
        """Groups joined with what they are of."""
        rows, columns = self._part(depth, "r")
        key = self.chance.choice(columns)
        groups = f"(SELECT {key} AS k, COUNT(*) AS n FROM {rows} GROUP BY {key}) AS g"
        return f"SELECT t.id AS c0, g.n AS c1 FROM t LEFT JOIN {groups} ON t.a = g.k", 2

    def _valued(self, depth: int) -> tuple[str, int]:
        outer, inner = self._part(depth, "l"), self._part(depth, "r")
        aggregate = self.chance.choice(("MAX", "COUNT", "SUM"))
        one, other = self.chance.choice(outer[1]), self.chance.choice(inner[1])
        value = f"(SELECT {aggregate}({self.chance.choice(inner[1])}) FROM {inner[0]} WHERE {other} = {one})"
        values = [*self._some(outer[1], 2), value]
        return f"SELECT {self._named(values)} FROM {outer[0]}", len(values)


# Changes

Row = tuple[str, str, int, int | None, int | None]
"""The table, the kind of change, id, a, b."""


def changes(chance: random.Random, count: int) -> list[Row]:
    """Inserts, updates (both halves) and deletes of rows of two tables."""
    held: dict[tuple[str, int], tuple[int | None, int | None]] = {}
    made: list[Row] = []

    def value() -> int | None:
        return None if chance.random() < 0.15 else chance.randrange(6)

    while len(made) < count:
        table = chance.choice("tu")
        own = [key for key in held if key[0] == table]
        if own and chance.random() < 0.45:
            key = chance.choice(own)
            before = held.pop(key)
            if chance.random() < 0.5:
                made.append((table, "-D", key[1], *before))
                continue
            held[key] = (value(), value())
            made += [(table, "-U", key[1], *before), (table, "+U", key[1], *held[key])]
            continue
        key = (table, len(made))
        held[key] = (value(), value())
        made.append((table, "+I", key[1], *held[key]))
    return made


# The engine


@dataclass(frozen=True)
class _Whole:
    split_id: str = "changes"


@dataclass
class Released:
    """How many changes the source may have given."""

    count: int = 0


@dataclass(frozen=True)
class _Changes(Source):
    table: pa.Table
    released: Released

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    @property
    def bounded(self) -> bool:
        return False

    @property
    def max_parallelism(self) -> int:
        return 1

    def splits(self, parallelism: int) -> Sequence[Split]:
        return [_Whole()]

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        return _Reader(self)

    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        raise AssertionError("no checkpoint is taken")

    def describe(self) -> str:
        return "changes"


class _Reader(SourceReader):
    def __init__(self, source: _Changes) -> None:
        self._source, self._row = source, 0

    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
        if self._row >= self._source.released.count:
            return Wait((self._source.released.count + 1) * _BETWEEN_S)
        self._row += 1
        return self._source.table.slice(self._row - 1, 1).combine_chunks().to_batches()[0]

    def position(self) -> Position:
        return {"row": self._row}


@dataclass(frozen=True)
class _Kept(Sink):
    held: Counter[tuple[Any, ...]]

    def open(self, context: ConnectorContext) -> SinkWriter:
        return _Writer(self.held)

    def describe(self) -> str:
        return "kept"

    @property
    def changelog_modes(self) -> frozenset[EngineMode]:
        return ANY_MODE


class _Writer(SinkWriter):
    def __init__(self, held: Counter[tuple[Any, ...]]) -> None:
        self._held = held

    def write(self, batch: Batch) -> None:
        kinds = [0] * batch.num_rows if batch.kinds is None else batch.kinds.to_pylist()
        for kind, row in zip(kinds, zip(*(c.to_pylist() for c in batch.data.columns), strict=True), strict=True):
            self._held[row] += 1 if kind in (0, 2) else -1


@dataclass
class _Tables:
    """The connector of the changes, and of what is made of them."""

    rows: Sequence[Row]
    released: Released
    made: dict[str, Counter[tuple[Any, ...]]] = field(default_factory=dict)
    name: str = "random"

    @property
    def options(self) -> dict[str, str]:
        return {}

    def source_mode(self, table: CatalogTable) -> ChangelogMode:
        return RETRACT

    def sink_mode(self, table: CatalogTable) -> ChangelogMode:
        return RETRACT

    def bounded(self, table: CatalogTable) -> bool:
        return False

    def scan(self, table: CatalogTable, columns: Columns) -> ScannedTable:
        names = [column.name for column in columns]
        of = {"tab": 0, "id": 2, "a": 3, "b": 4}
        arrays = [
            pa.array([row[of[name]] for row in self.rows], pa.string() if name == "tab" else pa.int64())
            for name in names
        ]
        arrays.append(pa.array([row[1] for row in self.rows], pa.string()))
        return ScannedTable(_Changes(pa.table(arrays, names=[*names, "kind of row"]), self.released), "kind of row")

    def sink(self, table: CatalogTable, columns: Columns) -> WrittenTable:
        return WrittenTable(_Kept(self.made.setdefault(table.name, Counter())))


_VIEWS = """
CREATE TABLE changes (tab STRING, id BIGINT, a BIGINT, b BIGINT) WITH ('connector' = 'random');
CREATE VIEW t AS SELECT id, a, b FROM changes WHERE tab = 't';
CREATE VIEW u AS SELECT a, b FROM changes WHERE tab = 'u';
"""


def check(seed: int, count: int, deepest: int) -> None:
    """Run queries over changes, and compare them with DuckDB after each change.

    Args:
        seed: of the queries, the changes and the schedule.
        count: how many changes.
        deepest: how many queries stand inside of each other at the most.

    Raises:
        AssertionError: one differs; says which, and after how many changes.
    """
    chance = random.Random(seed)
    asked = [Queries(chance).query(chance.randint(1, deepest))[0] for _ in range(TOGETHER)]
    compare(asked, changes(chance, count), seed)


def compare(asked: Sequence[str], rows: list[Row], seed: int) -> None:
    """Run queries over changes of t (id, a, b) and u (a, b), and compare them with DuckDB after each change.

    Args:
        asked: queries, whose columns are BIGINT.
        seed: of the schedule.

    Raises:
        AssertionError: one differs; says which, and after how many changes.
    """
    released, clock = Released(), ManualClock(1_700_000_000_000)
    tables = _Tables(rows, released)
    env = StreamEnvironment(runtime="local", parallelism=1 + (seed % 4 == 0), clock=clock, seed=seed)
    env.tables.register_connector(tables)
    for statement, source in env.tables.script(_VIEWS):
        env.tables.run(statement, source)
    inserts = []
    for number, query in enumerate(asked):
        table = env.sql(query)
        assert table is not None
        columns = ", ".join(f"{name} BIGINT" for name in table.columns)
        env.sql(f"CREATE TABLE q{number} ({columns}) WITH ('connector' = 'random')")
        inserts.append(f"INSERT INTO q{number} {query};")
    env.sql(f"EXECUTE STATEMENT SET BEGIN {' '.join(inserts)} END")
    job = env.submit()
    with duckdb.connect() as database:
        database.execute(
            "CREATE TABLE t (id BIGINT, a BIGINT, b BIGINT); CREATE TABLE u (id BIGINT, a BIGINT, b BIGINT)"
        )
        for released.count in range(1, len(rows) + 1):
            clock.wait_until(released.count * _BETWEEN_S)
            _work_in(job._manager, (released.count + 1) * _BETWEEN_S)
            _apply(database, rows[released.count - 1])
            for number, query in enumerate(asked):
                there = +tables.made[f"q{number}"]
                wanted = Counter(database.execute(query).fetchall())
                taken = [row for row, times in tables.made[f"q{number}"].items() if times < 0]
                assert (there, taken) == (wanted, []), (
                    f"seed {seed}, after {released.count} changes {rows[: released.count]}\n{query}\n"
                    f"too much {there - wanted}\nmissing {wanted - there}\ntaken back {taken}"
                )
    job.cancel()


def _work_in(manager: LocalManager, until: float) -> None:
    """Let all happen that does not wait for `until`."""
    while True:
        manager.step(0.0)
        deadlines = [one for one in (manager.execution.deadline, manager.brain.deadline) if one is not None]
        if not manager.execution.ready and not manager.mail:
            if min(deadlines, default=until) >= until:
                return
            manager.step(_BETWEEN_S)


def _apply(database: duckdb.DuckDBPyConnection, row: Row) -> None:
    table, kind, *values = row
    if kind in ("+I", "+U"):
        database.execute(f"INSERT INTO {table} VALUES (?, ?, ?)", values)
    else:
        database.execute(f"DELETE FROM {table} WHERE id = ?", values[:1])


def main() -> None:
    """Run queries from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for number in range(-(-given.queries // TOGETHER)):
        check(given.seed + number, 14, 3)
    print(f"{given.queries} queries equal DuckDB after each change (seeds from {given.seed})")  # noqa: T201


if __name__ == "__main__":
    main()
