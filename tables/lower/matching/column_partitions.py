"""Partitions as columns, all searched at once: for clauses whose definitions ask of each row alone (`runs_on_columns`).

The operator of MATCH_RECOGNIZE holds them. What is kept of rows stands in Arrow columns, and what the search knows of
them in arrays of integers; no row becomes a Python object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.engine.operators.changelog.inputs import distinct_keys
from penstock.engine.operators.changelog.row_states import with_key_groups
from penstock.engine.operators.joins.row_log import RowLog
from penstock.engine.operators.matching.time_outs import TimeOuts
from penstock.engine.patterns.rows import column_rules
from penstock.engine.patterns.rows.automaton import RowAutomaton
from penstock.engine.patterns.rows.column_rules import Int64s, Work
from penstock.engine.patterns.rows.column_search import ColumnSearch, fits
from penstock.engine.patterns.rows.lookahead import Bools
from penstock.engine.state.capture import TableCapture
from penstock.engine.state.keys.identity import coded_columns
from penstock.engine.state.keys.index import KeyIndex
from penstock.engine.state.snapshot import Redistribution
from penstock.tables.lower.matching.partitions import (
    SortedRows,
    saved_columns,
    saved_rows,
    skips_nowhere,
    skips_to_itself,
)
from penstock.tables.parse.match_nodes import SkipTo
from penstock.tables.plan.row_references import RowMatch

_SKIPS: Final[Mapping[SkipTo, int]] = {
    SkipTo.NEXT_ROW: column_rules.NEXT_ROW,
    SkipTo.PAST_LAST_ROW: column_rules.PAST_LAST_ROW,
    SkipTo.FIRST: column_rules.TO_FIRST,
    SkipTo.LAST: column_rules.TO_LAST,
}
_MIN_IDLE: Final = 65_536
"""Slots without rows, below which it is not worth while to give them to other keys."""


class ColumnMatches(NamedTuple):
    """Matches, in the order in which they were found.

    Args:
        begins: where the rows of each begin among those of all; behind them where the last ones end.
        variables: the variable of each row.
        rows: which row it is, of those that `values` has.
        values: what is kept of the rows, by columns.
        times: of the matches (int64 ms).
    """

    begins: Int64s
    variables: Int64s
    rows: Int64s
    values: Sequence[pa.Array]
    times: Int64s


def runs_on_columns(match: RowMatch, automaton: RowAutomaton) -> bool:
    """Whether `ColumnPartitions` can run a clause."""
    alone = all(definition.rest is None for _, definition in match.definitions)
    return alone and fits(automaton) and not any(reference.back for reference in match.references)


class ColumnPartitions:
    """As `Partitions`.

    Args:
        match: the clause, which `runs_on_columns`.
        automaton: its pattern.
        keys: the key columns.
        values: the types of a row's values.
        where: for messages.
        on_matches: takes matches.
    """

    def __init__(
        self,
        match: RowMatch,
        automaton: RowAutomaton,
        keys: pa.Schema,
        values: Sequence[pa.DataType],
        where: str,
        on_matches: Callable[[ColumnMatches], None],
    ) -> None:
        skips_to = [automaton.variables.index(name) for name in match.skip_variables]
        self._search = ColumnSearch(automaton, match.within_ms, _SKIPS[match.skip], skips_to)
        self._skip_names = ", ".join(sorted(match.skip_variables))
        self._keys = keys
        self._columns = saved_columns(keys, values)
        self._where = where
        self._on_matches = on_matches
        self._index = KeyIndex()
        self._rows = RowLog()
        """Key columns, time and values of the rows that the search knows, by their numbers."""
        self._time_outs = TimeOuts()

    def are_under_way(self, keys: Sequence[pa.Array], count: int) -> Bools:
        """As `Partitions.are_under_way`."""
        slots = self._index.find(_coded(keys, count))
        found: Bools = slots >= 0
        found[found] = self._search.is_under_way(slots[found])
        return found

    def take(self, rows: SortedRows, until: int) -> None:
        """As `Partitions.take`."""
        numbers = pa.array(rows.numbers)
        keys = [column.take(numbers) for column in rows.keys]
        held = pa.RecordBatch.from_arrays(
            [*keys, pa.array(rows.times), *rows.values],
            names=[*self._columns.names[: len(self._keys) + 1], *self._columns.names[len(self._keys) + 3 :]],
        )
        ends = np.flatnonzero(np.diff(rows.numbers, append=-1)) + 1
        own = pa.array(rows.numbers[ends - 1])
        slots = self._index.lookup(_coded([column.take(own) for column in rows.keys], len(ends)))
        self._rows.append(held)
        runs = np.stack([slots, np.concatenate([[0], ends[:-1]]), ends], axis=1)
        self._run(Work(np.ascontiguousarray(runs), rows.times, rows.answers, until, False))

    def come_to(self, until: int) -> None:
        """As `Partitions.come_to`."""
        self._advance(self._time_outs.take(until + 1), until, False)

    def end(self) -> None:
        """As `Partitions.end`."""
        self._advance(self._search.under_way(), MAX_TIMESTAMP, True)

    @property
    def next_time(self) -> int | None:
        """As `Partitions.next_time`."""
        return self._time_outs.next

    def _advance(self, slots: Int64s, until: int, is_over: bool) -> None:
        if len(slots):
            none = np.zeros(len(slots), np.int64)
            runs = np.stack([slots, none, none], axis=1)
            self._run(Work(runs, np.empty(0, np.int64), np.empty(0, np.int64), until, is_over))

    def _run(self, work: Work) -> None:
        done = self._search.run(work)
        self._time_outs.add(done.timers)
        if done.problem == column_rules.SKIPS_NOWHERE:
            raise skips_nowhere(self._where, self._skip_names)
        if done.problem == column_rules.SKIPS_TO_ITSELF:
            raise skips_to_itself(self._where, self._skip_names)
        if len(done.found):
            rows, places = np.unique(done.taken[:, 0], return_inverse=True)
            begins = np.concatenate([[0], done.found[:, 0]])
            values = self._rows.take(rows).columns[len(self._keys) + 1 :]
            self._on_matches(ColumnMatches(begins, done.taken[:, 1], places, values, done.found[:, 1]))
        self._compact()

    def _compact(self) -> None:
        kept = self._search.compact()
        if kept is None:
            return
        if len(kept):
            self._rows.keep(kept)
        else:
            self._rows = RowLog()
        under_way = self._search.under_way()
        if len(self._index) > 2 * len(under_way) + _MIN_IDLE:
            # A time-out that is waited for in vain only looks at what has come to its slot.
            self._index.remove(np.setdiff1d(self._index.slots(), under_way))

    # State

    def capture(self, max_parallelism: int) -> TableCapture | None:
        """As `Partitions.capture`."""
        places = self._search.held()
        held = np.flatnonzero(places >= 0)
        if not len(held):
            return None
        places, answers, log = places[held], self._search.answers(held), self._rows.copy()
        width = len(self._keys)

        def table() -> pa.Table:
            rows = log.take(held).columns
            columns = [*rows[: width + 1], pa.array(places), pa.array(answers), *rows[width + 1 :]]
            made = pa.Table.from_arrays(columns, schema=self._columns)
            return with_key_groups(made, self._keys, max_parallelism)

        return TableCapture(Redistribution.KEYED, table)

    def restore(self, table: pa.Table) -> None:
        """As `Partitions.restore`."""
        batch = saved_rows(table, self._columns, self._where)
        if batch is None:
            return
        # What the other search keeps for PREV stands before the rows that are searched; nothing here asks for it.
        width = len(self._keys)
        batch = batch.filter(pc.greater_equal(batch.column(width + 1), 0))
        numbers, keys = distinct_keys(batch.columns[:width], batch.num_rows)
        order = np.lexsort([batch.column(width + 1).to_numpy(), numbers])
        batch, numbers = batch.take(pa.array(order)), numbers[order]
        times, answers = batch.column(width).to_numpy(), batch.column(width + 2).to_numpy()
        # The searches begin again, and come to where they were: with the same rows nothing new is decided.
        values = batch.columns[width + 3 :]
        self.take(SortedRows(keys, numbers, times, answers, values), MIN_TIMESTAMP)


def _coded(keys: Sequence[pa.Array], count: int) -> list[pa.Array]:
    """The keys as `KeyIndex` takes them; of no columns they are all alike."""
    return coded_columns(keys) if keys else [pa.array(np.zeros(count, np.int64))]
