"""A file or folder that is copied once to each node that reads it: what `register_cached_file` makes.

Processes of a node share copies, told apart by where they come from and by what is there (length, time, ETag), so that
a restart and other jobs find them. A copy appears whole or not at all; one that no process holds goes after an hour.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.connectors.files.object_store import REMEDY, errors, is_url, locate, normalise_url, reason
from penstock.engine.errors import ConfigurationError

_KEPT_SECONDS: Final = 3600.0
_TRIES: Final = 3
_CHUNK_BYTES: Final = 8 * 1024 * 1024
_PART: Final = ".part"
"""What is being copied; of a process that was killed meanwhile it is left there."""
_HELD: Final = ".held"
"""The lock that processes share as long as they read the copy beside it."""


@dataclass(frozen=True, slots=True)
class NodeCopy:
    """A file or folder under a name; see `CachedFile`.

    Args:
        name: what functions call it.
        source: an absolute path that every node can read, or a URL of a bucket.
    """

    name: str
    source: str

    @staticmethod
    def of(path: str | os.PathLike[str], name: str) -> NodeCopy:
        """One of a path as users give it: relative to the working directory, or a URL.

        Raises:
            ConfigurationError: no name, no path, or a URL that cannot be used.
        """
        where = "register_cached_file"
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"{where}: a name is a text, not {name!r}")
        if not isinstance(path, str | os.PathLike) or not isinstance(given := os.fspath(path), str):
            raise ConfigurationError(f"{where}: a path is a text or a Path, not {path!r:.200}")
        return NodeCopy(name, normalise_url(given, where) if is_url(given) else os.path.abspath(given))

    def copy(self, directory: str | None) -> Path:
        """See `CachedFile.copy`."""
        base = _folder_of_copies(directory)
        try:
            for _ in range(_TRIES):
                version = _version(self.source)
                copied = _held(base, self.source, version)
                if copied is not None:
                    return copied
        except errors() as error:
            raise ConfigurationError(
                f"cached file {self.name!r}: {self.source} cannot be copied to this node: {reason(error)}; it must be "
                f"a path that every node can read, or a URL of a bucket{f' ({REMEDY})' if is_url(self.source) else ''}"
            ) from error
        raise ConfigurationError(
            f"cached file {self.name!r}: {self.source} changes while it is copied; write it elsewhere, and rename it "
            "when it is whole"
        )


@functools.cache
def _held(base: Path, source: str, version: str) -> Path | None:
    """The copy, which stays as long as this process lives; None: what is there is not of that version any more."""
    _remove_unused(base)
    entry = base / hashlib.sha256(f"{source}\n{version}".encode()).hexdigest()[:32]
    # Files of locks are never removed: who waits for one must find the same one.
    held, making = _opened(entry.with_suffix(_HELD)), _opened(entry.with_suffix(".making"))
    os.utime(held)
    fcntl.flock(held, fcntl.LOCK_SH)
    is_there = False
    try:
        fcntl.flock(making, fcntl.LOCK_EX)
        is_there = entry.exists() or _make(entry, source, version)
    finally:
        os.close(making)
        if not is_there:
            os.close(held)
    return entry / os.path.basename(source) if is_there else None


def _opened(lock: Path) -> int:
    return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _make(entry: Path, source: str, version: str) -> bool:
    """Copy what is there, while nobody else does; False: it is not of that version any more."""
    part = entry.with_suffix(_PART)
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(mode=0o700)
    try:
        _fetch(source, part / os.path.basename(source))
        if _version(source) != version:
            return False
        part.rename(entry)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return True


def _folder_of_copies(directory: str | None) -> Path:
    """Where this user's copies are: nobody else can put anything there.

    Raises:
        ConfigurationError: somebody else can.
    """
    base = Path(directory or tempfile.gettempdir()) / f"penstock-files-{os.getuid()}"
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = base.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigurationError(f"{base} is not this user's alone; remove it, or set state.backend.rocksdb.localdir")
    return base


def _remove_unused(base: Path) -> None:
    for lock in base.glob(f"*{_HELD}"):
        # Another process holds it, or is just removing it.
        with contextlib.suppress(OSError):
            descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_mtime < time.time() - _KEPT_SECONDS:
                    for left in (lock.with_suffix(""), lock.with_suffix(_PART)):
                        shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(descriptor)


def _version(source: str) -> str:
    """What is there, as far as it can be told without reading it.

    Raises:
        OSError: nothing is.
    """
    if is_url(source):
        return repr([(key, *rest) for key, *rest in _objects(source)])
    if not os.path.isdir(source):
        found = os.stat(source)
        return f"{found.st_size} {found.st_mtime_ns}"
    files = sorted(os.path.join(folder, name) for folder, _, names in os.walk(source) for name in names)
    return repr([(file, os.stat(file).st_size, os.stat(file).st_mtime_ns) for file in files])


def _fetch(source: str, target: Path) -> None:
    if is_url(source):
        _fetch_objects(source, target)
    elif os.path.isdir(source):
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)


def _objects(url: str) -> Sequence[tuple[str, int, str | None]]:
    """Key, length and ETag of the object, or of all below that folder.

    Raises:
        FileNotFoundError: there are none.
    """
    import obstore

    store, key = locate(url)
    with contextlib.suppress(FileNotFoundError):
        one = obstore.head(store, key)
        return [(key, one["size"], one["e_tag"])]
    found = [one for page in obstore.list(store, f"{key}/") for one in page]
    if not found:
        raise FileNotFoundError(f"nothing is at {url}")
    return sorted((one["path"], one["size"], one["e_tag"]) for one in found)


def _fetch_objects(url: str, target: Path) -> None:
    import obstore

    store, key = locate(url)
    for path, _, _ in _objects(url):
        parts = path.removeprefix(key).strip("/").split("/") if path != key else []
        if any(part in ("", ".", "..") for part in parts):
            raise ValueError(f"{path!r} is no name of a file below a folder")
        file = target.joinpath(*parts)
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("wb") as stream:
            for chunk in obstore.get(store, path).stream(min_chunk_size=_CHUNK_BYTES):
                stream.write(chunk)
