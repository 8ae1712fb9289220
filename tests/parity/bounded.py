"""What random programs do with streams as a whole, when these have ended: final aggregates by key, and order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import penstock as ps
from penstock import DataStream, WatermarkStrategy
from tests.engine.test_ordering import sorted_rows
from tests.parity.ends import End, Read, collected, read_files
from tests.parity.rows import Row, Rows, is_nested, keeps_type, schema_of
from tests.parity.verbs import Verb
from tests.parity.windows import NORMAL, aggregates, group_rows, random_keys, some_aggregates

_COLUMNS = ("k", "j", "v", "f", "x", "t")


def _of_group(row: Row) -> Row:
    """A result of a group as a row of a stream."""
    return {
        "k": row.get("k", "g"),
        "j": row["n"],
        "v": row["total"],
        "f": row["least"],
        "x": row["most"],
        "t": row["t"],
    }


def grouped(random: Random, kind: str) -> Verb:
    """One row a key, whose event time is the largest of its rows."""
    keys, by_expression = random_keys(random, kind), random.random() < 0.5 and keeps_type(kind)

    def build(stream: DataStream) -> Sequence[DataStream]:
        groups = stream.group_by(*keys).aggregate(**aggregates(NORMAL, kind), t=ps.max("t"))
        if not by_expression:
            return [groups.map(_of_group, returns=schema_of(kind))]
        key = "k" if "k" in keys else ps.lit("g")
        return [groups.select(k=key, j="n", v="total", f="least", x="most", t="t")]

    def model(rows: Rows) -> Sequence[Rows]:
        return [[_of_group(row) for row in group_rows(rows, keys, NORMAL, t=max)]]

    return Verb(f"group_by {keys}, {'select' if by_expression else 'map'}", build, model)


class _Order:
    """An order by so many columns at random, or by all that have one."""

    def __init__(self, random: Random, kind: str, columns: int | None = None) -> None:
        known = [name for name in _COLUMNS if name != "x" or not is_nested(kind)]
        self.columns = random.sample(known, columns or len(known))
        self.descending = [random.random() < 0.5 for _ in self.columns]
        self.text = ", ".join(
            f"{column} descending" if down else column
            for column, down in zip(self.columns, self.descending, strict=True)
        )

    @property
    def begins_with_time(self) -> bool:
        """Whether rows that are in this order are in that of their times."""
        return self.columns[0] == "t" and not self.descending[0]

    def sort(self, stream: DataStream) -> DataStream:
        """As Penstock does it; the result has no event time."""
        return stream.sort(*self.columns, descending=self.descending)

    def of(self, rows: Rows) -> Rows:
        """As plain Python does it."""
        places = sorted_rows([[row[column] for column in self.columns] for row in rows], self.descending)
        return [rows[place] for place in places]


class Numbered(ps.ProcessFunction):
    """Numbers the rows as they come."""

    def open(self, context: Any) -> None:
        self.number = 0

    def process_element(self, row: Row, ctx: Any) -> Any:
        self.number += 1
        yield {**row, "j": self.number}


def numbered(random: Random, kind: str) -> Verb:
    """All rows with their places in an order by all columns, where only equal rows may come in any; in event time."""
    order = _Order(random, kind)

    def build(stream: DataStream) -> Sequence[DataStream]:
        ordered = order.sort(stream).set_parallelism(1)
        rows = ordered.process(Numbered(), returns=schema_of(kind)).set_parallelism(1)
        in_order = WatermarkStrategy.for_monotonous_timestamps()
        strategy = in_order if order.begins_with_time else WatermarkStrategy.no_watermarks()
        return [rows.assign_timestamps("t", strategy).set_parallelism(1)]

    def model(rows: Rows) -> Sequence[Rows]:
        return [[{**row, "j": number} for number, row in enumerate(order.of(rows), 1)]]

    return Verb(f"place in sort by {order.text}", build, model)


def groups(random: Random, kind: str) -> End:
    """Final aggregates, also of rows that have no event time."""
    keys, is_timed = random_keys(random, kind), random.random() < 0.7
    names = some_aggregates(random, kind, is_timed)

    def verb(stream: DataStream) -> DataStream:
        rows = stream if is_timed else stream.sort("j")
        return rows.group_by(*keys).aggregate(**aggregates(names, kind))

    return collected(
        f"{'' if is_timed else 'sort, '}group_by {keys}: {', '.join(names)}",
        verb,
        lambda rows: group_rows(rows, keys, names),
    )


def in_order(random: Random, kind: str) -> End:
    """All rows in order, for the client or in files, also with operators behind the sort that keep it."""
    order = _Order(random, kind, random.randint(1, 3))
    behind, verb = random.choice(
        [
            ("", lambda rows: rows),
            (", filter", lambda rows: rows.filter(ps.col("j") > -5)),
            (", map", lambda rows: rows.map(dict, returns=schema_of(kind)).disable_chaining()),
        ]
    )
    as_files = random.random() < 0.3

    def build(stream: DataStream, folder: Path) -> Read:
        rows = verb(order.sort(stream))
        if not as_files:
            result = rows.collect()
            return lambda: result.take().to_pylist()
        rows.sink_to(ps.FileSink(str(folder), "parquet", roll=ps.Rolling(max_bytes=1)))
        return lambda: read_files(folder)

    def model(rows: Rows) -> Rows:
        ordered = order.of(rows)
        return [row for row in ordered if row["j"] > -5] if behind == ", filter" else ordered

    text = f"sort by {order.text}{behind}, {'files' if as_files else 'collect'}"
    return End(text, build, model, order=tuple(order.columns))
