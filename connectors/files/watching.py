"""A source of the files of a directory that is watched: those that are there, and those that come.

Built by `FileSource.of(..., monitor=...)`. Each reader lists the directory now and then and takes the files whose paths
hash to its number, so each file is read once; which ones it has read is its position in a checkpoint.
"""

from __future__ import annotations

import os
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from penstock.connectors.files.file_reading import FileReading
from penstock.connectors.files.listing import FoundFile, find_files
from penstock.connectors.files.object_store import dataset_of, is_url
from penstock.connectors.files.readers import ChunkedReader, reading
from penstock.connectors.files.wording import Wording
from penstock.engine.clock import Clock
from penstock.engine.connectors import ConnectorContext, Dataset, JsonValue, Position, Source, SourceReader, Split, Wait
from penstock.engine.errors import RestoreError

_NO_FLOOR: Final = -(2**63)


@dataclass(frozen=True, slots=True)
class Watch:
    """What is watched, and how.

    Args:
        places: as of `listing.places_of`.
        every_ms: how often they are listed.
        readers: how many readers share the files.
        remember_ms: how long a file that was read is known, behind the newest that was read.
    """

    places: tuple[str, ...]
    every_ms: int
    readers: int
    remember_ms: int


@dataclass(frozen=True, slots=True)
class WatchSplit:
    """The files whose paths hash to `number`, of those there are and those that come."""

    number: int

    @property
    def split_id(self) -> str:
        return f"files-{self.number}"


class WatchedFiles(Source):
    """Reads the files of directories for ever. Built by `FileSource.of(..., monitor=...)`, which says what it does."""

    def __init__(self, watch: Watch, files: FileReading) -> None:
        self._watch, self._files = watch, files

    def worded(self, wording: Wording) -> WatchedFiles:
        """The same source, with other words in its messages."""
        return WatchedFiles(self._watch, self._files.worded(wording))

    @property
    def schema(self) -> pa.Schema:
        return self._files.schema

    @property
    def error_column(self) -> str | None:
        return self._files.error_column

    @property
    def bounded(self) -> bool:
        return False

    @property
    def max_parallelism(self) -> int:
        return self._watch.readers

    def splits(self, parallelism: int) -> Sequence[WatchSplit]:
        return [WatchSplit(number) for number in range(self._watch.readers)]

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        assert isinstance(split, WatchSplit)
        return _Watcher(self._watch, self._files, split, context.clock, _Progress())

    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        assert isinstance(split, WatchSplit)
        progress = _Progress.restored(position, self._watch.readers)
        return _Watcher(self._watch, self._files, split, context.clock, progress)

    @property
    def datasets(self) -> Sequence[Dataset]:
        return [dataset_of(place) for place in self._watch.places]

    def describe(self) -> str:
        first = os.path.basename(self._watch.places[0]) or self._watch.places[0]
        more = f" and {len(self._watch.places) - 1} more" if len(self._watch.places) > 1 else ""
        return f"files({first}{more}, {self._files.format.value}, watched)"


@dataclass(slots=True, eq=False)
class _Progress:
    """What a reader has read.

    Args:
        floor: files that were changed before (nanoseconds since the epoch) are not looked at.
        done: the other files that were read to their end, and when they were changed last.
        current: the file that is being read, and when that was changed last.
        row: the number of its next row.
    """

    floor: int = _NO_FLOOR
    done: dict[str, int] = field(default_factory=dict)
    current: tuple[str, int] | None = None
    row: int = 0

    @classmethod
    def restored(cls, position: Position, readers: int) -> _Progress:
        """From the position of a reader that was one of `readers`.

        Raises:
            RestoreError: it is another source's, or there were more or fewer readers.
        """
        match position:
            case {"readers": int() as before, "floor": int() as floor, "done": Mapping() as done, "file": file}:
                pass
            case _:
                raise RestoreError(
                    f"files: the position {dict(position)!r} is not that of a watched directory; the checkpoint was "
                    "taken with another source under this uid: give the new source a uid of its own"
                )
        if before != readers:
            raise RestoreError(
                f"files: {before} readers shared the watched files, and now {readers} would: keep readers={before}, "
                "which may be more than the parallelism, or start without the checkpoint"
            )
        progress = cls(floor, {path: when for path, when in done.items() if isinstance(when, int)})
        match file:
            case {"path": str() as path, "modified": int() as modified, "row": int() as row}:
                progress.current, progress.row = (path, modified), row
        return progress


class _Watcher(SourceReader):
    def __init__(self, watch: Watch, files: FileReading, split: WatchSplit, clock: Clock, progress: _Progress) -> None:
        self._watch, self._files, self._number, self._clock = watch, files, split.number, clock
        self._progress = progress
        self._seen: dict[str, FoundFile] = {}
        self._due: deque[FoundFile] = deque()
        self._next_look = clock.monotonic()
        self._reader: ChunkedReader | None = None
        if progress.current is not None:
            self._read(progress.current, progress.row)

    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait:
        while True:
            if self._reader is None:
                if not self._due and self._clock.monotonic() >= self._next_look:
                    self._look()
                if not self._due:
                    return Wait(self._next_look)
                found = self._due.popleft()
                self._read((found.path, found.modified), 0)
            assert self._reader is not None
            batch = self._reader.next_batch(max_rows)
            if batch is not None:
                self._progress.row += batch.num_rows
                return batch
            self._end()

    def position(self) -> Position:
        progress = self._progress
        file: JsonValue = None
        # A file of which nothing was read may yet be removed, so it is found again rather than known.
        if progress.current is not None and progress.row:
            file = {"path": progress.current[0], "modified": progress.current[1], "row": progress.row}
        return {"readers": self._watch.readers, "floor": progress.floor, "done": dict(progress.done), "file": file}

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def _read(self, current: tuple[str, int], row: int) -> None:
        self._progress.current, self._progress.row = current, row
        self._reader = ChunkedReader(self._files.chunks(current[0], row), row)

    def _end(self) -> None:
        assert self._reader is not None
        assert self._progress.current is not None
        path, modified = self._progress.current
        self._reader.close()
        self._reader = None
        self._progress.done[path] = modified
        self._progress.current, self._progress.row = None, 0

    def _look(self) -> None:
        """List the directory, and take the files that are new and whole."""
        self._next_look = self._clock.monotonic() + self._watch.every_ms / 1000
        found: dict[str, FoundFile] = {}
        for place in self._watch.places:
            with reading(place):
                files = find_files(place)
            found.update({file.path: file for file in files if self._is_mine(file.path)})
        self._forget(found)
        done, floor = self._progress.done, self._progress.floor
        new = [file for file in found.values() if file.path not in done and file.modified >= floor]
        self._due.extend(sorted(file for file in new if is_url(file.path) or self._seen.get(file.path) == file))
        self._seen = {file.path: file for file in new}

    def _is_mine(self, path: str) -> bool:
        return zlib.crc32(path.encode("utf-8", "surrogateescape")) % self._watch.readers == self._number

    def _forget(self, found: Mapping[str, FoundFile]) -> None:
        """Raise the floor, below which no file is looked at and none need be known."""
        progress = self._progress
        for path in progress.done:
            # One that was changed after it was read must be known for longer, or it would be taken for a new one.
            if path in found:
                progress.done[path] = max(progress.done[path], found[path].modified)
        # A file of the future, by a wrong clock, must not make all others old.
        newest = min(max(progress.done.values(), default=_NO_FLOOR), self._clock.now_ms() * 1_000_000)
        progress.floor = max(progress.floor, newest - self._watch.remember_ms * 1_000_000)
        progress.done = {path: when for path, when in progress.done.items() if when >= progress.floor}
