"""How long does the job manager take over a checkpoint of 10,000 subtasks, before, between and behind their own work?

No subtask runs: their acknowledgements are made up, with handles as writers make them (two keyed tables with a base and
up to four changes each, one table of an operator), and arrive pickled, as calls do. The coordinator, the manifest and
the job's folder are the real ones. Run by `perf/run.py coordinator`; `--pairs` is the number of incremental rounds.
"""

from __future__ import annotations

import gc
import pickle
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from penstock.actors.job_manager import COLLECTOR
from penstock.engine.checkpoint_config import CheckpointConfig
from penstock.engine.checkpointing.coordinator import CheckpointCoordinator
from penstock.engine.checkpointing.handles import FileHandle, OperatorHandle, SegmentHandle, SubtaskHandle, TableHandle
from penstock.engine.checkpointing.instructions import Delete, Instruction, NotifyComplete, Place, Store, Trigger
from penstock.engine.elements import SnapshotKind
from penstock.engine.state.snapshot import Redistribution
from penstock.savepoints.content import digest_of
from penstock.savepoints.paths import JobPaths
from penstock.savepoints.store import FolderJobStore
from perf.harness import BenchmarkError, Options, Reading, Result
from perf.keyed_state import DetailedResult, summary

T = TypeVar("T")

_NAME: Final = "coordinator"
_SUBTASKS: Final = (1_000, 10_000)
_TASKS: Final = 2
_CHANGES: Final = 4
"""Segments of changes that a table gathers before they are merged into a new base."""
_WATERMARK: Final = 1_700_000_000_000
_IDENTITY: Final = ("key", "__start", "__end")
PARTS: Final = ("trigger", "receive", "acknowledge", "store", "complete")


def run(options: Options, wanted: str = "") -> Iterator[DetailedResult]:
    """Measure the variants whose name contains `wanted`."""
    for subtasks in _SUBTASKS:
        variants = [name for kind in ("first", "next") if wanted in (name := f"{subtasks} subtasks, {kind}")]
        if variants:
            yield from (result for result in _measure(subtasks, options.repetitions) if result.variant in variants)


def _measure(subtasks: int, rounds: int) -> Iterator[DetailedResult]:
    with tempfile.TemporaryDirectory(prefix="penstock-coordinator-") as folder, _collecting_as_a_job_manager():
        job = SimulatedJob(Path(folder), subtasks)
        first = job.checkpoint()
        later = [job.checkpoint() for _ in range(rounds)]
        took = _Stopwatch()
        with took.of("take_over"):
            job.check_taken_over()
        yield _result(f"{subtasks} subtasks, first", [first])
        yield _result(f"{subtasks} subtasks, next", later, {"take_over_ms": round(took.ms["take_over"])})


@contextmanager
def _collecting_as_a_job_manager() -> Iterator[None]:
    """Look for garbage as seldom as a job manager's process does."""
    before = gc.get_threshold()
    gc.set_threshold(*COLLECTOR)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _result(
    variant: str, rounds: Sequence[Mapping[str, float]], more: Mapping[str, float] | None = None
) -> DetailedResult:
    latencies = [sum(one[part] for part in PARTS) for one in rounds]
    readings = [Reading(latency_ms={"p50": latency, "p99": latency}) for latency in latencies]
    figures = {f"{part}_ms": summary([one[part] for one in rounds]) for part in (*PARTS, "delete")}
    counts = {name: rounds[-1][name] for name in ("files", "new_files", "deleted_files", "manifest_mb")}
    result = Result.of(_NAME, variant, readings)
    return DetailedResult(
        result.name, variant, result.ours, result.spread, readings, {**figures, **counts, **(more or {})}
    )


class _Stopwatch:
    """Milliseconds by what they were spent on."""

    def __init__(self) -> None:
        self.ms: dict[str, float] = {}

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.ms[what] = self.ms.get(what, 0.0) + (time.perf_counter() - began) * 1000


class SimulatedJob:
    """A job without processes: its coordinator, its folder, and subtasks that acknowledge at once.

    Args:
        folder: for its checkpoints.
        subtasks: how many.
    """

    def __init__(self, folder: Path, subtasks: int) -> None:
        self._places: list[Place] = [(task, index) for task in range(_TASKS) for index in range(subtasks // _TASKS)]
        self._subtasks = [SimulatedSubtask(*place, subtasks // _TASKS) for place in self._places]
        self._store = FolderJobStore(str(folder), "job", "simulated")
        self._folder = folder / "job"
        claim = self._store.claim()
        (self._folder / "shared").mkdir()
        self._epoch = claim.epoch
        config = CheckpointConfig(interval_ms=1000, storage=str(folder))
        self._coordinator = CheckpointCoordinator(config, "job", "simulated", 2**15, claim.next_checkpoint)
        self._coordinator.start_attempt(1, self._places, {"source": subtasks // _TASKS}, time.monotonic())

    def checkpoint(self) -> Mapping[str, float]:
        """Take one; milliseconds by what they were spent on, and numbers of files.

        Raises:
            BenchmarkError: it is not complete.
        """
        took = _Stopwatch()
        with took.of("trigger"):
            number, answer = self._coordinator.request(SnapshotKind.CHECKPOINT, time.monotonic(), _now_ms())
        _only(answer, Trigger)
        pickled, new_files = [], 0
        for subtask in self._subtasks:
            handle, written = subtask.take(number)
            pickled.append(pickle.dumps(handle, 5))
            new_files += len(written)
            for path in written:
                # Only so that there is something to delete: no manager writes these.
                (self._folder / path).touch()
        with took.of("receive"):
            handles = [pickle.loads(data) for data in pickled]
        answer = []
        with took.of("acknowledge"):
            for place, handle in zip(self._places, handles, strict=True):
                answer += self._coordinator.acknowledge(number, place, handle, time.monotonic(), _now_ms())[1]
        store = _only(answer, Store)
        with took.of("store"):
            self._store.complete(self._epoch, store.checkpoint)
        with took.of("complete"):
            answer = self._coordinator.on_stored(number, time.monotonic())
        _only(answer, NotifyComplete)
        deletions = [one for one in answer if isinstance(one, Delete)]
        with took.of("delete"):
            for deletion in deletions:
                self._store.delete(deletion.checkpoints, deletion.files)
        return {
            **took.ms,
            "files": sum(1 for _ in store.checkpoint.files()),
            "new_files": new_files,
            "deleted_files": sum(len(deletion.files) for deletion in deletions),
            "manifest_mb": round((self._folder / JobPaths("job").manifest(number)).stat().st_size / 1e6, 1),
        }

    def check_taken_over(self) -> None:
        """Let another manager take the job over, from the checkpoint that was the last.

        Raises:
            BenchmarkError: it was restored from another.
        """
        latest, claim = self._coordinator.latest, self._store.claim()
        if latest is None or not claim.retained or claim.retained[-1].subtasks != latest.subtasks:
            raise BenchmarkError("the next manager does not resume from the newest checkpoint")


@dataclass(frozen=True, slots=True)
class _Table:
    redistribution: Redistribution
    changes: int
    segments: tuple[SegmentHandle, ...] = ()

    def with_segment(self, segment: SegmentHandle) -> _Table:
        """The table of the next checkpoint: with a change more, or merged."""
        if self.redistribution is not Redistribution.KEYED or self.changes == _CHANGES:
            return replace(self, changes=0, segments=(segment,))
        return replace(self, changes=self.changes + 1, segments=(*self.segments, segment))

    @property
    def handle(self) -> TableHandle:
        return TableHandle(self.redistribution, _IDENTITY, self.segments)


class SimulatedSubtask:
    """Makes the handles of one subtask, as a `CheckpointWriter` would."""

    def __init__(self, task: int, subtask: int, parallelism: int) -> None:
        self._task = task
        self._subtask = subtask
        self._parallelism = parallelism
        self._files = 0
        # Tables are full at different times, so that each checkpoint has its share of merges. They are kept pickled: no
        # manager has them in its memory, where the garbage collector would look through them again and again.
        keyed = [_Table(Redistribution.KEYED, (subtask + 2 * number) % (_CHANGES + 1)) for number in range(2)]
        self._tables = pickle.dumps([*keyed, _Table(Redistribution.SPLIT, 0)])

    def take(self, checkpoint: int) -> tuple[SubtaskHandle, Sequence[str]]:
        """The part of a checkpoint, and the paths of the files that are new in it."""
        tables = [
            table.with_segment(self._segment(checkpoint, table.redistribution)) for table in pickle.loads(self._tables)
        ]
        self._tables = pickle.dumps(tables)
        total, timers, splits = tables
        keyed = {"total": total.handle, "timers": timers.handle}
        operators = (
            OperatorHandle(f"operator-{self._task}", "sum", keyed, _WATERMARK),
            OperatorHandle(f"operator-{self._task}-next", "sink", {"splits": splits.handle}, _WATERMARK),
        )
        handle = SubtaskHandle(self._task, self._subtask, self._parallelism, operators)
        return handle, [table.segments[-1].file.path for table in tables]

    def _segment(self, checkpoint: int, redistribution: Redistribution) -> SegmentHandle:
        self._files += 1
        digest = digest_of(f"{self._task} {self._subtask} {self._files}".encode())
        path = JobPaths("job").shared(digest, checkpoint, 1, self._task, self._subtask, self._files)
        groups = (self._subtask, self._subtask + 2) if redistribution is Redistribution.KEYED else (-1, -1)
        # As long as it is, and so without rows: who takes the job over compares the lengths.
        return SegmentHandle(FileHandle(path, 0, digest), 0, *groups)


def _only(instructions: Sequence[Instruction], kind: type[T]) -> T:
    found = [one for one in instructions if isinstance(one, kind)]
    if len(found) != 1:
        raise BenchmarkError(f"{len(found)} instructions to {kind.__name__.lower()}, not one")
    return found[0]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
