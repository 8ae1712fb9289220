"""Where the file sink writes to: a folder of a file system or of a bucket, behind one protocol.

`part_files.py` calls it. A file is written under a hidden name and is durable when it is finished; showing it is atomic
and may be repeated: whoever comes second finds it done.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol

from penstock.engine.errors import CheckpointCorruptError, ConfigurationError, WriteError

UNFINISHED: Final = ".inprogress"
PREPARED: Final = ".prepared"
_UNSUPPORTED: Final = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)


@dataclass(frozen=True, slots=True)
class ShownFile:
    """What it takes to show a file: its path within the folder now and then, and its length in bytes."""

    hidden: str
    visible: str
    length: int


class HiddenFile(Protocol):
    """A file that is being written."""

    path: str
    """Where it is, for messages."""
    stream: BinaryIO
    """Takes its bytes; `tell()` is how many."""

    def finish(self) -> int:
        """Make what was written durable; its length in bytes. Nothing is written behind it.

        Raises:
            OSError: it cannot be written.
        """
        ...

    def prepare(self) -> str:
        """Let it wait, finished, for being shown, whoever it is that does; its name within the folder until then."""
        ...

    def abandon(self) -> None:
        """Remove it, finished or not; one that cannot be removed stays hidden."""
        ...


class Folder(Protocol):
    """A folder that a sink writes to."""

    path: str
    """Absolute path or URL."""
    largest_bytes: int | None
    """The size that a file must not go beyond by much, or None for any size."""

    def names(self) -> list[str]:
        """What is in the folder, at its top; nothing where it does not exist and can be made.

        Raises:
            ConfigurationError: it cannot be used.
        """
        ...

    def make(self) -> None:
        """Make the folder, and see that files can be written to it; errors as of `names`."""
        ...

    def remove(self, is_part: Callable[[str], bool], deep: bool) -> None:
        """Remove the files whose names `is_part` says; errors as of `names`.

        Args:
            is_part: asked for the name without folders.
            deep: also those in folders within.
        """
        ...

    def remove_unfinished(self, is_left: Callable[[str], bool]) -> None:
        """Remove hidden files that nobody writes to, as far as they can be removed."""
        ...

    def create(self, stem: str) -> HiddenFile:
        """A new hidden file, whose names begin with `stem`.

        Raises:
            OSError: it cannot be written.
        """
        ...

    def sync(self) -> None:
        """Make the names of what is prepared durable."""
        ...

    def show(self, files: Sequence[ShownFile], where: str) -> None:
        """Make files visible that are not yet.

        Raises:
            CheckpointCorruptError: one is gone, or not as long as it was; names it.
            OSError: one cannot be shown now.
        """
        ...


def damaged(path: str, finding: str, length: int, where: str) -> CheckpointCorruptError:
    """The error for a file that is not as its checkpoint says."""
    return CheckpointCorruptError(
        f"{where}: {path} {finding}; its checkpoint says that it has {length} bytes of finished rows. "
        "Put the file back, or start from a savepoint taken after it was removed or changed"
    )


@contextlib.contextmanager
def writing(path: str, where: str) -> Iterator[None]:
    """An `OSError` in here, such as of a full disk, says which file of which subtask could not be written.

    Raises:
        WriteError: in its place.
    """
    try:
        yield
    except OSError as error:
        raise WriteError(f"{where}: {path} cannot be written: {error.strerror or error}") from error


class LocalFolder:
    """A folder of a file system: files are shown by a rename, and names are synced to the disk.

    Args:
        path: absolute.
    """

    largest_bytes: int | None = None

    def __init__(self, path: str) -> None:
        self.path = path

    def names(self) -> list[str]:
        try:
            return os.listdir(self.path)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unusable(error) from error

    def make(self) -> None:
        try:
            os.makedirs(self.path, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            raise self._unusable(error) from error

    def remove(self, is_part: Callable[[str], bool], deep: bool) -> None:
        try:
            for folder, _, names in os.walk(self.path, onerror=_raise):
                for path in (os.path.join(folder, name) for name in names if is_part(name)):
                    with contextlib.suppress(FileNotFoundError):  # Its writer is tidying up, too.
                        os.unlink(path)
                if not deep:
                    return
        except OSError as error:
            raise self._unusable(error) from error

    def remove_unfinished(self, is_left: Callable[[str], bool]) -> None:
        with contextlib.suppress(OSError):  # They do no harm, and without the folder there are none.
            for name in os.listdir(self.path):
                if name.endswith(UNFINISHED) and is_left(name):
                    os.unlink(os.path.join(self.path, name))

    def create(self, stem: str) -> HiddenFile:
        os.makedirs(self.path, exist_ok=True)
        return _LocalFile(self.path, stem)

    def sync(self) -> None:
        sync_directory(self.path)

    def show(self, files: Sequence[ShownFile], where: str) -> None:
        changed = {self.path}
        for file in files:
            visible = os.path.join(self.path, file.visible)
            self._make_folder(os.path.dirname(visible))
            _show(os.path.join(self.path, file.hidden), visible, file, where)
            changed.add(os.path.dirname(visible))
        for folder in sorted(changed):
            sync_directory(folder)

    def _make_folder(self, folder: str) -> None:
        """Make a folder and those that it is in, so that they survive the loss of power."""
        if os.path.isdir(folder):
            return
        parent = os.path.dirname(folder)
        self._make_folder(parent)
        with contextlib.suppress(FileExistsError):  # by another subtask; a file of that name fails the rename
            os.mkdir(folder)
        sync_directory(parent)

    def _unusable(self, error: OSError) -> ConfigurationError:
        return ConfigurationError(
            f"file sink: {self.path} cannot be written to ({error.strerror}); give a directory that every node can "
            "write to"
        )


def _raise(error: OSError) -> None:
    raise error


class _LocalFile:
    def __init__(self, folder: str, stem: str) -> None:
        self._folder, self._stem = folder, stem
        self.path = os.path.join(folder, stem + UNFINISHED)
        self.stream: BinaryIO = open(self.path, "wb")  # noqa: SIM115 - open until finish or abandon

    def finish(self) -> int:
        self.stream.flush()
        os.fsync(self.stream.fileno())
        length = os.fstat(self.stream.fileno()).st_size
        self.stream.close()
        return length

    def prepare(self) -> str:
        name = self._stem + PREPARED
        os.rename(self.path, os.path.join(self._folder, name))
        return name

    def abandon(self) -> None:
        with contextlib.suppress(OSError):  # a full disk, which was reported by the write before
            self.stream.close()
        with contextlib.suppress(FileNotFoundError):  # by those who have taken this writer's place
            os.unlink(self.path)


def _show(old: str, new: str, file: ShownFile, where: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        _check_length(old, file.length, where)
        os.rename(old, new)
        return
    try:
        _check_length(new, file.length, where)
    except FileNotFoundError:
        finding = f"is not there, nor is it under its hidden name {file.hidden}"
        raise damaged(new, finding, file.length, where) from None


def _check_length(path: str, length: int, where: str) -> None:
    found = os.path.getsize(path)
    if found != length:
        raise damaged(path, f"has {found} bytes", length, where)


def sync_directory(directory: str) -> None:
    """Make the names in a directory durable: without it, they may be lost with the power although the files are not."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:  # as on some network file systems, which keep names themselves
            raise
    finally:
        os.close(descriptor)
