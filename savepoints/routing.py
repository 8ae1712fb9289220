"""One folder whose files lie in several storages: those of operators with storage of their own lie there.

The job store, the checkpoint writers and the restore open a job's folder by `routed`. Paths stay relative and plain: a
file in the storage of an operator has a path that begins with `at-<hash of its URL>/`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.engine.errors import CheckpointError
from penstock.savepoints.content import Data
from penstock.savepoints.paths import job_folder, join_url
from penstock.savepoints.storage import BlobStore, OpenBlobs

_PREFIX: Final = "at-"


def route_of(url: str) -> str:
    """The first part of the paths of files in the storage `url`.

    Example:
        >>> route_of("s3://hot/state")
        'at-4e3c24abfe60d595'
    """
    return _PREFIX + hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:16]


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
        if prefix.startswith(_PREFIX):
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
            is_own = not route.startswith(_PREFIX)
            by_store.setdefault("" if is_own else route, []).append(path if is_own else rest)
        for route, names in by_store.items():
            (self._store(route, route) if route else self.inner).delete(names)

    def _locate(self, path: str) -> tuple[BlobStore, str]:
        if not path.startswith(_PREFIX):
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
