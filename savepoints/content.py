"""The content of a blob: bytes, or pieces of memory one behind the other, and how it comes to a disk.

Writers of state give it, and blob stores take it. A table is written from the memory that it lies in: a copy of all of
it would cost a running job more than the rest of the write. `LocalBlobs` writes it by `write_synced`: files survive the
loss of power as soon as they are written. Large ones go past the page cache where the file system allows it: hardly any
of them is read again, pages for them would push out what the job has in use, and fresh ones cost more than the rest.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import mmap
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa
from blake3 import blake3

_BLOCK: Final = 2 << 20
"""Written at once past the page cache: what is copied into it for that stays in the processor's. It is one
page of the larger size that the kernel has: a write holds that, instead of hundreds."""
LARGE: Final = 1 << 18
"""From this length (bytes) on."""
ALIGNED: Final = 4096
"""Past the page cache, whole units are written of this length (bytes), which that of a disk's own divides, from memory
that begins at a multiple of it."""
_AT_ONCE: Final = 1 << 25
"""No more is given to the disk at once, which a process that is killed waits for."""
_DIRECT: Final = getattr(os, "O_DIRECT", 0)
"""Only Linux has it."""
_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
"""State is as secret as the rows that it is made of; folders that are there keep the mode that they were given."""
_KEPT_BLOCKS: Final = 8
_FREE_BLOCKS: Final[list[memoryview]] = []
"""Blocks of earlier files, for the next one: to touch fresh memory costs as much as to write from it."""
ALGORITHM: Final = "blake3"
"""By which files are known that this version writes."""
_ALGORITHMS: Final[Mapping[str, Callable[[], Any]]] = {ALGORITHM: blake3, "sha256": hashlib.sha256}
_DIGEST: Final = re.compile(rf"(?:{'|'.join(_ALGORITHMS)}):[0-9a-f]{{64}}")


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of memory that make one content, in this order. They must not change before it has been written.

    Args:
        parts: any number of them, of any length.
    """

    parts: tuple[bytes | pa.Buffer, ...]


Data: TypeAlias = bytes | pa.Buffer | Pieces
"""The content of a blob."""


def parts_of(data: Data) -> Sequence[memoryview]:
    """The pieces of a content, as bytes."""
    parts = data.parts if isinstance(data, Pieces) else (data,)
    return [memoryview(part).cast("B") for part in parts]


def whole(data: Data) -> memoryview:
    """A content in one piece; copied if there are several."""
    parts = parts_of(data)
    return parts[0] if len(parts) == 1 else memoryview(joined(data))


def joined(data: Data) -> bytes:
    """A content as bytes of its own."""
    return b"".join(parts_of(data))


def length_of(data: Data) -> int:
    """How many bytes it has."""
    return sum(part.nbytes for part in parts_of(data))


def digest_of(data: Data, algorithm: str = ALGORITHM) -> str:
    """Its digest, such as `blake3:af1349...`; `algorithm`: `sha256` is that of the files of earlier versions."""
    digest = _ALGORITHMS[algorithm]()
    for part in parts_of(data):
        digest.update(part)
    return f"{algorithm}:{digest.hexdigest()}"


def algorithm_of(digest: str) -> str:
    """The algorithm that a digest is by."""
    return digest.partition(":")[0]


def is_digest(text: str) -> bool:
    """Whether a text is a digest by an algorithm that there is."""
    return _DIGEST.fullmatch(text) is not None


def write_synced(file: str, data: Data) -> None:
    """Write a new file, and the folders that it is in, and return when the disk has them.

    Raises:
        OSError: it cannot be written; what there is of it stays.
    """
    folder = os.path.dirname(file)
    _make_folder(folder)
    try:
        _write_new(file, data)
    except FileNotFoundError:
        # Another process found the folder empty and removed it.
        _make_folder(folder)
        _write_new(file, data)


def unlink(file: str) -> None:
    """Remove a file if it is there."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(file)


def sync_folder(folder: str) -> None:
    """Return when the disk knows the names in a folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _make_folder(folder: str) -> None:
    """Make a folder, and those that it is in, so that they survive the loss of power."""
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    _make_folder(parent)
    try:
        os.mkdir(folder, _FOLDER_MODE)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise NotADirectoryError(errno.ENOTDIR, "a file is in the way", folder) from None
    sync_folder(parent)


def _write_new(file: str, data: Data) -> None:
    with open(file, "xb", buffering=0, opener=_open_private) as out:
        parts = parts_of(data)
        if not (_DIRECT and sum(part.nbytes for part in parts) >= LARGE and _write_blocks(out, parts)):
            for part in parts:
                _write_all(out, part)
        os.fsync(out.fileno())
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):
                os.posix_fadvise(out.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _open_private(file: str, flags: int) -> int:
    return os.open(file, flags, _FILE_MODE)


def _write_blocks(out: io.FileIO, parts: Sequence[memoryview]) -> bool:
    """Write the parts past the page cache; False: that did not work, and the file is as empty as before."""
    import fcntl

    try:
        view = _take_block()
    except OSError:
        return False
    flags = fcntl.fcntl(out, fcntl.F_GETFL)
    try:
        fcntl.fcntl(out, fcntl.F_SETFL, flags | _DIRECT)
        for units in _units(view, parts):
            _write_all(out, units)
        out.truncate(sum(part.nbytes for part in parts))
        return True
    except OSError:
        # This file system cannot; or the disk is full, which the other way reports as what it is.
        out.seek(0)
        out.truncate()
        return False
    finally:
        fcntl.fcntl(out, fcntl.F_SETFL, flags)
        if len(_FREE_BLOCKS) < _KEPT_BLOCKS:
            _FREE_BLOCKS.append(view)


def _take_block() -> memoryview:
    try:
        return _FREE_BLOCKS.pop()
    except IndexError:
        # Private: a process that is forked has a block of its own, and not this one's.
        block = mmap.mmap(-1, _BLOCK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError):
            block.madvise(mmap.MADV_HUGEPAGE)
        return memoryview(block)


def _units(view: memoryview, parts: Sequence[memoryview]) -> Iterator[memoryview]:
    """Whole units, one behind the other: of a part where its memory is aligned as the file is, else copied to `view`.

    The last ones may end with what lay in `view` before.
    """
    filled = offset = 0
    for part in parts:
        begin = 0
        if part.nbytes >= LARGE and (pa.py_buffer(part).address - offset) % ALIGNED == 0:
            begin = -offset % ALIGNED
            view[filled : filled + begin] = part[:begin]
            yield view[: filled + begin]
            end = part.nbytes - (part.nbytes - begin) % ALIGNED
            yield part[begin:end]
            begin, filled = end, 0
        while begin < part.nbytes:
            length = min(view.nbytes - filled, part.nbytes - begin)
            view[filled : filled + length] = part[begin : begin + length]
            begin, filled = begin + length, filled + length
            if filled == view.nbytes:
                yield view
                filled = 0
        offset += part.nbytes
    yield view[: -(-filled // ALIGNED) * ALIGNED]


def _write_all(out: io.FileIO, part: memoryview) -> None:
    while part.nbytes:
        part = part[out.write(part[:_AT_ONCE]) or 0 :]
