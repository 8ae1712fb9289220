"""A batch job that ends with a savepoint, which a streaming job is restored from: history first, then what comes live.

Each subtask gets all its rows, then the watermark that its senders had come to, and then the barrier of a savepoint:
windows and timers behind that watermark do not fire, and are in the savepoint with all other state. The subtasks write
its files in the executors; the driver writes the manifest when everything else has succeeded, so that the savepoint of
a job that fails is not there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from pyspark import Accumulator, TaskContext

from penstock.actors.spark.endings import steps
from penstock.engine.checkpointing.handles import CompletedCheckpoint, SubtaskHandle
from penstock.engine.checkpointing.task_capture import TaskCapture
from penstock.engine.clock import SystemClock
from penstock.engine.elements import Barrier, CheckpointMode, Control, SnapshotKind, Watermark
from penstock.engine.errors import CheckpointError, JobFailedError, PenstockError
from penstock.engine.graph.physical import PhysicalGraph, TaskPlan
from penstock.engine.task.loop import Task
from penstock.savepoints.manifest import encode_manifest
from penstock.savepoints.paths import DATA, MANIFEST, JobPaths, join_url
from penstock.savepoints.storage import BlobExistsError, open_blobs
from penstock.savepoints.writer import CheckpointWriter

_LOG = logging.getLogger(__name__)
Handles: TypeAlias = dict[tuple[int, int], SubtaskHandle]
"""What the subtasks have written, by task and subtask: of one that ran twice either counts, as both are the same."""
_NUMBER: Final = 1
"""Of the savepoint: a batch job has no other."""
_CLAIM: Final = f"{DATA}/claim"
"""Says whose the folder is, until the savepoint is complete or given up: each job removes files there."""


@dataclass(frozen=True)
class Suspension:
    """An `Ending`: the subtask's state becomes files of a savepoint.

    Args:
        url: of the savepoint's folder.
        job_id: whose savepoint it is.
        handles: takes what each subtask has written.
    """

    url: str
    job_id: str
    handles: Accumulator[Handles]

    def begin(self, task: Task) -> None:
        task.suspend_at_end(self._barrier)

    def final_controls(self, watermark: int | None) -> Sequence[Control]:
        return (self._barrier,) if watermark is None else (Watermark(watermark), self._barrier)

    @property
    def _barrier(self) -> Barrier:
        return Barrier(_NUMBER, CheckpointMode.ALIGNED, SnapshotKind.SUSPEND, target=self.url)

    def end(self, task: Task, graph: PhysicalGraph, plan: TaskPlan, subtask: int) -> Iterator[None]:
        for _ in steps(task):
            captures = task.take_captures()
            if captures:
                self.handles.add({(plan.id, subtask): self._written(captures[0], graph, plan, subtask)})
                return
            yield

    def _written(self, capture: TaskCapture, graph: PhysicalGraph, plan: TaskPlan, subtask: int) -> SubtaskHandle:
        """The files of the subtask's state but for its source's: the streaming job has other sources."""
        own = [operator for operator in capture.operators if plan.source is None or operator[0] != plan.source.uid]
        context = TaskContext.get()
        # Spark may run a subtask twice at the same time, and one of them may fail and remove its files.
        attempt = 0 if context is None else context.taskAttemptId()
        blobs, paths = open_blobs(self.url), JobPaths(self.job_id)
        writer = CheckpointWriter(blobs, paths, graph, plan.id, subtask, attempt, None, open_blobs)
        try:
            return writer.write(replace(capture, operators=own))
        finally:
            writer.close()


@dataclass(frozen=True, slots=True)
class HandOver:
    """The savepoint that a batch job ends with, as the driver sees it.

    Args:
        url: of its folder, which was empty.
        job_id, job_name: whose.
        max_parallelism: number of key groups.
        triggered_ms: when the job began (int64 ms).
    """

    url: str
    job_id: str
    job_name: str
    max_parallelism: int
    triggered_ms: int

    @classmethod
    def begun(cls, url: str, job_id: str, graph: PhysicalGraph) -> HandOver:
        """That of a job which begins now. The folder is the job's from here on.

        Raises:
            CheckpointError: another job writes a savepoint there, or something has come there since it was found empty.
        """
        blobs = open_blobs(url)
        blobs.create(_CLAIM, job_id.encode())
        own = cls(url, job_id, graph.name, graph.config.max_parallelism, SystemClock().now_ms())
        try:
            # Another job may have claimed the folder, completed its savepoint and left since this one found it empty.
            # Hidden files are what rivals try the folder with, and go: of two that begin at once one must succeed.
            found = [path for path, _ in blobs.list() if path != _CLAIM and "/." not in f"/{path}"]
            if found:
                raise CheckpointError(
                    f"{url} is not empty any more ({found[0]} is there); a savepoint is written to a new folder: name "
                    "another"
                )
        except Exception:
            own._release()
            raise
        return own

    def check(self, graph: PhysicalGraph, handles: Mapping[tuple[int, int], SubtaskHandle]) -> None:
        """Make sure that every subtask's state is in the folder, before anything shows that the job has succeeded.

        Args:
            graph: the job, whose subtasks have all ended.
            handles: what they have written.

        Raises:
            JobFailedError: names a subtask without state, or a file that is elsewhere.
            CheckpointError: the folder cannot be read.
        """
        found = dict(open_blobs(self.url).list(DATA))
        for task in graph.tasks:
            for subtask in range(task.parallelism):
                whose = f"subtask {subtask} of task {task.name!r}"
                if (task.id, subtask) not in handles:
                    raise JobFailedError(
                        f"the savepoint {self.url} would lack the state of {whose}, which has not told what it wrote; "
                        "no sink has committed: run the job again"
                    )
                for file in handles[task.id, subtask].files():
                    if found.get(file.path) != file.length:
                        there = f"has {found[file.path]} bytes" if file.path in found else "is not there"
                        raise JobFailedError(
                            f"{join_url(self.url, file.path)} {there} as this process sees it, but {whose} has written "
                            f"{file.length} bytes to it; no sink has committed: name a folder that all nodes share, on "
                            "a file system or in a bucket, and run the job again"
                        )

    def complete(self, graph: PhysicalGraph, handles: Mapping[tuple[int, int], SubtaskHandle]) -> None:
        """Write the manifest: from now on the savepoint is there.

        Args:
            graph, handles: which `check` has nothing against.

        Raises:
            JobFailedError: it cannot be written; says what sinks show.
        """
        places = [(task.id, subtask) for task in graph.tasks for subtask in range(task.parallelism)]
        subtasks = [handles[place] for place in places if handles[place].operators]
        savepoint = CompletedCheckpoint(
            job_id=self.job_id,
            job_name=self.job_name,
            checkpoint=_NUMBER,
            attempt=0,
            kind=SnapshotKind.SUSPEND,
            mode=CheckpointMode.ALIGNED,
            max_parallelism=self.max_parallelism,
            triggered_ms=self.triggered_ms,
            completed_ms=SystemClock().now_ms(),
            subtasks=tuple(subtasks),
        )
        manifest = encode_manifest(savepoint)
        try:
            open_blobs(self.url).create(MANIFEST, manifest)
        except PenstockError as error:
            if not isinstance(error, BlobExistsError):
                # It may have been written although that was reported to have failed.
                self._try(lambda: open_blobs(self.url).delete([MANIFEST]))
            raise JobFailedError(
                f"all rows were written and all sinks have committed, but the savepoint {self.url} could not be "
                f"completed: {error}; mend the cause, remove what the sinks show of it, and run the job again"
            ) from error
        self._try(lambda: self._remove_all_but({file.path for file in savepoint.files()}))
        self._release()

    def discard(self) -> None:
        """The job has failed: remove what subtasks have written. What cannot be removed stays, and is told in the log.

        Where a manifest is, it is another's or one that could not be removed: a savepoint stays whole.
        """
        self._try(self._remove_unless_whole)
        self._release()

    def _remove_unless_whole(self) -> None:
        if any(path == MANIFEST for path, _ in open_blobs(self.url).list()):
            _LOG.warning("job %r failed, and leaves %s alone, where a savepoint is", self.job_name, self.url)
        else:
            self._remove_all_but(set())

    def _remove_all_but(self, paths: set[str]) -> None:
        """Subtasks that Spark has run again have left files that nothing refers to."""
        blobs = open_blobs(self.url)
        blobs.delete([path for path, _ in blobs.list(DATA) if path not in paths and path != _CLAIM])

    def _release(self) -> None:
        """Give the folder up, last of all: whoever claims it then sees all that is to stay there."""
        self._try(lambda: open_blobs(self.url).delete([_CLAIM]))

    def _try(self, remove: Callable[[], None]) -> None:
        """Remove something; a failure must neither hide what has become of the job nor keep other things."""
        try:
            remove()
        except Exception as error:
            _LOG.warning("job %r leaves files behind in %s: %s", self.job_name, self.url, error)
