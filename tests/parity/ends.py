"""How random programs end: with rows, or with results that no other verb reads; and how these are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq

import penstock as ps
from penstock import DataStream
from tests.parity.rows import Row, Rows
from tests.parity.windows import (
    AGGREGATES,
    added,
    aggregated,
    aggregates,
    by_key,
    global_stream,
    random_keys,
    random_windows,
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
    """

    text: str
    build: Callable[[DataStream, Path], Read]
    model: Callable[[Rows], Rows]
    keys: tuple[str, ...] | None = None

    def final(self, rows: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
        """Of the rows of a streaming job those that batch mode gives."""
        if self.keys is None:
            return rows
        return {tuple(row[key] for key in self.keys): row for row in rows}.values()


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
        return lambda: [
            row
            for file in folder.rglob("*.parquet")
            if not file.name.startswith(".")
            for row in pq.read_table(file).to_pylist()
        ]

    return End("files", build, lambda rows: rows)


def _some(random: Random) -> Sequence[str]:
    return sorted(random.sample(sorted(AGGREGATES), random.randint(1, 8)))


def windows(random: Random, kind: str) -> End:
    """Windows with any aggregates."""
    windows, names = random_windows(random), _some(random)
    keys = random.choice([(), random_keys(random, kind), random_keys(random, kind)])
    return collected(
        f"{windows.text} by {keys}: {', '.join(names)}",
        lambda stream: windowed(stream, keys, windows).aggregate(**aggregates(names)),
        lambda rows: window_rows(windows, keys, names, rows),
    )


def reduced_windows(random: Random, kind: str) -> End:
    """Windows whose rows are reduced to one."""
    windows, keys = random_windows(random), random_keys(random, kind)

    def model(rows: Rows) -> Rows:
        divided = (window for of_key in by_key(rows, keys).values() for window in windows.divide(of_key))
        return [_reduced(members) for *_, members in divided]

    return collected(
        f"{windows.text} by {keys}, reduced", lambda stream: windowed(stream, keys, windows).reduce(added), model
    )


def _reduced(rows: Rows) -> Row:
    first, *others = rows
    for row in others:
        first = added(first, row)
    return first


def running(random: Random, kind: str) -> End:
    """Running aggregates, of which batch mode gives the last ones."""
    keys, names = random_keys(random, kind), _some(random)
    return collected(
        f"running by {keys}: {', '.join(names)}",
        lambda stream: stream.key_by(*keys).aggregate(**aggregates(names)),
        lambda rows: _by_group(rows, keys, names),
        keys=keys,
    )


def _by_group(rows: Rows, keys: Sequence[str], names: Sequence[str]) -> Rows:
    groups = by_key(rows, keys).items()
    return [{**dict(zip(keys, group, strict=True)), **aggregated(names, members)} for group, members in groups]


def reduced(random: Random, kind: str) -> End:
    """A running reduction."""
    keys = random.choice([("k",), ("k", "x")]) if not kind.startswith("float") else ("k",)
    # The key columns must stay: a reduced row has the least `k` and the largest `x`, which are those of its key.
    return collected(
        f"reduce by {keys}",
        lambda stream: stream.key_by(*keys).reduce(added),
        lambda rows: [_reduced(of) for of in by_key(rows, keys).values()],
        keys=keys,
    )


def everything(random: Random, kind: str) -> End:
    """A global window, which fires when there are no more rows."""
    keys, names = random_keys(random, kind), _some(random)
    return collected(
        f"global window by {keys}: {', '.join(names)}",
        lambda stream: global_stream(stream.key_by(*keys), names),
        lambda rows: _by_group(rows, keys, names),
    )


def counted(random: Random, kind: str) -> End:
    """Windows of so many rows. Which these are depends on how they come, so nothing but their number is looked at."""
    keys, size = random_keys(random, kind), random.randint(1, 5)
    slide = random.choice([None, None, random.randint(1, size)])

    def model(rows: Rows) -> Rows:
        step = slide or size
        return [
            {**dict(zip(keys, group, strict=True)), "n": min(size, step * number)}
            for group, members in by_key(rows, keys).items()
            for number in range(1, len(members) // step + 1)
        ]

    return collected(
        f"count window {size} by {slide}, by {keys}",
        lambda stream: stream.key_by(*keys).count_window(size, slide).aggregate(n=ps.count()),
        model,
    )
