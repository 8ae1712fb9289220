"""Which checkpoints refer to which files, by reference counts, so that clean-up never looks through all of them.

The coordinator adds what subtasks acknowledge and says who holds a checkpoint; what it gets back may be deleted. A file
that comes back is referred to by no checkpoint here, and none that is triggered later may refer to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.engine.checkpointing.handles import FileHandle


class Size(NamedTuple):
    """Bytes of files: of all of them, and of those that no checkpoint before had."""

    total: int = 0
    new: int = 0

    def plus(self, other: Size) -> Size:
        """Both together."""
        return Size(self.total + other.total, self.new + other.new)


NOTHING: Final = Size()


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
        self._counts: dict[str, int] = {}
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
            others = counts.get(file.path, 0)
            counts[file.path] = others + 1
            total += file.length
            new += 0 if others else file.length
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
        return [file for file in holding.files.values() if self._forget(file.path)]

    def unreferenced(self, files: Iterable[FileHandle]) -> list[FileHandle]:
        """Those of `files` that no checkpoint refers to, each once."""
        return [file for file in distinct(files) if file.path not in self._counts]

    def __len__(self) -> int:
        return len(self._counts)

    def _forget(self, path: str) -> bool:
        left = self._counts[path] - 1
        if left:
            self._counts[path] = left
            return False
        del self._counts[path]
        return True


def distinct(files: Iterable[FileHandle]) -> list[FileHandle]:
    """Each file once, in order."""
    return list({file.path: file for file in files}.values())
