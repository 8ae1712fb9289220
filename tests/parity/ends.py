"""How random programs end: with rows, or with results that no other verb reads; and how these are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq

import penstock as ps
from penstock import DataStream
from tests.parity.rows import Rows, can_be_key, places, texts
from tests.parity.windows import (
    added,
    aggregates,
    as_one,
    by_key,
    global_stream,
    group_rows,
    random_keys,
    random_windows,
    some_aggregates,
    window_rows,
    windowed,
)

Read = Callable[[], Iterable[Mapping[str, Any]]]
"""Gives the rows of a result when the job has ended."""


@dataclass(frozen=True)
class End:
    """What becomes of a stream.

    Args:
        text: for people.
        build: takes the stream and a new folder.
        model: what comes out, of a list of rows.
        keys: in streaming mode only the last row of each of these keys counts; None: all rows do.
        order: rows must come in the order of these columns; those that are equal in them, and all rows if there are
            none, come in any.
        settle: what is looked at of the rows; None: all of them.
        takes_env: whether `build` takes the environment before the stream.
    """

    text: str
    build: Callable[..., Read]
    model: Callable[[Rows], Rows]
    keys: tuple[str, ...] | None = None
    order: tuple[str, ...] = ()
    settle: Callable[[Iterable[Mapping[str, Any]]], Rows] | None = None
    takes_env: bool = False

    def final(self, rows: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
        """Of the rows of a streaming job those that batch mode gives."""
        if self.keys is None:
            return rows
        return {tuple(row[key] for key in self.keys): row for row in rows}.values()

    def texts(self, rows: Iterable[Mapping[str, Any]]) -> list[str]:
        """What is compared of these rows."""
        given = list(rows) if self.settle is None else self.settle(rows)
        return [*texts(given), *(places(given, self.order) if self.order else [])]


def collected(text: str, verb: Callable[[DataStream], DataStream], model: Callable[[Rows], Rows], **more: Any) -> End:
    """An end whose rows come to the client."""

    def build(stream: DataStream, folder: Path) -> Read:
        result = verb(stream).collect()
        return lambda: result.take().to_pylist()

    return End(text, build, model, **more)


def rows(random: Random, kind: str) -> End:
    """The rows themselves, for the client or in files."""
    if random.random() < 0.7:
        return collected("collect", lambda stream: stream, lambda rows: rows)

    def build(stream: DataStream, folder: Path) -> Read:
        stream.sink_to(ps.FileSink(str(folder), "parquet"))
        return lambda: read_files(folder)

    return End("files", build, lambda rows: rows)


def read_files(folder: Path) -> Rows:
    """The rows of a sink's files, in the order of their names."""
    files = (file for file in sorted(folder.rglob("*.parquet")) if not file.name.startswith("."))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def windows(random: Random, kind: str) -> End:
    """Windows with any aggregates."""
    windows, names = random_windows(random), some_aggregates(random, kind)
    keys = random.choice([(), random_keys(random, kind), random_keys(random, kind)])
    return collected(
        f"{windows.text} by {keys}: {', '.join(names)}",
        lambda stream: windowed(stream, keys, windows).aggregate(**aggregates(names, kind)),
        lambda rows: window_rows(windows, keys, names, rows),
    )


def reduced_windows(random: Random, kind: str) -> End:
    """Windows whose rows are reduced to one."""
    windows, keys = random_windows(random), random_keys(random, kind)

    def model(rows: Rows) -> Rows:
        divided = (window for of_key in by_key(rows, keys).values() for window in windows.divide(of_key))
        return [as_one(members) for *_, members in divided]

    return collected(
        f"{windows.text} by {keys}, reduced", lambda stream: windowed(stream, keys, windows).reduce(added), model
    )


def running(random: Random, kind: str) -> End:
    """Running aggregates, of which batch mode gives the last ones."""
    keys, names = random_keys(random, kind), some_aggregates(random, kind)
    return collected(
        f"running by {keys}: {', '.join(names)}",
        lambda stream: stream.key_by(*keys).aggregate(**aggregates(names, kind)),
        lambda rows: group_rows(rows, keys, names),
        keys=keys,
    )


def reduced(random: Random, kind: str) -> End:
    """A running reduction."""
    keys = random.choice([("k",), ("k", "x")]) if can_be_key(kind) else ("k",)
    # The key columns must stay: a reduced row has the least `k` and the largest `x`, which are those of its key.
    return collected(
        f"reduce by {keys}",
        lambda stream: stream.key_by(*keys).reduce(added),
        lambda rows: [as_one(of) for of in by_key(rows, keys).values()],
        keys=keys,
    )


def everything(random: Random, kind: str) -> End:
    """A global window, which fires when there are no more rows."""
    keys, names = random_keys(random, kind), some_aggregates(random, kind)
    return collected(
        f"global window by {keys}: {', '.join(names)}",
        lambda stream: global_stream(stream.key_by(*keys), names, kind),
        lambda rows: group_rows(rows, keys, names),
    )


def counted(random: Random, kind: str) -> End:
    """Windows of so many rows. Which these are depends on how they come, so nothing but their number is looked at."""
    keys, size = random.choice([(), random_keys(random, kind), random_keys(random, kind)]), random.randint(1, 5)
    slide = random.choice([None, None, random.randint(1, size)])

    def model(rows: Rows) -> Rows:
        step = slide or size
        return [
            {**dict(zip(keys, group, strict=True)), "n": min(size, step * number)}
            for group, members in by_key(rows, keys).items()
            for number in range(1, len(members) // step + 1)
        ]

    def verb(stream: DataStream) -> DataStream:
        divided = stream.key_by(*keys).count_window(size, slide) if keys else stream.count_window_all(size, slide)
        return divided.aggregate(n=ps.count())

    return collected(f"count window {size} by {slide}, by {keys}", verb, model)
