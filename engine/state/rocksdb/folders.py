"""Folders of local disk that go when nobody needs them any more, also where the process that made them was killed.

Databases, their captures and restores have one each. Each holds a lock as long as its process lives; a folder whose
lock is free belongs to nobody, and the next process that makes one in the same place removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Final

_PREFIX: Final = "penstock-state-"
_MAKING: Final = ".penstock-making-"
_LOCK: Final = "owner"


class OwnedFolder:
    """A new, empty folder of this process.

    Args:
        directory: where; None: the system's temporary folder.

    Attributes:
        path: of what may be written to.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, directory: str | None) -> None:
        if directory is not None:
            Path(directory).mkdir(parents=True, exist_ok=True)
        _remove_abandoned(Path(directory or tempfile.gettempdir()))
        making = tempfile.mkdtemp(prefix=_MAKING, dir=directory)
        lock = os.open(os.path.join(making, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # Some file systems have no locks: a folder on them stays where its process is killed.
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        # It gets its name with its lock: nobody ever takes it for abandoned.
        made = os.path.join(os.path.dirname(making), f"{_PREFIX}{os.path.basename(making).removeprefix(_MAKING)}")
        os.rename(making, made)
        # Also when the process ends and nobody has closed it.
        self._end = weakref.finalize(self, _end, made, lock)
        self.path: Final = Path(made, "files")

    @property
    def held(self) -> bool:
        """Whether it has not been removed."""
        return self._end.alive

    def remove(self) -> None:
        """Remove it, with all that is in it; twice does no harm."""
        self._end()


def _end(folder: str, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


def _remove_abandoned(directory: Path) -> None:
    for folder in directory.glob(f"{_PREFIX}*"):
        # Another user's, or one that another process just removes: that is not ours to do.
        with contextlib.suppress(OSError):
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
