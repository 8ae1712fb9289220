"""Checkpoint storage `ray://<name>/...`: blobs in the object store of the Ray cluster, by an actor that owns them.

Jobs on Ray get it for `storage="ray://..."`; all other URLs go to `savepoints.storage`. It guarantees less than a disk
or a bucket does: the blobs survive the loss of subtasks and of the job manager, and memory pressure (Ray spills
them to disk). They are lost with the process that owns them, with its node, and with the cluster. So it is for
recovering from failures of processes without any storage of one's own, and not for savepoints that are to be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
import ray
from ray.exceptions import RayActorError, RayError

from penstock.actors.deaths import remark
from penstock.engine.errors import CheckpointCorruptError, CheckpointError, ConfigurationError
from penstock.savepoints.content import Data, joined
from penstock.savepoints.paths import check_path, join_url
from penstock.savepoints.storage import BlobExistsError, BlobStore
from penstock.savepoints.storage import open_blobs as open_lasting_blobs

SCHEME: Final = "ray"
_NAMESPACE: Final = "penstock"
_PREFIX: Final = "penstock-blobs:"


class BlobActor:
    """All blobs under one name, by path. Detached: it lives as long as the cluster."""

    def __init__(self) -> None:
        self._blobs: dict[str, tuple[Any, int]] = {}

    def put(self, path: str, data: bytes) -> None:
        """Write a blob, in place of one that is there."""
        self._blobs[path] = (ray.put(data), len(data))

    def create(self, path: str, data: bytes) -> bool:
        """Write a blob unless there is one; whether it was written. The same content again is no other blob."""
        if path in self._blobs:
            return bool(ray.get(self._blobs[path][0]) == data)
        self.put(path, data)
        return True

    def get(self, path: str) -> Any:
        """The ref of the content, in a list so that Ray does not resolve it here; an empty one if there is none."""
        return [self._blobs[path][0]] if path in self._blobs else []

    def list(self, prefix: str) -> Sequence[tuple[str, int]]:
        """Path and length of every blob whose path begins with `prefix`."""
        return sorted((path, length) for path, (_, length) in self._blobs.items() if path.startswith(prefix))

    def delete(self, paths: Sequence[str]) -> None:
        """Remove blobs."""
        for path in paths:
            self._blobs.pop(path, None)


@dataclass(frozen=True, slots=True)
class RayBlobs:
    """A folder of `ray://` as a `BlobStore`.

    Args:
        name: of the actor: the host of the URL.
        folder: the path of the URL, without slashes at its ends.
    """

    name: str
    folder: str = ""

    @property
    def url(self) -> str:
        return join_url(f"{SCHEME}://{self.name}", *([self.folder] if self.folder else []))

    def put(self, path: str, data: Data) -> None:
        full = self._path(path)
        self._ask(lambda actor: actor.put.remote(full, joined(data)))

    def create(self, path: str, data: Data) -> None:
        full = self._path(path)
        if not self._ask(lambda actor: actor.create.remote(full, joined(data))):
            raise BlobExistsError(f"{join_url(self.url, path)} is there already, written by another")

    def get(self, path: str) -> pa.Buffer:
        full = self._path(path)
        refs = self._ask(lambda actor: actor.get.remote(full))
        if not refs:
            raise CheckpointCorruptError(
                f"{join_url(self.url, path)} is missing: the process that held it, or the cluster, has ended; start "
                "from another checkpoint or savepoint"
            )
        return pa.py_buffer(self._got(refs[0]))

    def list(self, prefix: str = "") -> Sequence[tuple[str, int]]:
        within = f"{self._path(prefix)}/" if prefix else (f"{self.folder}/" if self.folder else "")
        skipped = len(self.folder) + 1 if self.folder else 0
        found = self._ask(lambda actor: actor.list.remote(within))
        return [(path[skipped:], length) for path, length in found]

    def delete(self, paths: Iterable[str]) -> None:
        full = [self._path(path) for path in paths]
        self._ask(lambda actor: actor.delete.remote(full))

    def _path(self, path: str) -> str:
        check_path(path, self.url)
        return f"{self.folder}/{path}" if self.folder else path

    def _ask(self, call: Callable[[Any], Any]) -> Any:
        actor_class: Any = ray.remote(BlobActor)
        actor = actor_class.options(
            name=f"{_PREFIX}{self.name}", namespace=_NAMESPACE, get_if_exists=True, lifetime="detached", num_cpus=0
        ).remote()
        try:
            return ray.get(call(actor))
        except RayActorError as error:
            raise CheckpointError(f"{self.url}: the process that held the checkpoints died{remark(error)}") from error

    def _got(self, ref: Any) -> Any:
        try:
            return ray.get(ref)
        except RayError as error:
            lost = f"{self.url}: a checkpoint is lost with the process that held it{remark(error)}"
            raise CheckpointCorruptError(lost) from error


def open_blobs(url: str) -> BlobStore:
    """The folder at a URL, as `savepoints.storage.open_blobs` gives it, and `ray://` besides.

    Raises:
        ConfigurationError: the URL names no storage that can be used.
    """
    parts = urlsplit(url)
    if parts.scheme == "memory":
        raise ConfigurationError(
            f"{url} is the memory of one process, and a job on Ray has many; use a path, s3://, or ray://"
        )
    if parts.scheme != SCHEME:
        return open_lasting_blobs(url)
    if not parts.netloc or parts.query or parts.fragment or "@" in parts.netloc:
        raise ConfigurationError(f"{url}: a ray:// URL has a name and perhaps a path, such as ray://checkpoints")
    folder = "/".join(part for part in parts.path.split("/") if part)
    if folder:
        check_path(folder, url)
    return RayBlobs(parts.netloc, folder)
