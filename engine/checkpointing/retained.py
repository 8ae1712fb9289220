"""The completed checkpoints that are kept, and the files that they and those under way may refer to.

The coordinator adds what has completed; what it gets back may be deleted. Flink calls it the store of completed
checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.checkpointing.handles import CompletedCheckpoint, FileHandle, SubtaskHandle
from penstock.engine.checkpointing.shared_files import SharedFiles, Size


class RetainedCheckpoints:
    """Keeps the newest completed checkpoints of a job.

    Args:
        checkpoints: those that are there, oldest first.
        most: how many are kept.
    """

    def __init__(self, checkpoints: Sequence[CompletedCheckpoint], most: int) -> None:
        self._kept = list(checkpoints)
        self._most = most
        self._files = SharedFiles()
        for checkpoint in checkpoints:
            self._files.open(checkpoint.checkpoint)
            self._files.add(checkpoint.checkpoint, checkpoint.files())
        # What subtasks may be restored from, or have completed since: they may refer to its files, retained or not.
        self._bases: tuple[int, ...] = ()
        self.rebase()

    @property
    def latest(self) -> CompletedCheckpoint | None:
        """The newest one."""
        return self._kept[-1] if self._kept else None

    @property
    def all(self) -> tuple[CompletedCheckpoint, ...]:
        """All that are kept, oldest first."""
        return tuple(self._kept)

    def begin(self, checkpoint: int, incremental: bool) -> tuple[int, ...]:
        """A checkpoint begins, whose files may be those of others: these are held until `add` or `release`."""
        self._files.open(checkpoint)
        bases = self._bases if incremental else ()
        for base in bases:
            self._files.hold(base)
        return bases

    def add_files(self, checkpoint: int, handle: SubtaskHandle) -> Size:
        """A checkpoint that is under way refers to what a subtask has written; returns its size."""
        return self._files.add(checkpoint, handle.files())

    def add(
        self, completed: CompletedCheckpoint, bases: Sequence[int], runs: bool
    ) -> tuple[list[CompletedCheckpoint], list[FileHandle]]:
        """Keep a checkpoint that counts now; returns those that go for it, and the files that nobody refers to.

        Args:
            completed: the checkpoint.
            bases: what it held since it began.
            runs: whether its attempt still does, so that all its subtasks refer to it from now on.
        """
        self._kept.append(completed)
        files = self._rebase((completed.checkpoint,) if runs else (*self._bases, completed.checkpoint))
        files += self.release(*bases)
        surplus = self._kept[: -self._most]
        del self._kept[: -self._most]
        return surplus, files + self.release(*(dropped.checkpoint for dropped in surplus))

    def release(self, *checkpoints: int) -> list[FileHandle]:
        """Hold these checkpoints no longer; returns the files that nobody refers to any more."""
        return [file for checkpoint in checkpoints for file in self._files.release(checkpoint)]

    def rebase(self) -> list[FileHandle]:
        """All subtasks begin from the newest one: what only they referred to is returned."""
        return self._rebase((self._kept[-1].checkpoint,) if self._kept else ())

    def unreferenced(self, handle: SubtaskHandle) -> list[FileHandle]:
        """What a subtask has written and no checkpoint refers to."""
        return self._files.unreferenced(handle.files())

    def _rebase(self, bases: tuple[int, ...]) -> list[FileHandle]:
        before, self._bases = self._bases, bases
        for base in bases:
            self._files.hold(base)
        return self.release(*before)
