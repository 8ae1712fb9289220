"""The completed checkpoints that are kept, and the files that they and those under way may refer to.

The coordinator adds what has completed; what it gets back may be deleted: it is referred to by no checkpoint here, and
none that is triggered later may refer to it. References are counted, so that clean-up never looks through all files.
Flink calls it the store of completed checkpoints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from penstock.engine.checkpointing.handles import CompletedCheckpoint, FileHandle, Size, SubtaskHandle, distinct


class RetainedCheckpoints:
    """Keeps the newest completed checkpoints of a job.

    Args:
        checkpoints: those that are there, oldest first.
        most: how many are kept.

    Attributes:
        files: of all these checkpoints, and of those under way between `begin` and `add` or `release`.
    """

    def __init__(self, checkpoints: Sequence[CompletedCheckpoint], most: int) -> None:
        self._kept = list(checkpoints)
        self._most = most
        self.files = SharedFiles()
        for checkpoint in checkpoints:
            self.files.open(checkpoint.checkpoint)
            self.files.add(checkpoint.checkpoint, checkpoint.files())
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
        self.files.open(checkpoint)
        bases = self._bases if incremental else ()
        for base in bases:
            self.files.hold(base)
        return bases

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
        return [file for checkpoint in checkpoints for file in self.files.release(checkpoint)]

    def rebase(self) -> list[FileHandle]:
        """All subtasks begin from the newest one: what only they referred to is returned."""
        return self._rebase((self._kept[-1].checkpoint,) if self._kept else ())

    def unreferenced(self, handle: SubtaskHandle) -> list[FileHandle]:
        """What a subtask has written and no checkpoint refers to."""
        return self.files.unreferenced(handle.files())

    def _rebase(self, bases: tuple[int, ...]) -> list[FileHandle]:
        before, self._bases = self._bases, bases
        for base in bases:
            self.files.hold(base)
        return self.release(*before)


@dataclass(slots=True)
class _Holding:
    holders: int = 1
    files: dict[str, FileHandle] = field(default_factory=dict)


class SharedFiles:
    """The files of one job's folder that checkpoints refer to.

    A checkpoint refers to its files as long as anyone holds it: itself while it is under way or retained, and those
    under way that may refer to its files because it is their base.

    Example:
        >>> files, segment = SharedFiles(), FileHandle("shared/a", 8, "")
        >>> files.open(1), files.add(1, [segment]), files.open(2), files.add(2, [segment])
        (None, Size(total=8, new=8), None, Size(total=8, new=0))
        >>> files.release(1), [file.path for file in files.release(2)]
        ([], ['shared/a'])
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._holdings: dict[int, _Holding] = {}

    def open(self, checkpoint: int) -> None:
        """Begin a checkpoint, which the caller holds once."""
        self._holdings[checkpoint] = _Holding()

    def add(self, checkpoint: int, files: Iterable[FileHandle]) -> Size:
        """Let a checkpoint refer to more files; returns the size of those that it did not refer to yet."""
        held, counts = self._holdings[checkpoint].files, self._counts
        total = new = 0
        for file in files:
            if file.path in held:
                continue
            held[file.path] = file
            counts[file.path] += 1
            total += file.length
            new += file.length if counts[file.path] == 1 else 0
        return Size(total, new)

    def hold(self, checkpoint: int) -> None:
        """Hold a checkpoint once more."""
        self._holdings[checkpoint].holders += 1

    def release(self, checkpoint: int) -> list[FileHandle]:
        """Hold a checkpoint once less; returns the files that nothing refers to any more."""
        holding = self._holdings[checkpoint]
        holding.holders -= 1
        if holding.holders:
            return []
        del self._holdings[checkpoint]
        self._counts.subtract(holding.files.keys())
        gone = [file for path, file in holding.files.items() if not self._counts[path]]
        for file in gone:
            del self._counts[file.path]
        return gone

    def unreferenced(self, files: Iterable[FileHandle]) -> list[FileHandle]:
        """Those of `files` that no checkpoint refers to, each once."""
        return [file for file in distinct(files) if file.path not in self._counts]

    def __len__(self) -> int:
        return len(self._counts)
