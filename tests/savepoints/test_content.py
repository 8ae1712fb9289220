"""Large files go past the page cache where that is possible, and are the same where it is not."""

from __future__ import annotations

import errno
import fcntl
import io
import multiprocessing
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.engine.errors import CheckpointError
from penstock.engine.state.keys.codec import pooled_copies
from penstock.savepoints import content
from penstock.savepoints.content import Pieces, joined, write_synced
from penstock.savepoints.segments import encode_table
from penstock.savepoints.storage import LocalBlobs

_DATA = os.urandom((6 << 20) + 5)
_PIECES = Pieces((_DATA[:3], _DATA[3 : 2 << 20], _DATA[2 << 20 :]))


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="only Linux can")
def test_a_file_system_without_direct_writes_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(file: io.FileIO, command: int, argument: int = 0) -> int:
        if command == fcntl.F_SETFL and argument & os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return 0

    monkeypatch.setattr(fcntl, "fcntl", refuses)
    write_synced(str(tmp_path / "a"), _PIECES)
    assert (tmp_path / "a").read_bytes() == _DATA


class Failing(io.FileIO):
    """A file whose writes are short from some call on, and then fail, while it is written past the page cache."""

    def __init__(self, path: str, mode: str, error: int, always: bool) -> None:
        super().__init__(path, mode)
        self._error, self._always = error, always
        self.calls = 0
        self.flags: list[int] = []

    def write(self, data: Any) -> int:
        self.calls += 1
        direct = bool(self.flags and self.flags[-1] & content._DIRECT)
        if self.calls == 3 and direct:
            return super().write(data[:512])
        if self.calls > 3 and (direct or self._always):
            raise OSError(self._error, os.strerror(self._error))
        return super().write(data)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, bool], list[Failing]]:
    """Makes the files that are written from now on fail, and believe that direct writes are possible."""
    opened: list[Failing] = []

    def told(file: Failing, command: int, argument: int = 0) -> int:
        if command == fcntl.F_SETFL:
            file.flags.append(argument)
        return 0

    def make(error: int, always: bool) -> list[Failing]:
        def open_failing(path: str, mode: str, buffering: int, opener: object) -> Failing:
            opened.append(Failing(path, mode, error, always))
            return opened[-1]

        monkeypatch.setattr(fcntl, "fcntl", told)
        monkeypatch.setattr(content, "_DIRECT", 0o40000)
        monkeypatch.setattr(content, "open", open_failing, raising=False)
        return opened

    return make


def test_what_was_written_in_part_is_written_again(
    tmp_path: Path, failing: Callable[[int, bool], list[Failing]]
) -> None:
    opened = failing(errno.EINVAL, False)
    write_synced(str(tmp_path / "a"), _PIECES)
    assert (tmp_path / "a").read_bytes() == _DATA
    assert opened[0].calls > 4
    assert opened[0].flags == [content._DIRECT, 0]


def test_a_full_disk_is_told(tmp_path: Path, failing: Callable[[int, bool], list[Failing]]) -> None:
    failing(errno.ENOSPC, True)
    with pytest.raises(CheckpointError, match=r"a cannot be written: No space left on device; the disk is full"):
        LocalBlobs(str(tmp_path)).put("a", _PIECES)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def direct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Which of the large files that are written from now on go past the page cache; skipped where none can."""
    written: list[bool] = []

    def write_blocks(out: io.FileIO, parts: Sequence[memoryview]) -> bool:
        written.append(original(out, parts))
        return written[-1]

    original = content._write_blocks
    monkeypatch.setattr(content, "_write_blocks", write_blocks)
    write_synced(str(tmp_path / "probe"), _PIECES)
    if written != [True]:
        pytest.skip("this file system has no direct writes")
    written.clear()
    return written


@pytest.mark.parametrize("length", [(1 << 18) - 1, 1 << 18, (2 << 20) - 1, 2 << 20, (5 << 20) + 4097])
def test_files_of_any_length_are_as_they_were_given(tmp_path: Path, direct: list[bool], length: int) -> None:
    # Behind a longer one, which has left its bytes in the block.
    data = os.urandom(length)
    write_synced(str(tmp_path / "a"), Pieces((data[:7], data[7:4099], data[4099:])))
    assert (tmp_path / "a").read_bytes() == data
    assert direct == ([] if length < 1 << 18 else [True])


@pytest.mark.parametrize("types", [(np.int64, np.float64, np.float64), (np.int32, np.float64, np.int8)])
@pytest.mark.parametrize("rows", [1 << 18, 300_001])
def test_columns_of_a_capture_are_written_from_where_they_lie(
    tmp_path: Path, direct: list[bool], monkeypatch: pytest.MonkeyPatch, types: list[type], rows: int
) -> None:
    taken, copied = [], []

    def units(view: memoryview, parts: Sequence[memoryview]) -> Iterator[memoryview]:
        taken.append(memoryview(view))
        for unit in original(view, parts):
            copied.append(unit.nbytes if np.shares_memory(unit, taken[-1]) else 0)
            yield unit

    original = content._units
    monkeypatch.setattr(content, "_units", units)
    columns = [np.arange(rows).astype(kind) for kind in types]
    table = pa.table({str(place): copy for place, copy in enumerate(pooled_copies(columns))})
    data = encode_table(table)
    write_synced(str(tmp_path / "a"), data)
    assert direct == [True]
    assert (tmp_path / "a").read_bytes() == joined(data)
    assert sum(copied) < 2 * content.ALIGNED * (1 + len(types))
    with pa.ipc.open_file((tmp_path / "a").read_bytes()) as reader:
        assert reader.read_all().equals(table)


def test_files_that_are_written_at_the_same_time_do_not_share_a_block(tmp_path: Path, direct: list[bool]) -> None:
    contents = [os.urandom((1 << 20) + number) for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: write_synced(str(tmp_path / str(number)), contents[number]), range(24)))
    assert [(tmp_path / str(number)).read_bytes() for number in range(24)] == contents
    assert direct == [True] * 24


def test_processes_that_are_forked_do_not_share_a_block(tmp_path: Path, direct: list[bool]) -> None:
    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=_write_many, args=(str(tmp_path), letter)) for letter in "ab"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    for letter in "ab":
        for number in range(20):
            assert set((tmp_path / f"{letter}{number}").read_bytes()) == {ord(letter)}


def _write_many(folder: str, letter: str) -> None:
    for number in range(20):
        write_synced(f"{folder}/{letter}{number}", Pieces((letter.encode() * (1 << 20),)))


def test_files_and_folders_are_for_their_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "made" / "here" / "a"
    write_synced(str(file), b"state")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent, file.parent.parent)]
    assert modes == [0o600, 0o700, 0o700]
