"""State that is taken in before its checkpoint: the same comes of it, and only what has changed since is read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.checkpointing.handles import CompletedCheckpoint
from penstock.engine.elements import Barrier
from penstock.engine.errors import CheckpointCorruptError
from penstock.engine.state.capture import Expiry
from penstock.savepoints.restore import load_task, plan_failover, preload_task
from tests.draws import drawn
from tests.savepoints.subtasks import (
    ROOT,
    STATE,
    Blobs,
    NoOperator,
    Storage,
    capture_of,
    completed,
    entries_of,
    graph,
    keyed_capture,
    keyed_rows,
    owner,
    restored_entries,
    writer,
)

OLD = 2


@dataclass
class _Counting(Blobs):
    """A folder that says which files were read."""

    read: list[str] = field(default_factory=list)

    def get(self, path: str) -> pa.Buffer:
        self.read.append(path)
        return super().get(path)


class _Job:
    """The checkpoints of a job of two subtasks, each building on the one before."""

    def __init__(self) -> None:
        self.blobs = _Counting()
        self.storage = Storage({ROOT: self.blobs})
        self.entries: dict[int, tuple[str, int]] = {}
        self.checkpoints: list[CompletedCheckpoint] = []
        self._writers = [writer(self.storage, OLD, subtask) for subtask in range(OLD)]

    def take(
        self, changed: dict[int, tuple[str, int]], gone: set[int], *, whole: bool = False, expiry: Expiry | None = None
    ) -> None:
        """A checkpoint behind these changes."""
        present = gone & self.entries.keys()
        self.entries = {key: value for key, value in {**self.entries, **changed}.items() if key not in present}
        number, handles = len(self.checkpoints) + 1, []
        for subtask, one in enumerate(self._writers):
            if whole or number == 1:
                rows = keyed_rows({key: value for key, value in self.entries.items() if owner(key, OLD) == subtask})
            else:
                own = {
                    key: value for key, value in changed.items() if owner(key, OLD) == subtask and key not in present
                }
                rows = keyed_rows(own, [key for key in present if owner(key, OLD) == subtask])
            operator = keyed_capture(rows, is_changes=not whole and number > 1, expiry=expiry)
            handles.append(one.write(capture_of(Barrier(number, base=max(0, number - 1)), operator, subtask, OLD)))
        self.checkpoints.append(completed(number, handles))
        if expiry is not None:
            self.entries = {key: value for key, value in self.entries.items() if value[1] >= expiry.below}

    def restored(self, parallelism: int, taken_in: list[int], at: int) -> dict[int, tuple[str, int]]:
        """What all subtasks together restore of one checkpoint, where others have been taken in before, in order."""
        now, found = graph(parallelism), {}
        for subtask in range(parallelism):
            preloaded = None
            for number in taken_in:
                plan = plan_failover(now, self.checkpoints[number], ROOT)
                preloaded = preload_task(self.storage.open, now, plan, 1, subtask, preloaded)
            self.blobs.read.clear()
            plan = plan_failover(now, self.checkpoints[at], ROOT)
            own = entries_of(load_task(self.storage.open, now, plan, 1, subtask, preloaded))
            assert all(owner(key, parallelism) == subtask for key in own)
            found.update(own)
        return found


CHANGES = st.tuples(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)), st.booleans())


@settings(max_examples=drawn(30))
@given(st.lists(CHANGES, min_size=1, max_size=6), st.integers(1, 3), st.data())
def test_what_is_restored_does_not_depend_on_what_was_taken_in(
    steps: list[tuple[set[int], set[int], bool]], parallelism: int, data: st.DataObject
) -> None:
    job = _Job()
    job.take(dict.fromkeys(range(25), ("first", 0)), set())
    for number, (changed, gone, whole) in enumerate(steps):
        job.take(dict.fromkeys(changed, (f"v{number}", number)), gone, whole=whole)
    numbers = range(len(job.checkpoints))
    taken_in = data.draw(st.lists(st.sampled_from(numbers), max_size=3).map(sorted))
    assert job.restored(parallelism, taken_in, at=numbers[-1]) == job.entries


def test_only_what_has_changed_since_is_read() -> None:
    job = _Job()
    job.take(dict.fromkeys(range(200), ("first", 0)), set())
    job.take({1: ("second", 1)}, {2})
    base = [segment.file.path for table in _tables(job.checkpoints[0]) for segment in table.segments]
    assert job.restored(1, [0], at=1) == job.entries
    assert job.blobs.read
    assert not set(base) & set(job.blobs.read)
    job.restored(1, [1], at=1)
    assert not job.blobs.read, "nothing has"


def test_for_an_operator_that_cannot_hold_it_the_process_is_warmed_by_what_was_taken_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(NoOperator, "warm", lambda self, snapshot: seen.append(snapshot.tables[STATE].data.num_rows))
    job = _Job()
    job.take(dict.fromkeys(range(200), ("first", 0)), set())
    job.restored(1, [0], at=0)
    assert seen == [200]


def _tables(checkpoint: CompletedCheckpoint) -> list:  # type: ignore[type-arg]
    return [table for one in checkpoint.subtasks for operator in one.operators for table in operator.tables.values()]


def test_merged_changes_are_put_onto_what_has_them_already() -> None:
    job = _Job()
    job.take(dict.fromkeys(range(400), ("first", 0)), set())
    for number in range(40):
        job.take({number: (f"v{number}", number)}, {100 + number})
    counts = [len(table.segments) for table in _tables(job.checkpoints[-1])]
    assert max(counts) < 30, "some were merged"
    for number in (1, 10, 20, 39):
        assert job.restored(3, [number], at=40) == job.entries


def test_rows_that_have_died_since_are_gone() -> None:
    job = _Job()
    job.take({key: ("first", key) for key in range(20)}, set())
    job.take({3: ("second", 30)}, set(), expiry=Expiry("at", 10))
    assert job.restored(3, [0], at=1) == job.entries
    assert 5 not in job.entries


def test_what_was_taken_in_for_another_subtask_or_of_a_newer_checkpoint_is_left_alone() -> None:
    job = _Job()
    job.take(dict.fromkeys(range(20), ("first", 0)), set())
    job.take({1: ("second", 1)}, set())
    now = graph(3)
    old, new = (plan_failover(now, checkpoint, ROOT) for checkpoint in job.checkpoints)
    for plan, of, at in ((old, new, 0), (new, old, 1)):
        preloaded = preload_task(job.storage.open, now, of, 1, 0)
        other = load_task(job.storage.open, now, plan, 1, at, preloaded)
        assert entries_of(other) == entries_of(load_task(job.storage.open, now, plan, 1, at))


def test_a_file_that_is_gone_is_noticed_and_nothing_is_lost_by_it() -> None:
    job = _Job()
    job.take(dict.fromkeys(range(20), ("first", 0)), set())
    plan = plan_failover(graph(1), job.checkpoints[0], ROOT)
    kept, job.blobs.files = job.blobs.files, {}
    with pytest.raises(CheckpointCorruptError):
        preload_task(job.storage.open, graph(1), plan, 1, 0)
    job.blobs.files = kept
    assert restored_entries(job.storage, replace(job.checkpoints[0]), 3) == job.entries
