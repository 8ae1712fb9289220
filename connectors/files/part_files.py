"""The files of the file sink: their names, their way from hidden to visible, and the removal of those left behind.

The sink's writers and commits call it. A file is shown by a rename within its folder: whole, once, and whoever does it
again finds it done. Only files that no commit can ask for are removed: those that were never finished.

Names: `.part-<subtask>.<lineage>.<writer>-<number>.inprogress` while it is written, `.prepared` in the place of
`.inprogress` when it is whole, and `part-<subtask>-<writer>-<number>.<format>` when it is shown. The lineage is that of
the operator in all attempts of its job; the writer is one of the attempts' and has no other's name.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import tempfile
from typing import BinaryIO, Final

import pyarrow as pa

from penstock.connectors.files.encoders import ENCODERS
from penstock.connectors.files.formats import FileFormat
from penstock.engine.connectors import ConnectorContext
from penstock.engine.errors import CheckpointCorruptError, ConfigurationError

FILES: Final = pa.schema(
    [
        pa.field("directory", pa.string(), nullable=False),
        pa.field("hidden", pa.string(), nullable=False),
        pa.field("visible", pa.string(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
    ]
)
"""What it takes to show files: their folder (absolute), their name now and then, and their length in bytes."""

_PART_PREFIX: Final = "part-"
_UNFINISHED: Final = ".inprogress"
_PREPARED: Final = ".prepared"
_UNFINISHED_NAME: Final = re.compile(r"\.part-(\d+)\.([^./]+)\.([^/]+)\.inprogress")
_PREPARED_NAME: Final = re.compile(r"\.part-(\d+)\.([^./]+)\.([^/]+)\.prepared")
_VISIBLE_NAME: Final = re.compile(r"part-[^/]+")
_UNSUPPORTED: Final = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)


class PartFiles:
    """The files of one writer, in order. What an attempt before it left unfinished is removed at once.

    Files that are whole stay, shown or not: a savepoint may hold them, which the job did not go on from.

    Args:
        directory: where to.
        file_format: how.
        context: whose.
    """

    def __init__(self, directory: str, file_format: FileFormat, context: ConnectorContext) -> None:
        identity = context.identity
        # Without an identity nobody knows whose the other files are, so the lineage is one that has none.
        self._lineage = hashlib.sha256(identity.encode()).hexdigest()[:16] if identity else secrets.token_hex(8)
        self._directory, self._format, self._subtask = directory, file_format, context.subtask
        self.writer = secrets.token_hex(8)
        self._count = 0
        self._remove_leftovers(context.parallelism)

    def _remove_leftovers(self, parallelism: int) -> None:
        with contextlib.suppress(OSError):  # They do no harm, and without the folder there are none.
            for name in os.listdir(self._directory):
                match = _UNFINISHED_NAME.fullmatch(name)
                if match and match[2] == self._lineage and int(match[1]) % parallelism == self._subtask:
                    os.unlink(os.path.join(self._directory, name))

    def begin(self, schema: pa.Schema) -> PartFile:
        """A new file for rows with these columns."""
        name = f"{self.writer}-{self._count}"
        self._count += 1
        hidden = f".{_PART_PREFIX}{self._subtask}.{self._lineage}.{name}{_UNFINISHED}"
        visible = f"{_PART_PREFIX}{self._subtask:05d}-{name}.{self._format.value}"
        os.makedirs(self._directory, exist_ok=True)
        return PartFile(self._directory, hidden, visible, self._format, schema)


class PartFile:
    """A hidden file that is being written.

    Args:
        directory, hidden, visible: where it is, and its name now and once it is shown.
        file_format, schema: of what is written.
    """

    def __init__(self, directory: str, hidden: str, visible: str, file_format: FileFormat, schema: pa.Schema) -> None:
        self._directory, self._hidden, self._visible = directory, hidden, visible
        self.path = os.path.join(directory, hidden)
        self._file: BinaryIO = open(self.path, "wb")  # noqa: SIM115 - open until close or abandon
        self._encoder = ENCODERS[file_format](self._file, schema)

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows; errors as of `Encoder.write`."""
        self._encoder.write(rows)

    def close(self) -> pa.Table:
        """Bring it to the disk, whole; what `show` needs: a row of `FILES`."""
        self._encoder.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        length = os.fstat(self._file.fileno()).st_size
        self._file.close()
        prepared = self._hidden.removesuffix(_UNFINISHED) + _PREPARED
        os.rename(self.path, os.path.join(self._directory, prepared))
        _sync_directory(self._directory)
        row = {"directory": self._directory, "hidden": prepared, "visible": self._visible, "length": length}
        return pa.Table.from_pylist([row], FILES)

    def abandon(self) -> None:
        """Remove it."""
        self._encoder.abandon()
        with contextlib.suppress(OSError):  # a full disk, which was reported by the write before
            self._file.close()
        with contextlib.suppress(FileNotFoundError):  # by those who have taken this writer's place
            os.unlink(self.path)


def show(files: pa.Table, where: str) -> None:
    """Make files visible that are not yet.

    Args:
        files: rows of `FILES`.
        where: for messages.

    Raises:
        CheckpointCorruptError: a file is gone, or not as long as it was; names it.
        OSError: a file cannot be renamed now.
    """
    rows = files.select(FILES.names).to_pylist()
    for row in rows:
        if not (_PREPARED_NAME.fullmatch(row["hidden"]) and _VISIBLE_NAME.fullmatch(row["visible"])):
            raise CheckpointCorruptError(f"{where}: {row['hidden']!r} and {row['visible']!r} are no names of its files")
    for row in rows:
        _show(row["directory"], row["hidden"], row["visible"], row["length"], where)
    for directory in dict.fromkeys(row["directory"] for row in rows):
        _sync_directory(directory)


def _show(directory: str, hidden: str, visible: str, length: int, where: str) -> None:
    old, new = os.path.join(directory, hidden), os.path.join(directory, visible)
    with contextlib.suppress(FileNotFoundError):
        _check_length(old, length, where)
        os.rename(old, new)
        return
    try:
        _check_length(new, length, where)
    except FileNotFoundError:
        raise _damaged(new, f"is not there, nor is it under its hidden name {hidden}", length, where) from None


def _check_length(path: str, length: int, where: str) -> None:
    found = os.path.getsize(path)
    if found != length:
        raise _damaged(path, f"has {found} bytes", length, where)


def _damaged(path: str, finding: str, length: int, where: str) -> CheckpointCorruptError:
    return CheckpointCorruptError(
        f"{where}: {path} {finding}; its checkpoint says that it has {length} bytes of finished rows. "
        "Put the file back, or start from a savepoint taken after it was removed or changed"
    )


def _sync_directory(directory: str) -> None:
    """Without it, names may be lost with the power although the rows are not."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:  # as on some network file systems, which keep names themselves
            raise
    finally:
        os.close(descriptor)


def names_in(directory: str) -> list[str]:
    """The names in the directory, none if it does not exist and could be made.

    Raises:
        ConfigurationError: it cannot be used.
    """
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unusable(directory, error) from error


def make_directory(directory: str) -> None:
    """Make the directory, unless it is there; errors as of `names_in`."""
    try:
        os.makedirs(directory, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise _unusable(directory, error) from error


def remove_parts(directory: str) -> None:
    """Remove all files that writers made, shown or not; errors as of `names_in`."""
    try:
        for name in os.listdir(directory):
            path = os.path.join(directory, name)
            if _is_part(name) and os.path.isfile(path):
                os.unlink(path)
    except OSError as error:
        raise _unusable(directory, error) from error


def _is_part(name: str) -> bool:
    is_hidden = name.startswith(f".{_PART_PREFIX}") and name.endswith((_UNFINISHED, _PREPARED))
    return is_hidden or name.startswith(_PART_PREFIX)


def _unusable(directory: str, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"file sink: {directory} cannot be written to ({error.strerror}); give a directory that every node can write to"
    )
