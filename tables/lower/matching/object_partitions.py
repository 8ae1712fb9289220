"""Partitions as Python objects: searched one by one and row by row, for every clause.

The operator of MATCH_RECOGNIZE holds them where definitions read other rows than the one in question, or PREV is read.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.engine.operators.changelog.row_states import with_key_groups
from penstock.engine.patterns.rows.lookahead import NEVER, Bools
from penstock.engine.patterns.rows.search import Attempt, Outcome, PartitionRows, RowSearch
from penstock.engine.state.capture import TableCapture
from penstock.engine.state.keys.identity import coded_columns
from penstock.engine.state.snapshot import Redistribution
from penstock.tables.lower.matching.partitions import (
    SortedRows,
    key_tuples,
    saved_columns,
    saved_rows,
    skips_nowhere,
    skips_to_itself,
)
from penstock.tables.parse.match_nodes import SkipTo

OnMatch = Callable[[Sequence[int], PartitionRows, int, int], None]
"""Takes a match: the variable of each of its rows, the rows of the partition, its first one, its time (int64 ms)."""


@dataclass(slots=True)
class Partition:
    """The rows of one partition.

    Args:
        key: the values of its key columns.
    """

    key: tuple[Any, ...]
    rows: PartitionRows = field(default_factory=PartitionRows)
    start: int = 0
    """The row where the search stands."""
    attempt: Attempt | None = None
    deadline: int | None = None
    """When the attempt is over, where there is a bound on its time."""


@dataclass(frozen=True, slots=True)
class PartitionSearch:
    """Finds all matches of a partition, one after the other.

    Args:
        search: knows the pattern.
        first: a bit for each variable that may begin a match.
        skip: where the search resumes behind a match.
        skip_variables: the numbers of those that it goes to.
        back: how many rows before a match may be read.
        where: for messages.
    """

    search: RowSearch
    first: int
    skip: SkipTo
    skip_variables: frozenset[int]
    back: int
    where: str

    @property
    def skip_names(self) -> str:
        """Those that the search goes to, for messages."""
        return ", ".join(sorted(self.search.automaton.variables[number] for number in self.skip_variables))

    def advance(self, partition: Partition, until: int, is_over: bool, on_match: OnMatch) -> None:
        """Find what the rows decide, and forget those that are not needed any more.

        Args:
            until: no rows up to this time (int64 ms) come any more.
            is_over: whether no rows come at all.
        """
        rows, search = partition.rows, self.search
        decided = MIN_TIMESTAMP
        while True:
            attempt = partition.attempt
            if attempt is None:
                start = self._next_start(rows, partition.start)
                partition.start = start
                if start == len(rows.times):
                    break
                attempt = partition.attempt = search.begun(start)
            deadline = None if search.within_ms is None else rows.times[attempt.start] + search.within_ms
            outcome = search.resume(attempt, rows, is_over or (deadline is not None and until >= deadline - 1))
            if outcome is Outcome.OPEN:
                partition.deadline = deadline
                break
            partition.attempt = partition.deadline = None
            decided = max(decided, search.decided_at(attempt, rows))
            partition.start = attempt.start + 1
            if outcome is Outcome.MATCHED:
                on_match(attempt.trail.taken, rows, attempt.start, decided)
                partition.start = self._behind(attempt)
        self._forget(partition)

    def _next_start(self, rows: PartitionRows, row: int) -> int:
        answers, asked = rows.answers, self.first | NEVER
        while row < len(answers) and not 0 < answers[row] & asked < NEVER:
            row += 1
        return row

    def _behind(self, match: Attempt) -> int:
        taken = match.trail.taken
        if self.skip is SkipTo.NEXT_ROW:
            return match.start + 1
        if self.skip is SkipTo.PAST_LAST_ROW:
            return match.start + len(taken)
        places = [place for place, variable in enumerate(taken) if variable in self.skip_variables]
        if not places:
            raise skips_nowhere(self.where, self.skip_names)
        place = places[0] if self.skip is SkipTo.FIRST else places[-1]
        if place == 0:
            raise skips_to_itself(self.where, self.skip_names)
        return match.start + place

    def _forget(self, partition: Partition) -> None:
        count = max(partition.start - self.back, 0)
        if count:
            partition.rows.drop(count)
            partition.start -= count
            if partition.attempt is not None:
                partition.attempt.move(count)


class ObjectPartitions:
    """As `Partitions`.

    Args:
        search: knows the clause.
        keys: the key columns.
        values: the types of a row's values.
        on_match: takes matches.
    """

    def __init__(
        self, search: PartitionSearch, keys: pa.Schema, values: Sequence[pa.DataType], on_match: OnMatch
    ) -> None:
        self._search = search
        self._keys = keys
        self._columns = saved_columns(keys, values)
        self._on_match = on_match
        self._partitions: dict[tuple[Any, ...], Partition] = {}
        self._deadlines: list[tuple[int, int, tuple[Any, ...]]] = []
        """Time, a number that tells equal times apart, and the coded key."""
        self._numbered = 0

    def are_under_way(self, keys: Sequence[pa.Array], count: int) -> Bools:
        """As `Partitions.are_under_way`."""
        if not self._partitions:
            return np.zeros(count, np.bool_)
        return np.array([code in self._partitions for code in key_tuples(coded_columns(keys), count)], np.bool_)

    def take(self, rows: SortedRows, until: int) -> None:
        """As `Partitions.take`."""
        ends = np.flatnonzero(np.diff(rows.numbers, append=-1)) + 1
        numbers = pa.array(rows.numbers[ends - 1])
        own = [column.take(numbers) for column in rows.keys]
        codes, keys = (key_tuples(columns, len(ends)) for columns in (coded_columns(own), own))
        times, answers = rows.times.tolist(), rows.answers.tolist()
        values = key_tuples(rows.values, len(times))
        begin = 0
        for code, key, end in zip(codes, keys, ends.tolist(), strict=True):
            partition = self._partitions.get(code)
            if partition is None:
                partition = self._partitions[code] = Partition(key)
            partition.rows.times += times[begin:end]
            partition.rows.answers += answers[begin:end]
            partition.rows.values += values[begin:end]
            begin = end
        self._advance(codes, until, False)

    def come_to(self, until: int) -> None:
        """As `Partitions.come_to`."""
        due: dict[tuple[Any, ...], None] = {}
        while self._deadlines and self._deadlines[0][0] - 1 <= until:
            due.setdefault(heapq.heappop(self._deadlines)[2])
        self._advance([code for code in due if code in self._partitions], until, False)

    def end(self) -> None:
        """As `Partitions.end`."""
        self._advance(list(self._partitions), MAX_TIMESTAMP, True)

    @property
    def next_time(self) -> int | None:
        """As `Partitions.next_time`."""
        return self._deadlines[0][0] if self._deadlines else None

    def _advance(self, codes: list[tuple[Any, ...]], until: int, is_over: bool) -> None:
        for code in codes:
            partition = self._partitions[code]
            before = partition.deadline
            self._search.advance(partition, until, is_over, self._on_match)
            if not partition.rows.times:
                del self._partitions[code]
            elif partition.deadline is not None and partition.deadline != before:
                self._numbered += 1
                heapq.heappush(self._deadlines, (partition.deadline, self._numbered, code))

    # State

    def capture(self, max_parallelism: int) -> TableCapture | None:
        """As `Partitions.capture`."""
        if not self._partitions:
            return None
        copied = [
            (p.key, p.start, list(p.rows.times), list(p.rows.answers), list(p.rows.values))
            for p in self._partitions.values()
        ]

        def table() -> pa.Table:
            columns: list[list[Any]] = [[] for _ in self._columns]
            width = len(self._keys)
            for key, start, times, answers, values in copied:
                for place in range(width):
                    columns[place] += [key[place]] * len(times)
                columns[width] += times
                columns[width + 1] += range(-start, len(times) - start)
                columns[width + 2] += answers
                for place in range(width + 3, len(columns)):
                    columns[place] += [row[place - width - 3] for row in values]
            arrays = [pa.array(column, kind.type) for column, kind in zip(columns, self._columns, strict=True)]
            return with_key_groups(pa.table(arrays, schema=self._columns), self._keys, max_parallelism)

        return TableCapture(Redistribution.KEYED, table)

    def restore(self, table: pa.Table) -> None:
        """As `Partitions.restore`."""
        batch = saved_rows(table, self._columns, self._search.where)
        if batch is None:
            return
        width = len(self._keys)
        codes = key_tuples(coded_columns(batch.columns[:width]), batch.num_rows)
        keys = key_tuples(batch.columns[:width], batch.num_rows)
        times, places, answers = (column.to_pylist() for column in batch.columns[width : width + 3])
        values = key_tuples(batch.columns[width + 3 :], batch.num_rows)
        for row in np.argsort(np.array(places), kind="stable").tolist():
            partition = self._partitions.get(codes[row])
            if partition is None:
                partition = self._partitions[codes[row]] = Partition(keys[row], start=-places[row])
            partition.rows.times.append(times[row])
            partition.rows.answers.append(answers[row])
            partition.rows.values.append(values[row])
        # The searches begin again, and come to where they were: with the same rows nothing new is decided.
        self._advance(list(self._partitions), MIN_TIMESTAMP, False)
