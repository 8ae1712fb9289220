"""The rows of one input of a join that are in sessions, found by session.

`SessionPairing` keeps one for each input; `SessionCells` says which rows are in which session. Rows of one session that
came together are a run; the runs of a session are a linked list. So adding rows, merging sessions and taking the rows
of sessions that end cost in proportion to what they touch, however many rows are held.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.engine.cells.cell_pool import CellPool
from penstock.engine.operators.join_columns import Int64s
from penstock.engine.operators.joins.row_log import RowLog, positions
from penstock.engine.state.keys.codec import grown

_NONE: Final = -1
_MIN_DEAD: Final = 4096


def _in_order(begins: Int64s, lengths: Int64s) -> Int64s:
    """The runs that have rows, as they came."""
    runs = np.flatnonzero(lengths)
    ordered: Int64s = runs[np.argsort(begins[runs])]
    return ordered


class SessionRows:
    """Rows of one input, by session."""

    def __init__(self) -> None:
        self._log = RowLog()
        self._times = np.empty(0, np.int64)
        self._dead = 0
        self._pool = CellPool()
        # By run.
        self._begins = np.empty(0, np.int64)
        self._lengths = np.empty(0, np.int64)
        self._next = np.empty(0, np.int64)
        # By session: its first and last run, and a number for a moment.
        self._heads = np.empty(0, np.int64)
        self._tails = np.empty(0, np.int64)
        self._number = np.empty(0, np.int64)

    def __len__(self) -> int:
        """Rows held, those that were taken and are not dropped yet among them."""
        return len(self._log)

    @property
    def nbytes(self) -> int:
        """Bytes of these rows."""
        return self._log.nbytes

    def add(self, sessions: Int64s, rows: pa.RecordBatch, timestamps: Int64s) -> Int64s:
        """Keep rows, at least one, in order of arrival.

        Args:
            sessions: the session of each row.

        Returns:
            The distinct sessions, in any order.
        """
        if not self._all_distinct(sessions) and (sessions[1:] < sessions[:-1]).any():
            order = np.argsort(sessions, kind="stable")
            sessions, rows, timestamps = sessions[order], rows.take(pa.array(order)), timestamps[order]
        begins = np.flatnonzero(np.concatenate([[True], sessions[1:] != sessions[:-1]]))
        first = self._log.append(rows)
        self._times = grown(self._times, len(self._log))
        self._times[first : len(self._log)] = timestamps
        runs = self._pool.take(len(begins))
        self._begins = grown(self._begins, self._pool.end)
        self._lengths = grown(self._lengths, self._pool.end)
        self._next = grown(self._next, self._pool.end)
        self._begins[runs] = first + begins
        self._lengths[runs] = np.diff(begins, append=len(sessions))
        distinct = sessions[begins]
        self._attach(distinct, runs, runs)
        return distinct

    def _all_distinct(self, sessions: Int64s) -> bool:
        """Whether each row has a session of its own; then they need no sorting."""
        self._reserve(sessions)
        numbers = np.arange(len(sessions))
        self._number[sessions] = numbers
        return bool((self._number[sessions] == numbers).all())

    def merge(self, merged: Int64s, into: Int64s) -> None:
        """The rows of session `merged[i]` are in session `into[i]` now."""
        self._reserve(merged)
        merged, into = (sessions[self._heads[merged] != _NONE] for sessions in (merged, into))
        heads, tails = self._heads[merged], self._tails[merged]
        self._heads[merged] = _NONE
        order = np.argsort(into, kind="stable")
        self._attach(into[order], heads[order], tails[order])

    def _attach(self, sessions: Int64s, firsts: Int64s, lasts: Int64s) -> None:
        """Put the list of runs from `firsts[i]` to `lasts[i]` behind those of session i; equal sessions in a row."""
        if not len(sessions):
            return
        self._reserve(sessions)
        same = sessions[1:] == sessions[:-1]
        self._next[lasts[:-1][same]] = firsts[1:][same]
        begins, ends = np.append(True, ~same), np.append(~same, True)
        self._next[lasts[ends]] = _NONE
        distinct, firsts = sessions[begins], firsts[begins]
        fresh = self._heads[distinct] == _NONE
        self._heads[distinct[fresh]] = firsts[fresh]
        self._next[self._tails[distinct[~fresh]]] = firsts[~fresh]
        self._tails[distinct] = lasts[ends]

    def _reserve(self, sessions: Int64s) -> None:
        end = int(sessions.max(initial=-1)) + 1
        held = len(self._heads)
        if end > held:
            self._heads, self._tails, self._number = (grown(a, end) for a in (self._heads, self._tails, self._number))
            self._heads[held:] = _NONE

    def sizes(self, sessions: Int64s) -> Int64s:
        """How many rows each of these sessions has."""
        of, runs = self._runs(sessions)
        sizes = np.zeros(len(sessions), np.int64)
        np.add.at(sizes, of, self._lengths[runs])
        return sizes

    def take(self, sessions: Int64s) -> tuple[pa.RecordBatch, Int64s, Int64s] | None:
        """Remove the rows of these sessions.

        Returns:
            None where they have none; else the rows, the order of rows by session and time (rows with equal times as
            they came), and for each row in that order the place of its session in `sessions`.
        """
        of, runs = self._runs(sessions)
        if not len(runs):
            return None
        self._heads[sessions] = _NONE
        lengths = self._lengths[runs]
        places, groups = positions(self._begins[runs], lengths), np.repeat(of, lengths)
        arrived = np.argsort(places)
        rows, times = self._log.take(places[arrived]), self._times[places]
        # Where these rows stand in `rows`.
        places[arrived] = np.arange(len(places))
        if (of[1:] <= of[:-1]).any() or ((times[1:] < times[:-1]) & (groups[1:] == groups[:-1])).any():
            order = np.lexsort((places, times, groups))
            places, groups = places[order], groups[order]
        self._lengths[runs] = 0
        self._pool.give_back(runs)
        self._dead += len(places)
        if self._dead == len(self._log):
            self._log, self._dead = RowLog(), 0
        # Dropping rows looks at all runs that there ever were at one time.
        elif self._dead > max(len(self._log) // 2, self._pool.end // 4, _MIN_DEAD):
            self._compact()
        return rows, places, groups

    def _runs(self, sessions: Int64s) -> tuple[Int64s, Int64s]:
        """All runs of these sessions: the place of the session in `sessions`, and the run."""
        self._reserve(sessions)
        of, runs = np.arange(len(sessions)), self._heads[sessions]
        found_of, found_runs = [of[:0]], [runs[:0]]
        while len(runs):
            more = runs != _NONE
            of, runs = of[more], runs[more]
            found_of.append(of)
            found_runs.append(runs)
            runs = self._next[runs]
        return np.concatenate(found_of), np.concatenate(found_runs)

    def captured(self) -> Callable[[], tuple[list[pa.RecordBatch], Int64s]] | None:
        """All rows that were not taken, in order of arrival, and their timestamps; to be made later and in any thread.

        None where there are none. Copies eight bytes a row and sixteen a run, and refers to the rows.
        """
        if self._dead == len(self._log):
            return None
        log, times = self._log.copy(), self._times[: len(self._log)].copy()
        begins, lengths = self._begins[: self._pool.end].copy(), self._lengths[: self._pool.end].copy()

        def made() -> tuple[list[pa.RecordBatch], Int64s]:
            runs = _in_order(begins, lengths)
            places = positions(begins[runs], lengths[runs])
            log.keep(places)
            return log.parts, times[places]

        return made

    def _compact(self) -> None:
        """Drop the rows that were taken."""
        runs = _in_order(self._begins, self._lengths[: self._pool.end])
        lengths = self._lengths[runs]
        places = positions(self._begins[runs], lengths)
        self._log.keep(places)
        self._times = self._times[places]
        self._begins[runs] = np.cumsum(lengths) - lengths
        self._dead = 0
