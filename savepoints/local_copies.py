"""Copies of what a subtask wrote last, on the disk of its machine: a process that survives is restored from them.

`FolderJobStore` uses them where `FailoverConfig.local_recovery` is set. They only save the way to the storage: what is
read from one is checked like anything else, and what is not there is fetched.

Source: Flink's documentation, "Task-Local Recovery".
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from penstock.engine.checkpointing.handles import SubtaskHandle
from penstock.engine.checkpointing.store import SubtaskWriter
from penstock.engine.checkpointing.task_capture import TaskCapture
from penstock.engine.config import JobConfig
from penstock.engine.elements import SnapshotKind
from penstock.savepoints.content import Data, digest_of, parts_of
from penstock.savepoints.paths import digits_of
from penstock.savepoints.storage import BlobStore

_FOLDER: Final = "penstock-local"
_STALE_SECONDS: Final = 86_400.0
"""Copies of a job that has written none for so long are those of one that has ended here, or been killed."""


def local_folder(config: JobConfig, job_id: str) -> Path:
    """Where a machine keeps its copies of a job's files."""
    return Path(config.state_directory or tempfile.gettempdir(), _FOLDER, job_id)


def remove_stale(folder: Path) -> None:
    """Remove the copies of jobs that have ended, from beside the folder of a job."""
    oldest = time.time() - _STALE_SECONDS
    with contextlib.suppress(OSError):
        for other in folder.parent.iterdir():
            if other != folder and max(path.stat().st_mtime for path in (other, *other.iterdir())) < oldest:
                shutil.rmtree(other, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class LocalCopies:
    """A folder of a storage, with copies of some of its files here; a `BlobStore`.

    Args:
        inner: the folder, which alone counts.
        directory: of the copies of one subtask.
    """

    inner: BlobStore
    directory: Path

    @property
    def url(self) -> str:
        return self.inner.url

    def put(self, path: str, data: Data) -> None:
        self.inner.put(path, data)
        # A full disk here must not fail a checkpoint that is safe there.
        with contextlib.suppress(OSError):
            copy = self._copy(path)
            copy.parent.mkdir(parents=True, exist_ok=True)
            partial = copy.with_name(f".{copy.name}.{os.getpid()}")
            with partial.open("wb") as out:
                out.writelines(parts_of(data))
            partial.replace(copy)

    def create(self, path: str, data: Data) -> None:
        self.inner.create(path, data)

    def get(self, path: str) -> pa.Buffer:
        with contextlib.suppress(OSError):
            content = pa.py_buffer(self._copy(path).read_bytes())
            # A file's name bears the digest of its content: a copy that has suffered is none.
            if digits_of(digest_of(content)) in path:
                return content
        return self.inner.get(path)

    def list(self, prefix: str = "") -> Sequence[tuple[str, int]]:
        return self.inner.list(prefix)

    def delete(self, paths: Iterable[str]) -> None:
        named = list(paths)
        self.inner.delete(named)
        for path in named:
            self._copy(path).unlink(missing_ok=True)

    def keep(self, paths: Iterable[str]) -> None:
        """Remove the copies of all other files."""
        kept = {self._copy(path) for path in paths}
        with contextlib.suppress(OSError):
            for copy in self.directory.iterdir():
                if copy not in kept:
                    copy.unlink()

    def _copy(self, path: str) -> Path:
        return self.directory / path.replace("/", "=")


class CopyingWriter:
    """A `SubtaskWriter` that keeps copies of the files which the next restore may need, and of no others.

    Args:
        writer: writes through `copies`.
        copies: of this subtask.
    """

    def __init__(self, writer: SubtaskWriter, copies: LocalCopies) -> None:
        self._writer = writer
        self._copies = copies
        self._needed: dict[int, set[str]] = {}

    def write(self, capture: TaskCapture) -> SubtaskHandle:
        handle = self._writer.write(capture)
        barrier = capture.barrier
        if barrier.kind is SnapshotKind.CHECKPOINT:
            self._needed[barrier.checkpoint] = {file.path for file in handle.files()}
            self._needed = {number: paths for number, paths in self._needed.items() if number >= barrier.base}
            self._copies.keep(path for paths in self._needed.values() for path in paths)
        return handle

    def close(self) -> None:
        self._writer.close()
