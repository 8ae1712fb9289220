"""What the tests of the joins share: a join in several subtasks, driven by hand, and scripts for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from penstock.engine.clock import ManualClock
from penstock.engine.elements import MAX_TIMESTAMP, Batch, Watermark, concat_record_batches
from penstock.engine.metrics import OperatorMetrics
from penstock.engine.operators.base import Operator, OperatorContext
from penstock.engine.operators.join_columns import LEFT, RIGHT, JoinSide
from penstock.engine.operators.joins import join_buffers
from penstock.engine.state.capture import CaptureRequest, CaptureScope
from penstock.engine.state.keys.groups import key_groups, subtask_of
from penstock.engine.state.snapshot import share
from penstock.engine.task.chain import ChainLink
from tests.engine.helpers import RecordingCollector
from tests.engine.state.saved import captured_snapshot

MAX_PARALLELISM = 128
_FAR = 10**9

LEFT_TYPES = {"k": pa.int64(), "n": pa.int64()}
RIGHT_TYPES = {"n": pa.string(), "id": pa.int64()}
"""The right side's key has another name, and its other column the name of one of the left side's."""
SIDES = (JoinSide(("k",), pa.schema(LEFT_TYPES)), JoinSide(("id",), pa.schema(RIGHT_TYPES)))

Row = tuple[int, int, "int | None"]
"""Timestamp, key, and value of a row."""


def left_rows(rows: Sequence[Row], types: Mapping[str, pa.DataType] = LEFT_TYPES) -> Batch:
    """A batch of the left side."""
    data = pa.record_batch(
        {"k": pa.array([key for _, key, _ in rows]).cast(types["k"]), "n": pa.array([n for *_, n in rows], pa.int64())}
    )
    return Batch(data, pa.array([at for at, *_ in rows], pa.int64()))


def right_rows(rows: Sequence[Row], types: Mapping[str, pa.DataType] = RIGHT_TYPES) -> Batch:
    """A batch of the right side, whose values are texts."""
    values = [None if n is None else f"r{n}" for *_, n in rows]
    data = pa.record_batch(
        {"n": pa.array(values, pa.string()), "id": pa.array([key for _, key, _ in rows]).cast(types["id"])}
    )
    return Batch(data, pa.array([at for at, *_ in rows], pa.int64()))


TEXT_KEYS = (("k", "more"), ("id", "other"))
TEXT_SIDES = (JoinSide(TEXT_KEYS[LEFT], None), JoinSide(TEXT_KEYS[RIGHT], None))
"""Sides with two key columns, one of them a text; their columns are not declared."""


def text_rows(side: int, rows: Sequence[Row]) -> Batch:
    """A batch of one of `TEXT_SIDES`: the key as text, behind the other columns its remainder by 2 as a date."""
    batch = left_rows(rows) if side == LEFT else right_rows(rows)
    key, more = TEXT_KEYS[side]
    keys = batch.data.column(key)
    days = pa.array(keys.to_numpy() % 2, pa.int32()).cast(pa.date32())
    columns = {name: batch.data.column(name) for name in batch.data.schema.names}
    return batch.with_data(pa.record_batch({**columns, key: keys.cast(pa.string()), more: days}))


class JoinJob:
    """The subtasks of one join: rows go where their keys belong, watermarks to all.

    Args:
        spec: creates the operator.
        keys: the key columns of both sides.
        sides: the names of side outputs that somebody reads.
    """

    def __init__(
        self,
        spec: Callable[[], Operator],
        keys: tuple[Sequence[str], Sequence[str]] = (("k",), ("id",)),
        parallelism: int = 1,
        sides: Sequence[str] = (),
    ) -> None:
        self._spec = spec
        self._keys = keys
        self.clock = ManualClock()
        self.out = RecordingCollector()
        self.sides = {name: RecordingCollector() for name in sides}
        self._counters: list[OperatorMetrics] = []
        self._last: list[Batch | None] = [None, None]
        self.links = [self._link(subtask, parallelism) for subtask in range(parallelism)]
        for link in self.links:
            link.open()

    def _link(self, subtask: int, parallelism: int) -> ChainLink:
        counters = OperatorMetrics()
        self._counters.append(counters)
        context = OperatorContext("tested", subtask, parallelism, self.clock, counters, sides=self.sides)
        return ChainLink(self._spec.create(), context, self.out)

    def send(self, side: int, batch: Batch) -> None:
        self._last[side] = batch
        groups = key_groups([batch.data.column(name) for name in self._keys[side]], MAX_PARALLELISM)
        targets = subtask_of(groups, len(self.links), MAX_PARALLELISM)
        for subtask in np.unique(targets).tolist():
            self.links[subtask].process(side, batch.filter(pa.array(targets == subtask)))

    def left(self, *rows: Row) -> None:
        self.send(LEFT, left_rows(rows))

    def right(self, *rows: Row) -> None:
        self.send(RIGHT, right_rows(rows))

    def advance(self, watermark: int) -> None:
        for link in self.links:
            link.process(0, Watermark(watermark))

    def rescale(self, parallelism: int) -> None:
        """Stop with a capture, and resume from it with other subtasks."""
        captures = [link.operator.capture(CaptureRequest(1, CaptureScope.CHANGES)) for link in self.links]
        for link in self.links:
            # What comes behind a capture must not change it.
            unread = RecordingCollector()
            for side, last in enumerate(self._last):
                if last is not None:
                    link.operator.process_batch(_far_behind(last), side, unread)
            link.operator.on_watermark(Watermark(_FAR), unread)
            link.operator.on_watermark(Watermark(MAX_TIMESTAMP), unread)
            link.operator.close()
        snapshots = [captured_snapshot(capture) for capture in captures]
        self.links = [self._link(subtask, parallelism) for subtask in range(parallelism)]
        for subtask, link in enumerate(self.links):
            link.open(share(snapshots, subtask, parallelism, MAX_PARALLELISM))

    @property
    def late(self) -> int:
        """Late rows that were counted, in all subtasks that there were."""
        return sum(counters.late_rows for counters in self._counters)

    def take(self) -> list[tuple[Any, ...]]:
        """The rows emitted since the last call, sorted: values, then timestamp."""
        rows = [
            (*row.values(), at)
            for batch in self.out.batches
            for row, at in zip(batch.data.to_pylist(), batch.timestamps.to_pylist(), strict=True)  # type: ignore[union-attr]
        ]
        self.out.elements.clear()
        return in_order(rows)


def _far_behind(batch: Batch) -> Batch:
    """The same rows at a time that no test reaches."""
    return Batch(batch.data, pa.array(np.full(batch.num_rows, _FAR)))


def in_order(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def rows_of(max_size: int = 6, first: int = -10, last: int = 30) -> st.SearchStrategy[list[Row]]:
    """Rows of three keys; some values are null."""
    row = st.tuples(st.integers(first, last), st.integers(0, 2), st.one_of(st.none(), st.integers(-9, 9)))
    return st.lists(row, min_size=1, max_size=max_size)


@st.composite
def scripts(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """Batches of both sides, watermarks that rise and rescales, in any order; rows may be late."""
    script: list[tuple[str, Any]] = []
    watermark = -15
    for _ in range(draw(st.integers(0, 12))):
        step = draw(st.sampled_from(["left", "right", "left", "right", "watermark", "watermark", "rescale"]))
        if step == "watermark":
            watermark += draw(st.integers(1, 12))
            script.append((step, watermark))
        elif step == "rescale":
            script.append((step, draw(st.integers(1, 3))))
        else:
            script.append((step, draw(rows_of(first=watermark - 4, last=watermark + 25))))
    return script


def copied_rows(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> list[int]:
    """How many rows `modules` concatenate from now on: a number for each time."""
    copied: list[int] = []

    def counted(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        copied.append(sum(batch.num_rows for batch in batches))
        return concat_record_batches(batches)

    for module in modules:
        monkeypatch.setattr(module, "concat_record_batches", counted)
    return copied


@contextmanager
def all_codes_equal() -> Iterator[None]:
    """Every key has one hash, as if all collided; a single integer is its own code and not hashed."""
    with mock.patch.object(join_buffers, "hash_columns", lambda columns: np.zeros(len(columns[0]), np.int64)):
        yield
