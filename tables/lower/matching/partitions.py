"""The partitions that have rows of matches under way: searched on as rows come, saved as rows, restored from them.

The operator holds them. What is saved is the rows alone, from the one on where the search stands: a restored search
begins again with that one, and comes to the same point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.engine.elements import MIN_TIMESTAMP
from penstock.engine.errors import RecordError, StateError
from penstock.engine.operators.changelog.row_states import with_key_groups
from penstock.engine.patterns.rows.lookahead import NEVER
from penstock.engine.patterns.rows.search import Attempt, Outcome, PartitionRows, RowSearch
from penstock.engine.patterns.rows.trail import Trail
from penstock.engine.state.capture import TableCapture
from penstock.engine.state.keys.identity import coded_columns
from penstock.engine.state.snapshot import KEY_GROUP, Redistribution
from penstock.tables.parse.match_nodes import SkipTo

TIME: Final = "__time"
_PLACE: Final = "__place"
"""Of a row in its partition, from the one on where the search stands; below 0 for those that PREV may still read."""
_ANSWERS: Final = "__answers"

OnMatch = Callable[[Attempt, PartitionRows, int], None]
"""Takes a match: the attempt, the rows of its partition, and its time (int64 ms)."""


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
        skip: where the search goes on behind a match.
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
                on_match(attempt, rows, decided)
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
        names = ", ".join(sorted(self.search.automaton.variables[number] for number in self.skip_variables))
        if not places:
            raise RecordError(
                f"{self.where}: AFTER MATCH SKIP goes to {names}, of which a match has no row; skip TO NEXT ROW or "
                "PAST LAST ROW, or let each match have one"
            )
        place = places[0] if self.skip is SkipTo.FIRST else places[-1]
        if place == 0:
            raise RecordError(
                f"{self.where}: AFTER MATCH SKIP goes to {names}, which is the first row of a match, so it would be "
                "found again for ever; skip TO NEXT ROW or PAST LAST ROW"
            )
        return match.start + place

    def _forget(self, partition: Partition) -> None:
        count = max(partition.start - self.back, 0)
        if count:
            partition.rows.drop(count)
            partition.start -= count
            if partition.attempt is not None:
                partition.attempt.move(count)


def trail_of(match: Attempt, rows: PartitionRows, trail: Trail) -> Iterator[Trail]:
    """The rows of a match added to another trail, one by one."""
    for place, variable in enumerate(match.trail.taken):
        trail.add(variable, rows.values[match.start + place])
        yield trail


class SavedPartitions:
    """Makes the state table of partitions, and partitions of it.

    Args:
        keys: the key columns.
        values: the types of a row's values.
        where: for messages.
    """

    def __init__(self, keys: pa.Schema, values: Sequence[pa.DataType], where: str) -> None:
        self._keys = keys
        self._where = where
        columns = [(f"v{place}", kind) for place, kind in enumerate(values)]
        self._schema = pa.schema([*keys, (TIME, pa.int64()), (_PLACE, pa.int64()), (_ANSWERS, pa.int64()), *columns])

    def capture(self, partitions: Sequence[Partition], max_parallelism: int) -> TableCapture:
        """The rows as they are now, to be made a table later."""
        copied = [(p.key, p.start, list(p.rows.times), list(p.rows.answers), list(p.rows.values)) for p in partitions]

        def table() -> pa.Table:
            columns: list[list[Any]] = [[] for _ in self._schema]
            width = len(self._keys)
            for key, start, times, answers, values in copied:
                for place in range(width):
                    columns[place] += [key[place]] * len(times)
                columns[width] += times
                columns[width + 1] += range(-start, len(times) - start)
                columns[width + 2] += answers
                for place in range(width + 3, len(columns)):
                    columns[place] += [row[place - width - 3] for row in values]
            arrays = [pa.array(column, kind.type) for column, kind in zip(columns, self._schema, strict=True)]
            return with_key_groups(pa.table(arrays, schema=self._schema), self._keys, max_parallelism)

        return TableCapture(Redistribution.KEYED, table)

    def restored(self, table: pa.Table) -> dict[tuple[Any, ...], Partition]:
        """The partitions of a saved table, by coded key.

        Raises:
            StateError: it was saved by a clause that keeps other values of its rows.
        """
        data = table.drop_columns([KEY_GROUP])
        if data.schema.names != self._schema.names or data.schema.types != self._schema.types:
            raise StateError(
                f"{self._where}: the saved rows of matches under way have other columns than the clause reads now; "
                "start with allow_non_restored_state and another name to leave them, or with the clause as it was"
            )
        found: dict[tuple[Any, ...], Partition] = {}
        if not data.num_rows:
            return found
        batch = data.combine_chunks().to_batches()[0]
        codes = key_tuples(coded_columns(batch.columns[: len(self._keys)]), batch.num_rows)
        keys = key_tuples(batch.columns[: len(self._keys)], batch.num_rows)
        rest = [column.to_pylist() for column in batch.columns[len(self._keys) :]]
        places = np.asarray(rest[1])
        values = list(zip(*rest[3:], strict=True)) if len(rest) > 3 else [()] * batch.num_rows
        for row in np.argsort(places, kind="stable").tolist():
            partition = found.get(codes[row])
            if partition is None:
                partition = found[codes[row]] = Partition(keys[row], start=-int(places[row]))
            partition.rows.times.append(rest[0][row])
            partition.rows.answers.append(rest[2][row])
            partition.rows.values.append(values[row])
        return found


def key_tuples(columns: Sequence[pa.Array], rows: int) -> list[tuple[Any, ...]]:
    """The keys of rows as tuples; of no columns, they are all alike."""
    if not columns:
        return [()] * rows
    return list(zip(*(column.to_pylist() for column in columns), strict=True))
