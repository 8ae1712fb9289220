"""Vectorised windows of subtasks that stood at different watermarks, shared out to other subtasks.

Barriers that overtake rows (unaligned checkpoints) find subtasks at different watermarks: one has fired windows that
another is still to fire. However the key groups are put together afterwards, each key's windows come out as if it had
stayed where it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.aggregates import functions as agg
from penstock.engine.aggregates.functions import count
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.operators.spec import OperatorSpec
from penstock.engine.operators.windows.session_aggregate import SessionAggregateSpec
from penstock.engine.operators.windows.window_aggregate import WindowAggregateSpec
from penstock.engine.state.capture import CaptureRequest, CaptureScope
from penstock.engine.state.keys.groups import key_group_range, key_groups
from penstock.engine.state.snapshot import OperatorSnapshot, share
from penstock.engine.windows.assigners import AlignedWindows, CumulativeWindows, SessionWindows
from tests.draws import drawn
from tests.engine.helpers import RunningOperator, timed
from tests.engine.state.saved import captured_snapshot

TYPES = {"key": pa.string(), "n": pa.int64()}
GROUPS = 128
KEYS = "abcdefgh"
GROUP_OF = dict(zip(KEYS, key_groups([pa.array(list(KEYS))], GROUPS).tolist(), strict=True))
AGGREGATION = GroupedAggregation(["key"], {"rows": count(), "total": agg.sum("n")})

Rows = list[tuple[int, str, int]]
Step = Rows | int
"""Rows as (event time, key, n), or a watermark."""

rows = st.lists(st.tuples(st.integers(0, 60), st.sampled_from(KEYS), st.integers(1, 9)), min_size=1, max_size=6)
factories = st.one_of(
    st.builds(
        WindowAggregateSpec,
        st.sampled_from([AlignedWindows(10, 10), AlignedWindows(20, 5), CumulativeWindows(20, 5)]),
        st.just(AGGREGATION),
        st.sampled_from([0, 15, 100]),
    ),
    st.builds(
        SessionAggregateSpec, st.builds(SessionWindows, st.just(6)), st.just(AGGREGATION), st.sampled_from([0, 15])
    ),
)


class Subtasks:
    """One operator at some parallelism; rows find their subtask by key, and watermarks are at each what it has seen."""

    def __init__(self, spec: OperatorSpec, parallelism: int) -> None:
        self.running = [RunningOperator(spec.create(), "tested", one, parallelism) for one in range(parallelism)]
        self.watermarks = [-1] * parallelism
        self.owned = [key_group_range(one, parallelism, GROUPS) for one in range(parallelism)]

    def take(self, step: Step, only: Iterable[int] | None = None) -> None:
        for one in range(len(self.running)) if only is None else only:
            if isinstance(step, int):
                # As in the chain: event time does not go back behind a restore.
                if step > self.watermarks[one]:
                    self.watermarks[one] = step
                    self.running[one].advance(step)
            elif own := [row for row in step if GROUP_OF[row[1]] in self.owned[one]]:
                self.running[one].process(timed([{"at": at, "key": key, "n": n} for at, key, n in own], TYPES))

    def captured(self) -> list[OperatorSnapshot]:
        request = CaptureRequest(1, CaptureScope.BASE)
        return [captured_snapshot(one.operator.capture(request)) for one in self.running]

    def restored(self, spec: OperatorSpec, parallelism: int) -> Subtasks:
        new, captured = Subtasks(spec, parallelism), self.captured()
        for one, running in enumerate(new.running):
            snapshot = share(captured, one, parallelism, GROUPS)
            running.operator.restore(snapshot)
            new.watermarks[one] = snapshot.watermark
        return new

    def results(self) -> tuple[list[Any], int]:
        emitted = [tuple(row.values()) for running in self.running for row in running.take_rows()]
        return emitted, sum(running.metrics.late_rows for running in self.running)


moves = st.lists(
    st.one_of(
        rows,
        st.tuples(st.integers(0, 70), st.sets(st.integers(0, 4), min_size=1)),
        st.sampled_from([1, 2, 3, 5]),
    ),
    max_size=18,
)
"""Rows; a watermark and which subtasks it has come to; or a restore at another parallelism."""


class Unmoved:
    """The same operator for each key by itself, which nothing ever moves."""

    def __init__(self, spec: OperatorSpec) -> None:
        self.by_key = {key: Subtasks(spec, 1) for key in KEYS}

    def take(self, step: Step, keys: Iterable[str] = KEYS) -> None:
        for key in keys:
            self.by_key[key].take(step if isinstance(step, int) else [row for row in step if row[1] == key])

    def results(self) -> tuple[list[Any], int]:
        parts = [subtasks.results() for subtasks in self.by_key.values()]
        return [row for emitted, _ in parts for row in emitted], sum(late for _, late in parts)


@given(factories, moves)
@settings(max_examples=drawn(50))
def test_no_window_is_emitted_twice_or_left_out(spec: OperatorSpec, moves: Sequence[Any]) -> None:
    moved, unmoved, parts = Subtasks(spec, 2), Unmoved(spec), []
    for move in [*moves, 200]:
        match move:
            case (int(watermark), set(some)):
                only = [one for one in range(len(moved.running)) if one in some]
                moved.take(watermark, only)
                groups = {group for one in only for group in moved.owned[one]}
                unmoved.take(watermark, [key for key in KEYS if GROUP_OF[key] in groups])
            case int(parallelism) if parallelism < 10:
                parts.append(moved.results())
                moved = moved.restored(spec, parallelism)
            case _:
                moved.take(move)
                unmoved.take(move)
    parts.append(moved.results())
    emitted, late = unmoved.results()
    assert sorted(row for part, _ in parts for row in part) == sorted(emitted)
    assert sum(part for _, part in parts) == late


@pytest.mark.parametrize("lateness", [0, 100])
def test_once_the_others_have_caught_up_nothing_is_kept_of_it(lateness: int) -> None:
    spec = WindowAggregateSpec(AlignedWindows(20, 5), AGGREGATION, lateness)
    subtasks = Subtasks(spec, 2)
    subtasks.take([(3, key, 1) for key in KEYS])
    subtasks.take(12, only=[0])
    one = subtasks.restored(spec, 1)
    assert set(one.captured()[0].tables) == {"window_aggregate", "window_form", "window_watermarks"}
    one.take(11)
    assert "window_watermarks" in one.captured()[0].tables
    one.take(12)
    assert set(one.captured()[0].tables) == {"window_aggregate", "window_form"}


def test_only_subtasks_that_own_keys_of_one_that_was_ahead_remember_it() -> None:
    spec = WindowAggregateSpec(AlignedWindows(20, 5), AGGREGATION)
    subtasks = Subtasks(spec, 2)
    subtasks.take([(3, key, 1) for key in KEYS])
    subtasks.take(12, only=[0])
    captured = subtasks.restored(spec, 3).captured()
    assert ["window_watermarks" in snapshot.tables for snapshot in captured] == [True, True, False]
