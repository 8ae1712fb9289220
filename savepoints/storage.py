"""Blobs by name in one folder of a disk, a bucket, or memory: what checkpoints and savepoints are stored in.

The job store, the checkpoint writers and the readers open folders by `open_blobs`. A blob is there in full or not at
all, also when its writer is killed; create-only writes decide between rivals; transient errors are tried again.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import os
import re
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit

import obstore
import pyarrow as pa
import tenacity
from obstore import exceptions as obstore_errors
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from penstock.engine.errors import CheckpointCorruptError, CheckpointError, ConfigurationError, nearest
from penstock.savepoints.content import Data, sync_folder, unlink, whole, write_synced
from penstock.savepoints.paths import ROUTE, check_path, job_folder, join_url, route_of

if TYPE_CHECKING:  # these two names exist for type checkers only
    from obstore.store import ObjectStore, RetryConfig

T = TypeVar("T")
_LOG = logging.getLogger(__name__)

SCHEMES: Final = ("file", "s3", "gs", "az", "memory")
_TRANSIENT: Final = (errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.EIO, errno.ESTALE, errno.ETIMEDOUT)
_REFUSED: Final = re.compile(r"status code: 4(?!08|09|29)\d\d")
"""Answers that will be the same the next time: not a time-out, a conflict with another request, or too many of them."""
_PARTIAL: Final = ".partial-"


class BlobExistsError(CheckpointError):
    """A create-only write found a blob of that name, with another content."""


class TransientStorageError(CheckpointError):
    """The storage did not answer, or answered that it cannot now: the same call may succeed later."""


class BlobStore(Protocol):
    """Blobs by relative path (`paths.check_path`) in one folder. Picklable; used by one thread at a time or many.

    All calls block, and raise `CheckpointError` where the storage refuses.
    """

    @property
    def url(self) -> str:
        """Of the folder, without credentials."""
        ...

    def put(self, path: str, data: Data) -> None:
        """Write a blob, in place of one that is there."""
        ...

    def create(self, path: str, data: Data) -> None:
        """Write a blob if none of that name is there: of any number of rivals one succeeds.

        Raises:
            BlobExistsError: there is one.
        """
        ...

    def get(self, path: str) -> pa.Buffer:
        """The content of a blob.

        Raises:
            CheckpointCorruptError: there is none; names its URL.
        """
        ...

    def list(self, prefix: str = "") -> Sequence[tuple[str, int]]:
        """Path and length (bytes) of every blob under the folder `prefix`, sorted; what is written before is in it."""
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Remove blobs; one that is not there is no error."""
        ...


OpenBlobs: TypeAlias = Callable[[str], BlobStore]
"""How a URL becomes a store; picklable. `open_blobs`, or one that knows more schemes and asks it for the rest."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a call is made before its transient error counts.

    Args:
        attempts: the first included.
        first_s, largest_s: seconds to wait; the wait doubles from one to the other, shortened at random.
        seconds: for how long it is made again at least, however often.
    """

    attempts: int = 5
    first_s: float = 0.1
    largest_s: float = 5.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RetryingBlobs:
    """Another store, whose transient errors are tried again.

    A create-only write that was carried out although it was reported to have failed finds its own content there; that
    is no error. So what rivals create must differ (by a random token, or the number of the manager).

    Args:
        inner: the store.
        policy: how often, and after what waits.
    """

    inner: BlobStore
    policy: RetryPolicy = RetryPolicy()

    @property
    def url(self) -> str:
        return self.inner.url

    def put(self, path: str, data: Data) -> None:
        self._retry(lambda: self.inner.put(path, data))

    def create(self, path: str, data: Data) -> None:
        try:
            self._retry(lambda: self.inner.create(path, data))
        except BlobExistsError:
            if whole(self.get(path)) != whole(data):
                raise

    def get(self, path: str) -> pa.Buffer:
        return self._retry(lambda: self.inner.get(path))

    def list(self, prefix: str = "") -> Sequence[tuple[str, int]]:
        return self._retry(lambda: self.inner.list(prefix))

    def delete(self, paths: Iterable[str]) -> None:
        named = tuple(paths)
        self._retry(lambda: self.inner.delete(named))

    def _retry(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except TransientStorageError as error:
            return self._again(call, error)

    def _again(self, call: Callable[[], T], error: TransientStorageError) -> T:
        """Make a call again, whose first attempt had this error."""
        failed = [error]

        def attempt() -> T:
            if failed:
                raise failed.pop()
            return call()

        return tenacity.Retrying(
            stop=tenacity.stop_all(
                tenacity.stop_after_attempt(self.policy.attempts), tenacity.stop_after_delay(self.policy.seconds)
            ),
            wait=tenacity.wait_random_exponential(self.policy.first_s, self.policy.largest_s),
            retry=tenacity.retry_if_exception_type(TransientStorageError),
            before_sleep=self._tell,
            reraise=True,
        )(attempt)

    def _tell(self, state: tenacity.RetryCallState) -> None:
        """Say once that somebody waits for the storage, where that may take long."""
        if self.policy.seconds and state.attempt_number == 1 and state.outcome is not None:
            error = state.outcome.exception()
            _LOG.warning("the storage is tried again for up to %g s: %s", self.policy.seconds, error)


@dataclass(frozen=True, slots=True)
class LocalBlobs:
    """A folder of a file system.

    A blob is written to a file of another name, synced to the disk, and only then linked (create) or renamed (put) to
    its own name, and the folder is synced: it survives the loss of power as soon as the call returns, and a killed
    writer leaves nothing but a file whose name begins with `.partial-`. Links out of the folder are not followed.

    Args:
        folder: absolute.
    """

    folder: str

    @property
    def url(self) -> str:
        return Path(self.folder).as_uri()

    def put(self, path: str, data: Data) -> None:
        self._write(path, data, os.replace)

    def create(self, path: str, data: Data) -> None:
        self._write(path, data, _move)

    def get(self, path: str) -> pa.Buffer:
        try:
            with open(self._file(path), "rb", buffering=0) as file:
                return pa.py_buffer(file.read())
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise _missing(self.url, path) from None
        except OSError as error:
            raise self._failed("read", path, error) from error

    def list(self, prefix: str = "") -> Sequence[tuple[str, int]]:
        found = []
        top = self._file(prefix) if prefix else self.folder
        for folder, _, names in os.walk(top, onerror=functools.partial(self._not_listed, prefix)):
            within = os.path.relpath(folder, self.folder)
            for name in names:
                try:
                    length = os.stat(os.path.join(folder, name), follow_symlinks=False).st_size
                except FileNotFoundError:
                    continue
                found.append((name if within == os.curdir else f"{within}/{name}", length))
        return sorted(found)

    def delete(self, paths: Iterable[str]) -> None:
        folders: set[str] = set()
        for path in paths:
            file = os.path.join(self.folder, check_path(path, self.url))
            if (folder := os.path.dirname(file)) not in folders:
                # Where the folder is, is asked once for all that is in it: a blob that is a link goes by itself.
                self._check_within(folder, path)
                folders.add(folder)
            try:
                unlink(file)
            except OSError as error:
                raise self._failed("deleted", path, error) from error
        for folder in folders:
            self._remove_empty(folder)

    def _not_listed(self, prefix: str, error: OSError) -> None:
        # What has gone meanwhile is empty; anything else must not pass for an empty folder.
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise self._failed("listed", prefix, error) from error

    def _write(self, path: str, data: Data, publish: Callable[[str, str], None]) -> None:
        final = self._file(path)
        partial = os.path.join(os.path.dirname(final), _PARTIAL + secrets.token_hex(8))
        try:
            try:
                write_synced(partial, data)
                publish(partial, final)
            except BaseException:
                unlink(partial)
                raise
            sync_folder(os.path.dirname(final))
        except FileExistsError:
            raise _exists(self.url, path) from None
        except OSError as error:
            raise self._failed("written", path, error) from error

    def _file(self, path: str) -> str:
        """Where the blob is, which is within the folder: names and links out of it are refused."""
        file = os.path.join(self.folder, check_path(path, self.url))
        self._check_within(file, path)
        return file

    def _check_within(self, file: str, path: str) -> None:
        inner = file
        while len(inner) > len(self.folder):
            if os.path.islink(inner):
                self._check_links(file, path)
            inner = os.path.dirname(inner)

    def _check_links(self, file: str, path: str) -> None:
        root = os.path.realpath(self.folder)
        if os.path.commonpath([root, os.path.realpath(file)]) != root:
            raise CheckpointError(f"{join_url(self.url, path)} is a link out of the folder; it is not followed")

    def _remove_empty(self, folder: str) -> None:
        """Folders are of no meaning to a store: those that are left empty go, up to its own."""
        with contextlib.suppress(OSError):
            while len(folder) >= len(self.folder):
                os.rmdir(folder)
                folder = os.path.dirname(folder)

    def _failed(self, what: str, path: str, error: OSError) -> CheckpointError:
        kind = TransientStorageError if error.errno in _TRANSIENT else CheckpointError
        return kind(f"{join_url(self.url, path)} cannot be {what}: {error.strerror or error}; {_local_remedy(error)}")


@dataclass(frozen=True, slots=True)
class ObjectBlobs:
    """A folder of a bucket, or of the memory of this process (`memory://name`).

    Args:
        url: `s3://bucket/folder`, `gs://...`, `az://container/folder` or `memory://name/folder`. Credentials, region
            and end point come from the environment (`AWS_...`, `GOOGLE_...`, `AZURE_...`, as obstore reads them).
    """

    url: str

    def put(self, path: str, data: Data) -> None:
        self._call("written", path, lambda: obstore.put(self._store, self._key(path), whole(data)))

    def create(self, path: str, data: Data) -> None:
        self._call("written", path, lambda: obstore.put(self._store, self._key(path), whole(data), mode="create"))

    def get(self, path: str) -> pa.Buffer:
        return pa.py_buffer(
            self._call("read", path, lambda: obstore.get(self._store, self._key(path)).bytes()),
        )

    def list(self, prefix: str = "") -> Sequence[tuple[str, int]]:
        folder = _folder_of(self.url)
        under = "/".join(part for part in (folder, prefix) if part)
        pages = self._call("listed", prefix, lambda: [*obstore.list(self._store, under or None)])
        skipped = len(folder) + 1 if folder else 0
        return sorted((entry["path"][skipped:], entry["size"]) for page in pages for entry in page)

    def delete(self, paths: Iterable[str]) -> None:
        keys = [self._key(path) for path in paths]
        try:
            self._call("deleted", "", lambda: obstore.delete(self._store, keys))
        except CheckpointCorruptError:
            # One was deleted already, and the error does not say whether the others were.
            for key in keys:
                with contextlib.suppress(CheckpointCorruptError):
                    self._call("deleted", "", functools.partial(obstore.delete, self._store, key))

    @property
    def _store(self) -> ObjectStore:
        parts = urlsplit(self.url)
        return _connect(parts.scheme, parts.netloc)

    def _key(self, path: str) -> str:
        return "/".join(part for part in (_folder_of(self.url), check_path(path, self.url)) if part)

    def _call(self, what: str, path: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except obstore_errors.AlreadyExistsError:
            raise _exists(self.url, path) from None
        except FileNotFoundError as error:
            if what == "written":
                raise CheckpointError(self._failed(what, path, error)) from None
            raise _missing(self.url, path) from None
        except (obstore_errors.GenericError, obstore_errors.JoinError, TimeoutError) as error:
            kind = CheckpointError if _REFUSED.search(str(error)) else TransientStorageError
            raise kind(self._failed(what, path, error)) from None
        except (obstore_errors.BaseError, OSError, ValueError) as error:
            raise CheckpointError(self._failed(what, path, error)) from None

    def _failed(self, what: str, path: str, error: Exception) -> str:
        return (
            f"{join_url(self.url, path)} cannot be {what}: {redact(_first_paragraph(error))}; check the bucket's name "
            f"and the credentials, region and end point in the environment of the process on {socket.gethostname()}"
        )


def _move(file: str, name: str) -> None:
    """Give a file another name, unless there is one of that name."""
    os.link(file, name)
    unlink(file)


def open_blobs(url: str) -> BlobStore:
    """The store of a folder; nothing is read or written yet.

    Args:
        url: `file:///folder` or a plain path, `s3://bucket/folder`, `gs://bucket/folder`, `az://container/folder`, or
            `memory://name/folder`, which all of this process share and which ends with it.

    Raises:
        ConfigurationError: the URL cannot be used; says what can.

    Example:
        >>> open_blobs("memory://example/checkpoints").list()
        []
    """
    address = normalise_url(url)
    if address.startswith("file://"):
        return RetryingBlobs(LocalBlobs(unquote(urlsplit(address).path)))
    return RetryingBlobs(ObjectBlobs(address))


def is_local_file(url: str) -> bool:
    """Whether a URL, as `BlobStore.url` has it, is of a file of a file system and not of a folder.

    Example:
        >>> is_local_file("s3://bucket/folder")
        False
    """
    parts = urlsplit(url)
    return parts.scheme == "file" and os.path.isfile(unquote(parts.path))


def routed(blobs: BlobStore, overrides: Iterable[tuple[str, str]], job_id: str, open_blobs: OpenBlobs) -> BlobStore:
    """The job's folder with the storages of single operators.

    Args:
        blobs: the job's folder.
        overrides: uid and URL of the storage, of each operator that has one (`CheckpointConfig.storage_overrides`).
        job_id: whose files they are: those of an operator lie in `<URL>/<job id>`.
        open_blobs: makes a store of a URL.
    """
    routes = {route_of(url): open_blobs(job_folder(url, job_id)) for _, url in overrides}
    return RoutedBlobs(blobs, routes)


@dataclass(frozen=True, slots=True)
class RoutedBlobs:
    """A folder, some of whose subfolders lie elsewhere; a `BlobStore`.

    Args:
        inner: the folder itself.
        routes: the folders elsewhere, by the first part of the path.
    """

    inner: BlobStore
    routes: Mapping[str, BlobStore]

    @property
    def url(self) -> str:
        return self.inner.url

    def put(self, path: str, data: Data) -> None:
        store, name = self._locate(path)
        store.put(name, data)

    def create(self, path: str, data: Data) -> None:
        store, name = self._locate(path)
        store.create(name, data)

    def get(self, path: str) -> pa.Buffer:
        store, name = self._locate(path)
        return store.get(name)

    def list(self, prefix: str = "") -> Sequence[tuple[str, int]]:
        if prefix.startswith(ROUTE):
            route, _, rest = prefix.partition("/")
            return [(f"{route}/{name}", size) for name, size in self._store(route, prefix).list(rest)]
        found = [*self.inner.list(prefix)]
        for route, store in self.routes.items() if not prefix else ():
            found += [(f"{route}/{name}", size) for name, size in store.list()]
        return sorted(found)

    def delete(self, paths: Iterable[str]) -> None:
        by_store: dict[str, list[str]] = {}
        for path in paths:
            route, _, rest = path.partition("/")
            is_own = not route.startswith(ROUTE)
            by_store.setdefault("" if is_own else route, []).append(path if is_own else rest)
        for route, names in by_store.items():
            (self._store(route, route) if route else self.inner).delete(names)

    def _locate(self, path: str) -> tuple[BlobStore, str]:
        if not path.startswith(ROUTE):
            return self.inner, path
        route, _, name = path.partition("/")
        return self._store(route, path), name

    def _store(self, route: str, path: str) -> BlobStore:
        if route not in self.routes:
            raise CheckpointError(
                f"{join_url(self.url, path)} lies in the storage of a single operator, and none of this program has "
                "that storage; set the storage of the operator as it was when the checkpoint was taken"
            )
        return self.routes[route]


def normalise_url(url: str) -> str:
    """The URL of a folder in the one spelling that handles, plans and messages use; plain paths become `file://`.

    Raises:
        ConfigurationError: no scheme that is known, no bucket, or credentials or options in the URL.
    """
    if "://" not in url:
        if not url:
            raise ConfigurationError("the URL of a folder for checkpoints or savepoints is empty")
        return Path(os.path.abspath(os.path.expanduser(url.removeprefix("file:")))).as_uri()
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise ConfigurationError(
            f"{redact(url)}: no storage is called {parts.scheme!r}{nearest(parts.scheme, SCHEMES)}; use one of "
            f"{', '.join(f'{scheme}://' for scheme in SCHEMES)} or a path"
        )
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise ConfigurationError(
            f"{redact(url)}: credentials and options do not belong into the URL, which is logged and stored; set them "
            "in the environment (AWS_..., GOOGLE_..., AZURE_...)"
        )
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise ConfigurationError(f"{url}: names the host {parts.netloc!r}; a local folder has three slashes")
        return Path(os.path.abspath(unquote(parts.path))).as_uri()
    if not parts.netloc:
        raise ConfigurationError(f"{url}: names no {'name' if parts.scheme == 'memory' else 'bucket'}")
    folder = "/".join(part for part in parts.path.split("/") if part)
    if folder:
        try:
            check_path(folder, url)
        except CheckpointError as error:
            raise ConfigurationError(str(error)) from error
    return join_url(f"{parts.scheme}://{parts.netloc}", *([folder] if folder else []))


def check_writable(blobs: BlobStore) -> None:
    """Write and remove a small blob, so that a folder that cannot be used is found before anything starts.

    Raises:
        ConfigurationError: it cannot be written.
    """
    probe = f".probe-{secrets.token_hex(8)}"
    try:
        blobs.create(probe, b"penstock")
        blobs.delete([probe])
    except CheckpointError as error:
        raise ConfigurationError(str(error).replace(f"/{probe}", "")) from error


def redact(text: str) -> str:
    """The text without what may be a secret: user names, passwords and queries of URLs."""
    without_user = re.sub(r"(\w+://)[^/\s@\"']*@", r"\1", text)
    return re.sub(r"(\w+://[^\s?\"']*)\?[^\s\"')]*", r"\1?...", without_user)


@functools.cache
def _connect(scheme: str, bucket: str) -> ObjectStore:
    """The client of a bucket, which holds connections and credentials: one a process. Memory lives in it."""
    retries: RetryConfig = {"max_retries": 2}
    try:
        match scheme:
            case "memory":
                return MemoryStore()
            case "gs":
                return GCSStore(bucket, retry_config=retries)
            case "az":
                return AzureStore(bucket, retry_config=retries)
            case _:
                plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
                return S3Store(bucket, client_options={"allow_http": plain}, retry_config=retries)
    except (obstore_errors.BaseError, ValueError) as error:
        raise ConfigurationError(
            f"{scheme}://{bucket} cannot be opened: {redact(_first_paragraph(error))}; check the environment"
        ) from None


def _folder_of(url: str) -> str:
    return urlsplit(url).path.strip("/")


def _local_remedy(error: OSError) -> str:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return "the disk is full: free some space or choose another folder"
        case errno.EACCES | errno.EROFS:
            return "allow this user to use the folder, or choose another one"
        case errno.EPERM | errno.ENOTSUP:
            return "the file system must allow hard links: choose another folder"
        case errno.ENOTDIR:
            return "a file stands where a folder must be: choose another folder"
        case _:
            return "check the file system, or choose another folder"


def _missing(url: str, path: str) -> CheckpointCorruptError:
    return CheckpointCorruptError(
        f"{join_url(url, path)} is missing; restore it from a backup, or start from another checkpoint or savepoint "
        "(a running job removes what its newest checkpoint does not need: read its folder again)"
    )


def _exists(url: str, path: str) -> BlobExistsError:
    return BlobExistsError(f"{join_url(url, path)} is there already, written by another; it is never written twice")


def _first_paragraph(error: Exception) -> str:
    paragraph = str(error).split("\n\n", maxsplit=1)[0].split("<?xml", maxsplit=1)[0]
    return " ".join(paragraph.split()).rstrip(" :")[:500]
