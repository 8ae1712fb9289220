"""The files of the file sink: their names, their way from hidden to visible, and the removal of those left behind.

The sink's writers and commits call it. A file is shown in one step: whole, once, and whoever does it again finds it
done. Only files that no commit can ask for are removed: those that were never finished.

Names: `.part-<subtask>.<lineage>.<writer>-<number>.inprogress` while it is written (not in a bucket, where nothing is
seen before it is whole), `.prepared` in the place of `.inprogress` when its checkpoint holds it, and
`<bucket>/<prefix>-<subtask>-<writer>-<number><suffix>` when it is shown. Hidden files are all at the top. The lineage
is that of the operator in all attempts of its job; the writer is one of the attempts' and has no other's name.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.connectors.files.encoders import ENCODERS, Encoding
from penstock.connectors.files.folders import PREPARED, UNFINISHED, Folder, ShownFile, writing
from penstock.connectors.files.open_folder import open_folder
from penstock.engine.connectors import ConnectorContext
from penstock.engine.errors import CheckpointCorruptError

FILES: Final = pa.schema(
    [
        pa.field("directory", pa.string(), nullable=False),
        pa.field("hidden", pa.string(), nullable=False),
        pa.field("visible", pa.string(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
    ]
)
"""What it takes to show files: their folder (absolute), their name now and then, and their length in bytes."""

_HIDDEN_PREFIX: Final = ".part-"
_UNFINISHED_NAME: Final = re.compile(r"\.part-(\d+)\.([^./]+)\.([^/]+)\.inprogress")
_PREPARED_NAME: Final = re.compile(r"\.part-(\d+)\.([^./]+)\.([^/]+)\.prepared")
_VISIBLE_NAME: Final = re.compile(r"(?:[^./\0][^/\0]*/)*[^./\0][^/\0]*")


@dataclass(frozen=True, slots=True)
class Naming:
    """How visible files are called.

    Args:
        prefix: the beginning of their names, before the first `-`.
        suffix: the end, its dot included.
    """

    prefix: str
    suffix: str

    def is_part(self, name: str) -> bool:
        """Whether writers with these names made the file, shown or not."""
        is_hidden = name.startswith(_HIDDEN_PREFIX) and name.endswith((UNFINISHED, PREPARED))
        return is_hidden or name.startswith(f"{self.prefix}-")


class PartFiles:
    """The files of one writer, in order. What an attempt before it left unfinished is removed at once.

    Files that are whole stay, shown or not: a savepoint may hold them, which the job did not resume from.

    Args:
        folder: where to.
        naming: under which names.
        encoding: how.
        context: whose.
    """

    def __init__(self, folder: Folder, naming: Naming, encoding: Encoding, context: ConnectorContext) -> None:
        # Without an identity nobody knows whose the other files are, so the lineage is one that has none.
        self._lineage = _lineage(context.identity) if context.identity else secrets.token_hex(8)
        self.folder, self._naming, self._encoding, self._subtask = folder, naming, encoding, context.subtask
        self._parallelism = context.parallelism
        self._where = f"operator {context.operator!r}, subtask {context.subtask}: file sink"
        self.writer = secrets.token_hex(8)
        self._count = 0
        folder.remove_unfinished(self._is_left)

    def _is_left(self, name: str) -> bool:
        match = _UNFINISHED_NAME.fullmatch(name)
        return bool(match and match[2] == self._lineage and int(match[1]) % self._parallelism == self._subtask)

    def begin(self, bucket: str, schema: pa.Schema) -> PartFile:
        """A new file for rows with these columns; `bucket` is the folder that it will be in, or empty."""
        number, self._count = self._count, self._count + 1
        stem = f"{_HIDDEN_PREFIX}{self._subtask}.{self._lineage}.{self.writer}-{number}"
        # In the order of their names, files of a writer hold its rows as they came.
        visible = f"{self._naming.prefix}-{self._subtask:05d}-{self.writer}-{number:05d}{self._naming.suffix}"
        path = f"{bucket}/{visible}" if bucket else visible
        with writing(f"{self.folder.path}/{stem}", self._where):
            return PartFile(self.folder, stem, path, self._encoding, schema, self._where)


class PartFile:
    """A hidden file that is being written.

    Args:
        folder: where.
        stem, visible: how its name begins now, and its path within the folder once it is shown.
        encoding, schema: of what is written.
        where: operator and subtask, for messages.
    """

    def __init__(
        self, folder: Folder, stem: str, visible: str, encoding: Encoding, schema: pa.Schema, where: str
    ) -> None:
        self._directory, self._visible, self._where = folder.path, visible, where
        self._file = folder.create(stem)
        self.path = self._file.path
        self._length = 0
        # A second interrupt may leave `finish` at work in a thread, and Arrow's writers die of two threads at once.
        self._ending = threading.Lock()
        try:
            self._encoder = ENCODERS[encoding.format](self._file.stream, schema, encoding)
        except BaseException:
            self._file.abandon()
            raise

    @property
    def held_bytes(self) -> int:
        """How many bytes of rows it keeps in memory."""
        return self._encoder.held_bytes

    @property
    def size(self) -> int:
        """About how many bytes it has, those in memory included."""
        return self._file.stream.tell() + self.held_bytes

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows; errors as of `Encoder.write`, and OSError with the file's name."""
        with writing(self.path, self._where):
            self._encoder.write(rows)

    def flush(self) -> None:
        """Keep no rows in memory."""
        with writing(self.path, self._where):
            self._encoder.flush()

    def finish(self) -> None:
        """Bring it to the disk or bucket, whole; nothing is written behind it."""
        with self._ending, writing(self.path, self._where):
            self._encoder.close()
            self._length = self._file.finish()

    def prepare(self) -> dict[str, str | int]:
        """Let it wait for its checkpoint, finished; what `show` needs: a row of `FILES`."""
        hidden = self._file.prepare()
        return {"directory": self._directory, "hidden": hidden, "visible": self._visible, "length": self._length}

    def abandon(self) -> None:
        """Remove it, finished or not; where another thread is about to finish it, behind that."""
        with self._ending:
            self._encoder.abandon()
            self._file.abandon()


def is_hidden_of(name: str, identity: str) -> bool:
    """Whether a writer of the operator with this identity made the file, which is not shown."""
    match = _UNFINISHED_NAME.fullmatch(name) or _PREPARED_NAME.fullmatch(name)
    return match is not None and match[2] == _lineage(identity)


def _lineage(identity: str) -> str:
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


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
    for directory in dict.fromkeys(row["directory"] for row in rows):
        mine = [row for row in rows if row["directory"] == directory]
        shown = [ShownFile(row["hidden"], row["visible"], row["length"]) for row in mine]
        open_folder(directory).show(shown, where)
