"""A folder of a bucket as the target of the file sink: whole objects under hidden names, shown by a copy in the bucket.

`open_folder` makes it for URLs. An object appears whole or not at all; the copy is made by the storage itself,
and repeating it changes nothing, since nobody else writes an object of that name.
"""

from __future__ import annotations

import contextlib
import io
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Final, cast

import obstore
from obstore.exceptions import BaseError

from penstock.connectors.files.folders import PREPARED, HiddenFile, ShownFile, damaged
from penstock.connectors.files.object_store import REMEDY, errors, locate, reason
from penstock.engine.errors import ConfigurationError

if TYPE_CHECKING:  # this name exists for type checkers only
    from obstore.store import ObjectStore

_BUFFER_BYTES: Final = 5 * 1024 * 1024
"""The smallest part that S3 takes: what an open file holds in memory."""
_COPIES_AT_ONCE: Final = 16


class BucketFolder:
    """A folder of a bucket.

    Args:
        path: the URL.
    """

    largest_bytes: int | None = 4 * 1024**3  # S3 copies objects of up to 5 GiB in one request.

    def __init__(self, path: str) -> None:
        self.path = path

    def names(self) -> list[str]:
        try:
            store, key = locate(self.path)
            found = obstore.list_with_delimiter(store, f"{key}/" if key else None)
        except errors() as error:
            raise self._unusable("listed", error) from None
        paths = [*found["common_prefixes"], *(entry["path"] for entry in found["objects"])]
        return [path.rpartition("/")[2] for path in paths if path != key]

    def make(self) -> None:
        try:
            store, key = locate(self._url(f".probe-{secrets.token_hex(8)}"))
            obstore.put(store, key, b"penstock")
            obstore.delete(store, key)
        except errors() as error:
            raise self._unusable("written to", error) from None

    def remove(self, is_part: Callable[[str], bool], deep: bool) -> None:
        try:
            store, top = locate(self.path)
            keys = [entry["path"] for page in obstore.list(store, f"{top}/" if top else None) for entry in page]
            depth = top.count("/") + 1 if top else 0
            due = [key for key in keys if is_part(key.rpartition("/")[2]) and (deep or key.count("/") == depth)]
            if due:
                obstore.delete(store, due)
        except errors() as error:
            raise self._unusable("emptied", error) from None

    def remove_unfinished(self, is_left: Callable[[str], bool]) -> None:
        """There are none: an upload that does not end makes no object."""

    def create(self, stem: str) -> HiddenFile:
        return _BucketFile(self._url(stem + PREPARED))

    def sync(self) -> None:
        """An object that is written is durable, its name included."""

    def show(self, files: Sequence[ShownFile], where: str) -> None:
        with ThreadPoolExecutor(max_workers=_COPIES_AT_ONCE) as threads:
            for result in [threads.submit(self._show, file, where) for file in files]:
                result.result()

    def _show(self, file: ShownFile, where: str) -> None:
        url = self._url(file.visible)
        store, new = locate(url)
        _, old = locate(self._url(file.hidden))
        try:
            if (found := _length(store, new)) is None:
                # Somebody else who is about it may have copied and removed it between these looks.
                if (found := _length(store, old)) is None and _length(store, new) == file.length:
                    return
                if found is None:
                    finding = f"is not there, nor is it under its hidden name {file.hidden}"
                    raise damaged(url, finding, file.length, where)
                if found != file.length:
                    raise damaged(self._url(file.hidden), f"has {found} bytes", file.length, where)
                obstore.copy(store, old, new)
            elif found != file.length:
                raise damaged(url, f"has {found} bytes", file.length, where)
            with contextlib.suppress(FileNotFoundError):
                obstore.delete(store, old)
        except (BaseError, OSError) as error:
            raise OSError(f"{where}: {url} cannot be shown: {reason(error)}; {REMEDY}") from None

    def _url(self, name: str) -> str:
        return f"{self.path}/{name}"

    def _unusable(self, what: str, error: Exception) -> ConfigurationError:
        if isinstance(error, ConfigurationError):
            return error
        return ConfigurationError(f"file sink: {self.path} cannot be {what}: {reason(error)}; {REMEDY}")


class _BucketFile:
    """An object that is uploaded in parts while it is written, and appears with its last one."""

    def __init__(self, url: str) -> None:
        self.path = url
        self._stream = UploadStream(url)
        self.stream = cast(BinaryIO, self._stream)

    def finish(self) -> int:
        self._stream.upload()
        return self._stream.tell()

    def prepare(self) -> str:
        return self.path.rpartition("/")[2]

    def abandon(self) -> None:
        # An upload that is ended can be removed; one that is not would keep its parts for ever.
        with contextlib.suppress(*errors()):
            self._stream.upload()
        store, key = locate(self.path)
        with contextlib.suppress(*errors()):
            obstore.delete(store, key)


class UploadStream(io.RawIOBase):
    """The bytes of an object, which appears with `upload()`: closing the stream alone makes none.

    Args:
        url: of the object.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        store, key = locate(url)
        self._writer = obstore.open_writer(store, key, buffer_size=_BUFFER_BYTES)
        self._written = 0
        self._is_uploaded = False

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        # The upload keeps what it is given, and Arrow's writers use their buffers again.
        given = bytes(memoryview(cast(bytes, data)))
        self._call(partial(self._writer.write, given))
        self._written += len(given)
        return len(given)

    def tell(self) -> int:
        return self._written

    def upload(self) -> None:
        """End the object.

        Raises:
            OSError: the storage refuses.
        """
        if not self._is_uploaded:
            self._call(self._writer.close)
            self._is_uploaded = True

    def _call(self, call: Callable[[], object]) -> None:
        try:
            call()
        except errors() as error:
            raise OSError(f"{self._url} cannot be written: {reason(error)}; {REMEDY}") from None


def _length(store: ObjectStore, key: str) -> int | None:
    try:
        return obstore.head(store, key)["size"]
    except FileNotFoundError:
        return None
