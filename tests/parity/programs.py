"""Random programs over the public API, each with what it must give: a seed makes the same one every time.

A program is a graph: sources, verbs that read one or two of the streams so far, and an end for each stream that nobody
reads. Plain Python computes all of it on lists while the program is made, which also keeps it small.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, Literal

import pyarrow.parquet as pq

from penstock import DataStream, StreamEnvironment, WatermarkStrategy
from tests.parity import bounded, ends, functions, joins, patterns, queries, verbs, windows
from tests.parity.ends import End, Read
from tests.parity.rows import KINDS, Rows, disorder, random_rows, schema_of, table_of
from tests.parity.verbs import Verb

_MOST_ROWS: Final = 300
_VERBS: Final[Mapping[Callable[[Random, str], Verb | None], int]] = {
    verbs.row_wise: 16,
    verbs.split: 2,
    verbs.union: 2,
    verbs.connected: 1,
    verbs.ruled: 1,
    windows.window_aggregate: 4,
    windows.windows_of_windows: 2,
    windows.window_function: 2,
    windows.window_fold: 1,
    functions.ranked: 2,
    functions.buckets: 2,
    functions.batches: 1,
    functions.kept: 1,
    functions.balance: 1,
    functions.multiplied: 1,
    joins.window_join: 3,
    joins.interval_join: 2,
    joins.temporal_join: 1,
    joins.co_group: 1,
    bounded.grouped: 2,
    bounded.numbered: 1,
    patterns.matched: 2,
    queries.selected: 1,
    queries.windowed: 3,
    queries.over: 1,
}
_ENDS: Final[Mapping[Callable[[Random, str], End], int]] = {
    ends.rows: 4,
    ends.windows: 4,
    ends.reduced_windows: 1,
    ends.running: 3,
    ends.reduced: 1,
    ends.everything: 1,
    ends.counted: 1,
    bounded.groups: 2,
    bounded.in_order: 2,
    queries.queried: 2,
    queries.near: 1,
    queries.recognized: 1,
}

Part = Literal["all", "history", "live"]
_OF_SPARK: Final = re.compile(
    r"(patient )?(tumbling|sliding)|filter [vfk]|filter not|with_columns j, v|window_join \w+ in tumbling|running"
    r"|group_by|sort|place in sort"
)
_NOT_OF_SPARK: Final = re.compile(r"session|cumulative|list|since|until|reduced")


@dataclass(frozen=True)
class Source:
    """Rows in memory, or (`files`) in so many Parquet files."""

    rows: Rows
    kind: str
    files: int
    row_group: int = 1_000_000
    is_silent: bool = False

    @property
    def text(self) -> str:
        return f"{len(self.rows)} rows, x: {self.kind}, " + (
            f"{self.files} Parquet files" if self.files else "in memory"
        )

    def build(self, env: StreamEnvironment, folder: Path, part: Part) -> DataStream:
        """The stream of a part of the rows; `folder` is a new one, for its files."""
        cut = (len(self.rows) * 2 + 1) // 3
        some = {"all": self.rows, "history": self.rows[:cut], "live": self.rows[cut:]}[part]
        if not self.files:
            stream, bound = env.from_collection(some, schema=schema_of(self.kind)), disorder(self.rows)
        else:
            folder.mkdir(parents=True)
            for number in range(self.files):
                pq.write_table(
                    table_of(some[number :: self.files], self.kind),
                    folder / f"{number}.parquet",
                    row_group_size=self.row_group,
                )
            times = [row["t"] for row in self.rows]
            # Files are read in any order, side by side.
            bound = max(times, default=0) - min(times, default=0)
            stream = env.from_files(str(folder), format="parquet")
        if self.is_silent:
            return stream.assign_timestamps("t", WatermarkStrategy.no_watermarks())
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
        expected: what each end gives, as `End.texts`.
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

    def build(self, env: StreamEnvironment, folder: Path, part: Part = "all") -> list[Read]:
        """Put it into an environment, to read a part of the rows; how to read each end. Its files are in `folder`."""
        streams = [source.build(env, folder / f"in-{number}", part) for number, source in enumerate(self.sources)]
        for step in self.steps:
            streams += step.verb.build(*_env(step.verb, env), *(streams[read] for read in step.reads))
        return [
            end.build(*_env(end, env), streams[read], folder / f"out-{number}")
            for number, (end, read) in enumerate(self.ends)
        ]

    def given(self, results: Sequence[Rows], has_updates: bool) -> list[list[str]]:
        """The rows that came out at each end, as they are compared with `expected`.

        Args:
            results: of each end.
            has_updates: whether running results came again and again, as they do in streaming mode.
        """
        pairs = zip(self.ends, results, strict=True)
        return [end.texts(end.final(rows) if has_updates else rows) for (end, _), rows in pairs]


def _env(one: Verb | End, env: StreamEnvironment) -> Sequence[StreamEnvironment]:
    """What it takes before the streams."""
    return [env] if one.takes_env else []


class _Maker:
    """Makes a program from a seed. Every second one is plain: of what Spark runs by itself, as far as that goes."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._kind = self._random.choice(list(KINDS))
        self._is_plain = self._random.random() < 0.5
        self._streams: list[Rows] = []
        self._unread: set[int] = set()
        self._program = Program(seed)

    def program(self) -> Program:
        """The program, with what it must give."""
        random = self._random
        for _ in range(random.choice([1, 1, 2])):
            self._add_source()
        for _ in range(random.randint(1, 3 if self._is_plain else 6)):
            self._add_verb()
        more = random.choices(range(len(self._streams)), k=random.choice([0, 0, 1]))
        for number in sorted({*self._unread, *more}):
            end = self._chosen(_ENDS)
            self._program.ends.append((end, number))
            self._program.expected.append(end.texts(end.model(self._streams[number])))
        return self._program

    def _add_source(self) -> None:
        random = self._random
        rows = random_rows(random, self._kind, random.choice([0, 1, *[random.randint(5, 40)] * 8]))
        files, row_group = random.choice([0, 1, 2]), random.choice([3, 1_000_000])
        if self._is_plain:
            files = max(files, 1)
        if self._kind == "timestamp[s]":
            # Parquet has no seconds.
            files = 0
        self._program.sources.append(Source(rows, self._kind, files, row_group, is_silent=random.random() < 0.1))
        self._unread.add(len(self._streams))
        self._streams.append(rows)

    def _add_verb(self) -> None:
        """Add a verb that reads some streams, most often those that nobody reads; none if it would give too much."""
        random = self._random
        verb = self._chosen(_VERBS)
        reads = tuple(
            random.choice(sorted(self._unread)) if random.random() < 0.8 else random.randrange(len(self._streams))
            for _ in range(verb.inputs)
        )
        given = verb.model(*(self._streams[read] for read in reads))
        if sum(map(len, given)) > _MOST_ROWS:
            return
        self._unread -= set(reads)
        self._unread |= set(range(len(self._streams), len(self._streams) + len(given)))
        self._program.steps.append(Step(verb, reads))
        self._streams += given

    def _chosen(self, weights: Mapping[Any, int]) -> Any:
        """A verb or an end that takes the type of `x`; in plain programs one that Spark knows."""
        while True:
            make = self._random.choices(list(weights), list(weights.values()))[0]
            made = make(self._random, self._kind)
            if made is None:
                continue
            if not self._is_plain or (_OF_SPARK.match(made.text) and not _NOT_OF_SPARK.search(made.text)):
                return made


def random_program(seed: int) -> Program:
    """The program of this seed."""
    return _Maker(seed).program()
