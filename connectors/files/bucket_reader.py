"""Objects of a bucket as files to read, and the list of those under a prefix.

The file source's readers open objects by `open_object`; `listing.py` asks for the list.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final, TypeAlias

import obstore
import pyarrow as pa

from penstock.connectors.files.object_store import REMEDY, errors, locate, reason

if TYPE_CHECKING:  # these names exist for type checkers only
    from obstore import ObjectMeta, ReadableFile

_READ_BYTES: Final = 2 * 1024 * 1024


def open_object(url: str) -> pa.NativeFile:
    """The object's bytes, read in pieces of 2 MiB or more.

    Raises:
        OSError: there is none, or the storage refuses.
    """
    try:
        store, key = locate(url)
        return pa.PythonFile(_Object(url, obstore.open_reader(store, key, buffer_size=_READ_BYTES)), mode="r")
    except errors() as error:
        raise _unreadable(url, error) from None


Found: TypeAlias = "tuple[int, str, int]"
"""An object: when it was changed last (nanoseconds since the epoch), its URL, and its length in bytes."""


def list_objects(url: str) -> list[Found]:
    """Every object under a folder, and under those in it.

    Raises:
        OSError: there is no such bucket, or the storage refuses.
    """
    try:
        store, folder = locate(url)
        pages = [*obstore.list(store, f"{folder}/" if folder else None)]
    except errors() as error:
        raise _unreadable(url, error) from None
    root = url[: len(url) - len(folder)].rstrip("/")
    return [_found(f"{root}/{entry['path']}", entry) for page in pages for entry in page]


def list_folder(url: str) -> list[Found]:
    """The objects in a folder, but not those of folders in it, which are not asked for; errors as of `list_objects`."""
    try:
        store, folder = locate(url)
        entries = obstore.list_with_delimiter(store, f"{folder}/" if folder else None)["objects"]
    except errors() as error:
        raise _unreadable(url, error) from None
    root = url[: len(url) - len(folder)].rstrip("/")
    return [_found(f"{root}/{entry['path']}", entry) for entry in entries]


def find_object(url: str) -> Found | None:
    """The object with that URL, if there is one; errors as of `list_objects`."""
    try:
        store, key = locate(url)
        return _found(url, obstore.head(store, key)) if key else None
    except FileNotFoundError:
        return None
    except errors() as error:
        raise _unreadable(url, error) from None


def _found(url: str, entry: ObjectMeta) -> Found:
    return int(entry["last_modified"].timestamp() * 1000) * 1_000_000, url, entry["size"]


class _Object(io.RawIOBase):
    def __init__(self, url: str, reader: ReadableFile) -> None:
        super().__init__()
        self._url, self._reader = url, reader

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._reader.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._reader.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        try:
            return bytes(memoryview(self._reader.read(None if size < 0 else size)))
        except errors() as error:
            raise _unreadable(self._url, error) from None


def _unreadable(url: str, error: Exception) -> OSError:
    return OSError(f"{url} cannot be read: {reason(error)}; {REMEDY}")
