"""What the tests of changelog operators share: an operator in several subtasks, a checker of what it says, and scripts.

`ChangelogJob` keeps what its changelog adds up to, and objects to one that is not well-formed: a row that is taken back
must be there, and with a key there is one row at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from penstock.engine.changelog import RowKind
from penstock.engine.clock import ManualClock
from penstock.engine.columns import with_numbers
from penstock.engine.config import JobConfig
from penstock.engine.elements import Batch, Watermark
from penstock.engine.metrics import OperatorMetrics
from penstock.engine.operators.base import OperatorContext
from penstock.engine.operators.spec import OperatorSpec
from penstock.engine.state.capture import CaptureRequest, CaptureScope
from penstock.engine.state.keys.groups import key_groups, subtask_of
from penstock.engine.state.keys.identity import coded_columns
from penstock.engine.state.snapshot import OperatorSnapshot, Redistribution, StateTable, share
from penstock.savepoints.history import merge_rows
from tests.engine.helpers import RecordingCollector
from tests.engine.state.saved import captured_snapshot

MAX_PARALLELISM = 128
KINDS = {"+I": RowKind.INSERT, "-U": RowKind.UPDATE_BEFORE, "+U": RowKind.UPDATE_AFTER, "-D": RowKind.DELETE}
NAMES = {kind: name for name, kind in KINDS.items()}

Row = tuple[Any, ...]
Change = tuple[str, Row]
"""A kind and a row."""


class NotWellFormed(AssertionError):
    """A changelog takes back what is not there, or says two rows of one key."""


class Materialised:
    """What a changelog adds up to.

    Args:
        key: places of the key columns; None where rows have none, so that each counts for itself.
        has_before: whether updates come with what was before.
    """

    def __init__(self, key: Sequence[int] | None = None, has_before: bool = True) -> None:
        self._key = key
        self._has_before = has_before
        self._counts: Counter[Row] = Counter()
        self._by_key: dict[Row, Row] = {}

    def apply(self, kind: str, row: Row) -> None:
        """Take in one change."""
        if self._has_before:
            self._apply_row(kind, row)
        if self._key is not None:
            self._apply_by_key(kind, row, tuple(row[place] for place in self._key))

    def _apply_row(self, kind: str, row: Row) -> None:
        if kind in ("-U", "-D"):
            if not self._counts[row]:
                raise NotWellFormed(f"{kind}{row}: there is no such row among {dict(self._counts)}")
            self._counts[row] -= 1
        else:
            self._counts[row] += 1

    def _apply_by_key(self, kind: str, row: Row, key: Row) -> None:
        held = self._by_key.get(key)
        if kind == "+I" and held is not None:
            raise NotWellFormed(f"+I{row}: the key has {held}")
        if kind in ("+U", "-D") and held is None and not (kind == "+U" and self._has_before):
            raise NotWellFormed(f"{kind}{row}: the key has no row")
        if kind in ("-U", "-D"):
            if held != row:
                raise NotWellFormed(f"{kind}{row}: the key has {held}")
            del self._by_key[key]
        else:
            self._by_key[key] = row

    @property
    def rows(self) -> list[Row]:
        """What is there now, sorted."""
        rows = list(self._counts.elements()) if self._has_before else list(self._by_key.values())
        return sorted(rows, key=repr)


class ChangelogJob:
    """The subtasks of one operator: rows go where their keys belong, watermarks to all.

    Args:
        spec: of the operator.
        schemas: of its inputs.
        parallelism: how many subtasks.
        backend: of the state.
        materialised: adds up what is said.
    """

    def __init__(
        self,
        spec: OperatorSpec,
        schemas: Sequence[pa.Schema],
        parallelism: int = 1,
        backend: str = "heap",
        materialised: Materialised | None = None,
    ) -> None:
        self.spec = spec
        self._schemas = schemas
        self._keys = spec.traits.keys
        self._backend = backend
        self._parallelism = parallelism if self._keys[0] else 1
        self.clock = ManualClock()
        self.materialised = materialised or Materialised()
        self.log: list[Change] = []
        self.timestamps: list[int | None] = []
        self._saved: dict[int, dict[str, list[pa.Table]]] = {}
        self._identities: dict[str, tuple[str, ...]] = {}
        self._watermarks: dict[int, int] = {}
        self._start([])

    def _start(self, snapshots: list[OperatorSnapshot]) -> None:
        self.out = RecordingCollector()
        self.operators = []
        for subtask in range(self._parallelism):
            operator = self.spec.create()
            config = JobConfig(state_backend=self._backend)
            operator.open(OperatorContext("tested", subtask, self._parallelism, self.clock, OperatorMetrics(), config))
            if snapshots:
                operator.restore(share(snapshots, subtask, self._parallelism, MAX_PARALLELISM))
            self.operators.append(operator)

    def send(self, changes: Sequence[Change], side: int = 0, times: Sequence[int] | None = None) -> list[Change]:
        """Give one batch; what it made the operator say."""
        if not changes:
            return []
        schema = self._schemas[side]
        columns = [pa.array([row[place] for _, row in changes], field.type) for place, field in enumerate(schema)]
        batch = Batch(
            pa.RecordBatch.from_arrays(columns, schema=schema),
            None if times is None else pa.array(times, pa.int64()),
            pa.array([KINDS[kind] for kind, _ in changes], pa.int8()),
        )
        targets = np.zeros(len(changes), np.int64)
        if self._keys[side]:
            keys = coded_columns([batch.data.column(name) for name in self._keys[side]])
            targets = subtask_of(key_groups(keys, MAX_PARALLELISM), self._parallelism, MAX_PARALLELISM)
        for subtask in np.unique(targets).tolist():
            self.operators[subtask].process_batch(batch.filter(pa.array(targets == subtask)), side, self.out)
        return self._take()

    def advance(self, watermark: int) -> list[Change]:
        """Bring event time to `watermark` in all subtasks."""
        for operator in self.operators:
            operator.on_watermark(Watermark(watermark), self.out)
        return self._take()

    def _take(self) -> list[Change]:
        said = [change for batch in self.out.batches for change in changes_of(batch)]
        self.timestamps += self.out.timestamps
        self.out.elements.clear()
        for kind, row in said:
            self.materialised.apply(kind, row)
        self.log += said
        return said

    def restart(self, parallelism: int | None = None, backend: str | None = None) -> None:
        """Stop with a savepoint, and resume from it, with other subtasks or another backend."""
        snapshots = [captured_snapshot(one.capture(CaptureRequest(1, CaptureScope.COMPLETE))) for one in self.operators]
        self._go_on(snapshots, parallelism, backend)

    def _go_on(self, snapshots: list[OperatorSnapshot], parallelism: int | None, backend: str | None) -> None:
        for operator in self.operators:
            operator.close()
        self._saved.clear()
        self._backend = backend or self._backend
        if parallelism is not None and self._keys[0]:
            self._parallelism = parallelism
        self._start(snapshots)

    def checkpoint(self) -> None:
        """Take a checkpoint, of changes where there was one before: for memory."""
        for subtask, operator in enumerate(self.operators):
            capture = operator.capture(CaptureRequest(1, CaptureScope.CHANGES))
            saved = self._saved.setdefault(subtask, {})
            for name, table in capture.tables.items():
                before = saved.get(name, []) if table.is_changes else []
                saved[name] = [*before, table.rows()]
                self._identities[name] = table.identity
            self._watermarks[subtask] = capture.watermark

    def recover(self, parallelism: int | None = None) -> None:
        """Resume from the last checkpoint, which was taken behind the last batch."""
        snapshots = []
        for subtask in range(len(self.operators)):
            tables = {}
            for name, parts in self._saved.get(subtask, {}).items():
                rows = merge_rows(parts, self._identities[name])
                tables[name] = StateTable(Redistribution.KEYED, rows)
            snapshots.append(OperatorSnapshot(tables, self._watermarks[subtask]))
        self._go_on(snapshots, parallelism, None)

    def close(self) -> None:
        """Release what the operators hold."""
        for operator in self.operators:
            operator.close()


def changes_of(batch: Batch) -> list[Change]:
    """The kinds and rows of a batch; times with nanoseconds are their numbers."""
    kinds = [RowKind.INSERT] * batch.num_rows if batch.kinds is None else batch.kinds.to_pylist()
    rows = zip(*(with_numbers(column).to_pylist() for column in batch.data.columns), strict=True)
    return [(NAMES[kind], _plain(row)) for kind, row in zip(kinds, rows, strict=True)]


def _plain(row: Row) -> Row:
    return tuple(tuple(map(_hashable, value)) if isinstance(value, list) else value for value in row)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@st.composite
def changelogs(
    draw: st.DrawFn, rows: st.SearchStrategy[Row], most: int = 24, deletes: bool = True
) -> list[list[Change]]:
    """Changes in batches: rows come, and rows that are there go or become others."""
    there: list[Row] = []
    batches: list[list[Change]] = [[]]
    for _ in range(draw(st.integers(1, most))):
        step = draw(st.sampled_from(["insert", "insert", "delete", "update", "cut"] if deletes else ["insert", "cut"]))
        if step == "cut":
            batches.append([])
        elif step == "insert" or not there:
            there.append(draw(rows))
            batches[-1].append(("+I", there[-1]))
        else:
            row = there.pop(draw(st.integers(0, len(there) - 1)))
            batches[-1].append(("-D" if step == "delete" else "-U", row))
            if step == "update":
                there.append(draw(rows))
                batches[-1].append(("+U", there[-1]))
    return [batch for batch in batches if batch]


class Table:
    """The rows that a changelog leaves, in order of arrival."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def apply(self, changes: Sequence[Change]) -> None:
        """Take in a batch; of rows that are alike the oldest goes."""
        for kind, row in changes:
            if kind in ("+I", "+U"):
                self.rows.append(row)
            else:
                self.rows.remove(row)
