"""Random programs over the public API, each with what it must give: a seed makes the same one every time.

A program is a graph: sources, verbs that read one or two of the streams so far, and an end for each stream that nobody
reads. Plain Python computes all of it on lists while the program is made, which also keeps it small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow.parquet as pq

from penstock import DataStream, StreamEnvironment, WatermarkStrategy
from tests.parity import ends, functions, joins, verbs, windows
from tests.parity.ends import End, Read
from tests.parity.rows import KINDS, Rows, disorder, random_rows, schema_of, table_of, texts
from tests.parity.verbs import Verb

_MOST_ROWS: Final = 300
_VERBS: Final[Mapping[Callable[[Random, str], Verb], int]] = {
    verbs.row_wise: 10,
    verbs.split: 2,
    verbs.union: 2,
    windows.window_aggregate: 4,
    windows.windows_of_windows: 2,
    windows.window_function: 2,
    functions.ranked: 2,
    functions.buckets: 2,
    functions.balance: 1,
    functions.multiplied: 1,
    joins.window_join: 3,
    joins.interval_join: 2,
    joins.temporal_join: 1,
    joins.co_group: 1,
}
_ENDS: Final[Mapping[Callable[[Random, str], End], int]] = {
    ends.rows: 4,
    ends.windows: 4,
    ends.reduced_windows: 1,
    ends.running: 3,
    ends.reduced: 1,
    ends.everything: 1,
    ends.counted: 1,
}


@dataclass(frozen=True)
class Source:
    """Rows in memory, or (`files`) in so many Parquet files."""

    rows: Rows
    kind: str
    files: int

    @property
    def text(self) -> str:
        return f"{len(self.rows)} rows, x: {self.kind}, " + (
            f"{self.files} Parquet files" if self.files else "in memory"
        )

    def build(self, env: StreamEnvironment, folder: Path) -> DataStream:
        """The stream; `folder` is a new one, for its files."""
        if not self.files:
            stream, bound = env.from_collection(self.rows, schema=schema_of(self.kind)), disorder(self.rows)
        else:
            folder.mkdir(parents=True)
            for number in range(self.files):
                pq.write_table(table_of(self.rows[number :: self.files], self.kind), folder / f"{number}.parquet")
            times = [row["t"] for row in self.rows]
            # Files are read in any order, side by side.
            stream, bound = env.from_files(str(folder), format="parquet"), max(times) - min(times)
        return stream.assign_timestamps("t", WatermarkStrategy.for_bounded_out_of_orderness(f"{bound}ms"))


@dataclass(frozen=True)
class Step:
    """A verb, and the numbers of the streams that it reads."""

    verb: Verb
    reads: tuple[int, ...]


@dataclass
class Program:
    """A program that `random_program` has made.

    Args:
        seed: what it was made of.
        sources: its sources, which are the first streams.
        steps: its verbs, each of which adds streams.
        ends: its ends, with the numbers of the streams that they read.
        expected: what each end gives, as sorted texts.
    """

    seed: int
    sources: list[Source] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    ends: list[tuple[End, int]] = field(default_factory=list)
    expected: list[list[str]] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{number}: {source.text}" for number, source in enumerate(self.sources)]
        number = len(lines)
        for step in self.steps:
            gives = 2 if "side output" in step.verb.text else 1
            lines.append(f"{', '.join(str(number + n) for n in range(gives))}: {step.verb.text} <- {step.reads}")
            number += gives
        lines += [f"end: {end.text} <- {read}" for end, read in self.ends]
        return "\n".join([f"program {self.seed}", *(f"  {line}" for line in lines)])

    def build(self, env: StreamEnvironment, folder: Path) -> list[Read]:
        """Put it into an environment; gives how to read each end. Its files are in `folder`."""
        streams = [source.build(env, folder / f"in-{number}") for number, source in enumerate(self.sources)]
        for step in self.steps:
            streams += step.verb.build(*(streams[read] for read in step.reads))
        return [end.build(streams[read], folder / f"out-{number}") for number, (end, read) in enumerate(self.ends)]

    def given(self, results: Sequence[Read], is_streaming: bool) -> list[list[str]]:
        """What came out at each end, to be compared with `expected`."""
        final = [
            (end.final(read()) if is_streaming else read()) for (end, _), read in zip(self.ends, results, strict=True)
        ]
        return [texts(rows) for rows in final]


def random_program(seed: int) -> Program:
    """The program of this seed."""
    random, program = Random(seed), Program(seed)
    kind = random.choice(list(KINDS))
    streams: list[Rows] = []
    for _ in range(random.choice([1, 1, 2])):
        rows = random_rows(random, kind, random.choice([0, 1, *[random.randint(5, 40)] * 8]))
        program.sources.append(Source(rows, kind, random.choice([0, 1, 2]) if rows else 0))
        streams.append(rows)
    unread = set(range(len(streams)))
    for _ in range(random.randint(1, 6)):
        _add_verb(random, program, kind, streams, unread)
    for number in sorted({*unread, *random.choices(range(len(streams)), k=random.choice([0, 0, 1]))}):
        end = _chosen(random, _ENDS)(random, kind)
        program.ends.append((end, number))
        program.expected.append(texts(end.model(streams[number])))
    return program


def _add_verb(random: Random, program: Program, kind: str, streams: list[Rows], unread: set[int]) -> None:
    """Add a verb that reads some of the streams, most often those that nobody reads; none if it would give too much."""
    verb = _chosen(random, _VERBS)(random, kind)
    reads = tuple(
        random.choice(sorted(unread)) if random.random() < 0.8 else random.randrange(len(streams))
        for _ in range(verb.inputs)
    )
    given = verb.model(*(streams[read] for read in reads))
    if sum(map(len, given)) > _MOST_ROWS:
        return
    unread -= set(reads)
    unread |= set(range(len(streams), len(streams) + len(given)))
    program.steps.append(Step(verb, reads))
    streams += given


def _chosen(random: Random, weights: Mapping[Any, int]) -> Any:
    return random.choices(list(weights), list(weights.values()))[0]
