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
from penstock.engine.patterns.rows.search import Attempt, PartitionRows
from penstock.engine.patterns.rows.trail import Trail
from penstock.tables.expressions import columns_in
from penstock.tables.functions.signatures import SessionValues
from penstock.tables.lower.calc import made
from penstock.tables.lower.evaluation import Evaluation
from penstock.tables.lower.matching.partitions import trail_of
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
        self._collected: dict[int, list[Any]] = {place: [] for place in others}
        self._times: list[int] = []

    def add(self, found: Attempt, rows: PartitionRows, time: int) -> None:
        """Take a match and its time (int64 ms)."""
        whole = Trail(self._readers.layout)
        for _ in trail_of(found, rows, whole):
            pass
        if not self._match.all_rows:
            self._collect(whole, whole, rows, found.start, time)
            return
        for running in trail_of(found, rows, Trail(self._readers.layout)):
            self._collect(whole, running, rows, found.start, time)

    def _collect(self, whole: Trail, running: Trail, rows: PartitionRows, start: int, time: int) -> None:
        for place, kept in self._collected.items():
            trail = whole if self._match.references[place].is_final else running
            kept.append(self._readers.by_place[place](trail, rows, start))
        self._times.append(time)

    def flush(self, session: SessionValues, out: Collector) -> None:
        """Emit the rows of all matches since the last time."""
        if not self._times:
            return
        times = np.array(self._times, np.int64)
        columns: list[pa.Array | None] = [None] * len(self._match.references)
        for place, kept in self._collected.items():
            columns[place] = pa.array(kept, arrow_type(self._match.references[place].type))
            kept.clear()
        for place in self._rowtimes:
            kind = arrow_type(self._match.references[place].type)
            columns[place] = pa.array(times).cast(pa.timestamp("ms")).cast(kind)
        self._times.clear()
        evaluation = Evaluation(columns, len(times), session)
        batch = made([evaluation.value(result) for result in self._match.results], self._schema, len(times))
        order = pa.array(np.argsort(times, kind="stable"))
        out.collect(Batch(batch.take(order), pa.array(times).take(order)))
