"""Makes rows of matches: what results read is collected match by match, and computed for many at once.

The operator adds matches and flushes them; rows leave in order of the times of their matches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engine.elements import Batch
from penstock.engine.operators.base import Collector
from penstock.engine.patterns.rows.column_rules import Int64s
from penstock.engine.patterns.rows.search import PartitionRows
from penstock.engine.patterns.rows.trail import Trail
from penstock.tables.expressions import columns_in
from penstock.tables.functions.signatures import SessionValues
from penstock.tables.lower.calc import made
from penstock.tables.lower.evaluation import Evaluation
from penstock.tables.lower.matching.column_partitions import ColumnMatches
from penstock.tables.lower.matching.column_results import read_column
from penstock.tables.lower.matching.partitions import key_tuples, trail_of
from penstock.tables.lower.matching.readers import ReferenceReaders
from penstock.tables.plan.row_references import ReferenceKind, RowMatch
from penstock.tables.types import arrow_type


class MatchedRows:
    """Rows of results to come.

    Args:
        match: what is made of matches.
        names: the variables of the pattern, by number.
        schema: of the results.
    """

    def __init__(self, match: RowMatch, names: Sequence[str], schema: pa.Schema) -> None:
        self._match = match
        self._schema = schema
        read = sorted({place for result in match.results for place in columns_in(result)})
        self._rowtimes = [p for p in read if match.references[p].kind is ReferenceKind.ROWTIME]
        others = [p for p in read if p not in self._rowtimes]
        self._readers = ReferenceReaders(match.references, others, names)
        self._names = tuple(names)
        self._collected: dict[int, list[Any]] = {place: [] for place in others}
        self._times: list[int] = []
        self._columns: dict[int, list[pa.Array]] = {place: [] for place in others}
        """Of matches that came as columns."""
        self._column_times: list[Int64s] = []

    def add(self, taken: Sequence[int], rows: PartitionRows, start: int, time: int) -> None:
        """Take a match.

        Args:
            taken: the variable of each of its rows.
            rows: those of its partition.
            start: its first row.
            time: its own (int64 ms).
        """
        whole = Trail(self._readers.layout)
        for _ in trail_of(taken, rows, start, whole):
            pass
        if not self._match.all_rows:
            self._collect(whole, whole, rows, start, time)
            return
        for running in trail_of(taken, rows, start, Trail(self._readers.layout)):
            self._collect(whole, running, rows, start, time)

    def add_columns(self, found: ColumnMatches) -> None:
        """Take matches, at least one."""
        if not self._match.all_rows:
            for place, columns in self._columns.items():
                columns.append(read_column(self._match.references[place], found, self._names))
            self._column_times.append(found.times)
            return
        values = key_tuples(found.values, int(found.rows.max()) + 1)
        taken = [values[row] for row in found.rows.tolist()]
        variables, begins = found.variables.tolist(), found.begins.tolist()
        for begin, end, time in zip(begins[:-1], begins[1:], found.times.tolist(), strict=True):
            self.add(variables[begin:end], PartitionRows(values=taken[begin:end]), 0, time)

    def _collect(self, whole: Trail, running: Trail, rows: PartitionRows, start: int, time: int) -> None:
        for place, kept in self._collected.items():
            trail = whole if self._match.references[place].is_final else running
            kept.append(self._readers.by_place[place](trail, rows, start))
        self._times.append(time)

    def flush(self, session: SessionValues, out: Collector) -> None:
        """Emit the rows of all matches since the last time."""
        if self._times:
            self._column_times.append(np.array(self._times, np.int64))
            self._times.clear()
            for place, kept in self._collected.items():
                self._columns[place].append(pa.array(kept, arrow_type(self._match.references[place].type)))
                kept.clear()
        if not self._column_times:
            return
        times = np.concatenate(self._column_times)
        self._column_times.clear()
        columns: list[pa.Array | None] = [None] * len(self._match.references)
        for place, parts in self._columns.items():
            columns[place] = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
            parts.clear()
        for place in self._rowtimes:
            kind = arrow_type(self._match.references[place].type)
            columns[place] = pa.array(times).cast(pa.timestamp("ms")).cast(kind)
        evaluation = Evaluation(columns, len(times), session)
        batch = made([evaluation.value(result) for result in self._match.results], self._schema, len(times))
        order = pa.array(np.argsort(times, kind="stable"))
        out.collect(Batch(batch.take(order), pa.array(times).take(order)))
