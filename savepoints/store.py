"""The folder of one job: which checkpoints there are, which of them count, and who may add to them.

The manager of a job holds a `FolderJobStore`, and its subtasks get it with their deployment; `find_checkpoint` finds
what a user starts a job from. A checkpoint counts only if its manager had not been replaced when it was written:
`engine/checkpointing/claims.py` has the rule, and why it is enough.
"""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from penstock.engine.checkpointing.claims import Claims, is_fenced
from penstock.engine.checkpointing.handles import CompletedCheckpoint, FileHandle
from penstock.engine.checkpointing.preload import Preloaded
from penstock.engine.checkpointing.restored import RestoredTask
from penstock.engine.checkpointing.store import Claim, RestorePlan, SubtaskWriter
from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import (
    CheckpointCorruptError,
    CheckpointError,
    ConfigurationError,
    FencedError,
    NoCheckpointError,
)
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.job.status import JobStatus
from penstock.savepoints.local_copies import CopyingWriter, LocalCopies, local_folder, remove_stale
from penstock.savepoints.manifest import FORMAT, decode_manifest, encode_manifest, seal, unseal
from penstock.savepoints.paths import (
    CLAIMS,
    DISCARDED,
    LOG,
    MANIFEST,
    JobPaths,
    checkpoint_folder,
    checkpoint_folder_name,
    claim_epoch,
    ended_epoch,
    is_savepoint_mark,
    job_folder,
    join_url,
    log_part,
    manifest_number,
    restored_epoch,
    split_url,
    used_number,
)
from penstock.savepoints.restore import load_task, plan_failover, preload_task
from penstock.savepoints.storage import (
    BlobExistsError,
    BlobStore,
    OpenBlobs,
    RetryingBlobs,
    RetryPolicy,
    check_writable,
    is_local_file,
    open_blobs,
    routed,
)
from penstock.savepoints.writer import UPLOADS, CheckpointWriter

_ROUNDS: Final = 1000
"""How many rivals for one claim are too many to be true."""
_MANIFEST_SECONDS: Final = 30.0
"""For how long a manifest is tried again at the most: a job that is to end, or to restart, waits for it."""
KEPT_LOGS: Final = 5
"""Of how many managers the stimulus logs are kept."""
START_AGAIN: Final = "start it again from that savepoint"
"""What the end of a job says that had been stopped with a savepoint, if not all of its sinks may have committed."""


@dataclass(frozen=True)
class FolderJobStore:
    """The folder `<root>/<job id>` of a disk, a bucket or memory, as a `JobStore`.

    Args:
        root_url: of the folder for the checkpoints of all jobs; see `storage.open_blobs`.
        job_id: whose; the name of the folder.
        job_name: for people.
        savepoint_url: of the folder for savepoints that name none.
        storage_overrides: URLs of the storage of single operators, by uid (`CheckpointConfig.storage_overrides`).
        open_blobs: makes a store of a URL.
        uploads: how many files a subtask writes at the same time.
        patience_s: for how many seconds the files of a checkpoint are tried again, where the storage does not answer.
        started_from: URL of what the job began with, to be written down for `runs`; None: without state.
        run, replaces: as in `JobProgram`, to be written down for `runs`.

    Example:
        >>> FolderJobStore("memory://example", "4f2a", "delays").claim()
        Claim(epoch=1, next_checkpoint=1, retained=())
    """

    root_url: str
    job_id: str
    job_name: str
    savepoint_url: str | None = None
    storage_overrides: tuple[tuple[str, str], ...] = ()
    open_blobs: OpenBlobs = open_blobs
    uploads: int = UPLOADS
    started_from: str | None = None
    patience_s: float = 0.0
    run: str = ""
    replaces: tuple[str, ...] = ()

    @cached_property
    def url(self) -> str:
        """Of the job's folder; the paths of its checkpoints' handles are relative to it."""
        return job_folder(self.open_blobs(self.root_url).url, self.job_id)

    def claim(self) -> Claim:
        """As `JobStore.claim`.

        Raises:
            FencedError: yet another manager has taken the job over meanwhile.
        """
        blobs = self._blobs
        epoch = self._create_claim(blobs)
        try:
            return self._take_over(blobs, epoch)
        except CheckpointCorruptError:
            # A manager that came after this one may have removed what this one was reading.
            self._check_not_fenced(blobs, epoch, f"manager {epoch}")
            raise

    def _take_over(self, blobs: BlobStore, epoch: int) -> Claim:
        end = ended_by(blobs) or self._stopped(blobs)
        if end is not None:
            blobs.create(self._paths.ended(epoch), end.sealed(epoch))
            self._check_not_fenced(blobs, epoch, f"manager {epoch}")
            return Claim(epoch, 1, (), end.status, end.message, end.retains)
        retained = counted_checkpoints(blobs)
        if retained:
            check_files(blobs, retained[-1])
        newest = retained[-1].checkpoint if retained else 0
        content = {"format": FORMAT, "checkpoint": newest, "epoch": epoch, "token": secrets.token_hex(16)}
        blobs.create(self._paths.restored(epoch), seal(content))
        self._check_not_fenced(blobs, epoch, f"manager {epoch}")
        paths = [path for path, _ in blobs.list()]
        used = [number for path in paths if (number := used_number(path)) is not None]
        has_savepoints = any(map(is_savepoint_mark, paths))
        return Claim(epoch, max([newest, *used]) + 1, tuple(retained), has_savepoints=has_savepoints)

    def replace(self, claimed_ms: int) -> None:
        """Another run takes the job's place: whoever manages it completes nothing more, nor does a successor.

        Args:
            claimed_ms: when the job was last taken over, which this is not.
        """
        epoch = self._create_claim(self._folder, claimed_ms)
        end = End(JobStatus.FAILED.value, "another run was started to resume it, and has taken its place", retains=True)
        self._folder.create(self._paths.ended(epoch), end.sealed(epoch))

    def check_claim(self, epoch: int) -> None:
        self._check_not_fenced(self._blobs, epoch, f"manager {epoch}")

    def complete(self, epoch: int, checkpoint: CompletedCheckpoint, target: str | None = None) -> str:
        blobs = self._patient(self._folder, min(self.patience_s, _MANIFEST_SECONDS))
        number = checkpoint.checkpoint
        data = encode_manifest(dataclasses.replace(checkpoint, epoch=epoch))
        if target is None:
            self._create_manifest(blobs, epoch, number, data)
        else:
            self._create_savepoint(blobs, epoch, checkpoint, target, data)
        self._check_not_fenced(blobs, epoch, f"checkpoint {number}")
        return target or join_url(blobs.url, checkpoint_folder_name(number))

    def _create_manifest(self, blobs: BlobStore, epoch: int, number: int, data: bytes) -> None:
        try:
            blobs.create(self._paths.manifest(number), data)
        except BlobExistsError:
            # The manifest is of a manager that took over, if there is one: then the number is its own.
            self._check_not_fenced(blobs, epoch, f"checkpoint {number}")
            raise

    def _create_savepoint(
        self, blobs: BlobStore, epoch: int, savepoint: CompletedCheckpoint, target: str, data: bytes
    ) -> None:
        # The number is used up before anything else happens: no checkpoint that comes later may have it too.
        number, kind = savepoint.checkpoint, savepoint.kind.value
        used = {"format": FORMAT, "checkpoint": number, "epoch": epoch, "kind": kind, "savepoint": target}
        blobs.create(self._paths.savepoint_number(number), seal(used))
        self.open_blobs(target).create(MANIFEST, data)

    def savepoint_folder(self, directory: str | None) -> str:
        parent = directory or self.savepoint_url
        if parent is None:
            raise CheckpointError(
                f"a savepoint of job {self.job_name!r} has no folder: name one, or set "
                "execution.checkpointing.savepoint-dir"
            )
        try:
            blobs = self.open_blobs(parent)
            check_writable(blobs)
        except ConfigurationError as error:
            raise CheckpointError(f"a savepoint of job {self.job_name!r} cannot be written: {error}") from error
        return blobs.url

    def savepoint_target(self, folder: str, checkpoint: int) -> str:
        return join_url(folder, self._paths.new_savepoint(checkpoint))

    def delete(
        self, checkpoints: Sequence[CompletedCheckpoint], files: Iterable[FileHandle], target: str | None = None
    ) -> None:
        folder = self._folder if target is None else self.open_blobs(target)
        if checkpoints:
            manifests = [self._paths.manifest(checkpoint.checkpoint) for checkpoint in checkpoints]
            folder.delete(manifests if target is None else [MANIFEST])
        paths = sorted({file.path for file in files})
        if paths:
            (self._blobs if target is None else folder).delete(paths)

    def finish(self, epoch: int, status: str, message: str = "", *, retains: bool = False) -> None:
        blobs = self._blobs
        # A manager that was replaced must not write an end: the new one would take its own job for ended.
        self._check_not_fenced(blobs, epoch, "the end")
        blobs.create(self._paths.ended(epoch), End(status, message, retains).sealed(epoch))
        # A manager that claims from now on sees it. One that did before may be reading what would be removed next.
        self._check_not_fenced(blobs, epoch, "the end")

    def discard(self) -> None:
        blobs = self._blobs
        with contextlib.suppress(BlobExistsError):
            blobs.create(DISCARDED, seal({"format": FORMAT, "job": self.job_name}))
        paths = [path for path, _ in blobs.list() if not path.startswith((f"{CLAIMS}/", f"{LOG}/"))]
        manifests = [path for path in paths if manifest_number(path) is not None]
        blobs.delete(manifests)
        blobs.delete([path for path in paths if manifest_number(path) is None])

    def write_log(self, epoch: int, part: int, data: bytes) -> None:
        blobs = self._folder
        if not part and epoch > KEPT_LOGS:
            logs = ((path, log_part(path)) for path, _ in blobs.list(LOG))
            blobs.delete([path for path, named in logs if named is not None and named[0] <= epoch - KEPT_LOGS])
        blobs.put(self._paths.log_part(epoch, part), data)

    def drop_log(self, epoch: int, part: int) -> None:
        self._folder.delete([self._paths.log_part(epoch, part)])

    def plan(self, graph: PhysicalGraph, checkpoint: CompletedCheckpoint) -> RestorePlan:
        return plan_failover(graph, checkpoint, self.url)

    def preload(
        self, graph: PhysicalGraph, plan: RestorePlan, task: int, subtask: int, before: Preloaded | None
    ) -> Preloaded:
        return preload_task(self._opened(graph, task, subtask), graph, plan, task, subtask, before)

    def load(
        self, graph: PhysicalGraph, plan: RestorePlan, task: int, subtask: int, preloaded: Preloaded | None = None
    ) -> RestoredTask:
        return load_task(self._opened(graph, task, subtask), graph, plan, task, subtask, preloaded)

    def _opened(self, graph: PhysicalGraph, task: int, subtask: int) -> OpenBlobs:
        copies = self._copies(graph, task, subtask)
        return self.open_blobs if copies is None else _OpenCopies(self.open_blobs, copies)

    def writer(
        self,
        graph: PhysicalGraph,
        task: int,
        subtask: int,
        attempt: int,
        plan: RestorePlan | None,
    ) -> SubtaskWriter:
        copies, opener = self._copies(graph, task, subtask), self.open_blobs
        folder = self._patient(copies or opener(self.url), self.patience_s)
        writer = CheckpointWriter(folder, self._paths, graph, task, subtask, attempt, plan, opener, self.uploads)
        if copies is None:
            return writer
        remove_stale(local_folder(graph.config, self.job_id))
        return CopyingWriter(writer, copies)

    def _patient(self, blobs: BlobStore, seconds: float) -> BlobStore:
        return RetryingBlobs(blobs, RetryPolicy(seconds=seconds)) if seconds else blobs

    def _copies(self, graph: PhysicalGraph, task: int, subtask: int) -> LocalCopies | None:
        if not graph.config.failover.local_recovery:
            return None
        return LocalCopies(self.open_blobs(self.url), local_folder(graph.config, self.job_id) / f"{task}-{subtask}")

    def _stopped(self, blobs: BlobStore) -> End | None:
        target = stopped_with(blobs, self.open_blobs)
        if target is None:
            return None
        return End(
            JobStatus.FAILED.value,
            f"savepoint {target} is complete, but job {self.job_name!r} ended before it was known that all sinks had "
            f"committed what belongs to it: {START_AGAIN}",
            retains=True,
        )

    @cached_property
    def _paths(self) -> JobPaths:
        return JobPaths(self.job_id)

    @cached_property
    def _folder(self) -> BlobStore:
        """The job's folder itself, in which claims and manifests lie."""
        return self.open_blobs(self.url)

    @cached_property
    def _blobs(self) -> BlobStore:
        """The folder, with the storages of single operators."""
        return routed(self._folder, self.storage_overrides, self.job_id, self.open_blobs)

    def _create_claim(self, blobs: BlobStore, claimed_ms: int | None = None) -> int:
        """The number of the claim that was made; `claimed_ms`: civil time, now where it is None."""
        # The token tells rivals apart: a create-only write that finds its own content has succeeded.
        token = secrets.token_hex(16)
        for _ in range(_ROUNDS):
            epoch = _newest_epoch(blobs) + 1
            try:
                content = {"format": FORMAT, "epoch": epoch, "token": token, "job": self.job_name}
                now = time.time_ns() // 1_000_000 if claimed_ms is None else claimed_ms
                began = {"claimed_ms": now, "started_from": self.started_from}
                runs = {"run": self.run, "replaces": list(self.replaces)}
                blobs.create(self._paths.claim(epoch), seal({**content, **began, **runs}))
            except BlobExistsError:
                continue
            return epoch
        raise CheckpointError(f"{blobs.url}: {_ROUNDS} other managers have claimed the job at the same time")

    def _check_not_fenced(self, blobs: BlobStore, epoch: int, what: str) -> None:
        newest = _newest_epoch(blobs)
        if is_fenced(epoch, newest):
            raise FencedError(
                f"{what} of job {self.job_name!r} does not count: manager {newest} has taken the job over from manager "
                f"{epoch}, in {blobs.url}; this one must stop"
            )


@dataclass(frozen=True, slots=True)
class End:
    """How a job has ended, as a value of `JobStatus`, what more there is to say, and whether its checkpoints stay."""

    status: str
    message: str = ""
    retains: bool = False

    def sealed(self, epoch: int) -> bytes:
        """What manager number `epoch` writes down."""
        content = {"format": FORMAT, "epoch": epoch, "status": self.status, "message": self.message}
        return seal({**content, "retains": self.retains})


@dataclass(frozen=True, slots=True)
class _OpenCopies:
    """Opens the job's folder with the copies of a subtask, and any other as it is."""

    opened: OpenBlobs
    copies: LocalCopies

    def __call__(self, url: str) -> BlobStore:
        return self.copies if url == self.copies.url else self.opened(url)


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """A checkpoint or savepoint that a user has named.

    Args:
        location: URL of the folder that the paths of its handles are relative to.
        checkpoint: what it consists of.
    """

    location: str
    checkpoint: CompletedCheckpoint


def find_checkpoint(url: str, open_blobs: OpenBlobs = open_blobs, storage: Sequence[str] = ()) -> FoundCheckpoint:
    """The checkpoint or savepoint at a path, complete: all its files are there with their lengths.

    Args:
        url: of a savepoint's folder, a checkpoint's (`chk-00000042`), the manifest in it, or a job's folder, which
            means its newest checkpoint.
        open_blobs: makes a store of a URL.
        storage: URLs of the storage of single operators, where there is any.

    Raises:
        NoCheckpointError: there is no checkpoint or savepoint; says what there is.
        CheckpointCorruptError: a file of it is missing or damaged. Names the file.
        ConfigurationError: the URL cannot be used.
    """
    found = find_manifest(url, open_blobs)
    check_files(files_of(found, open_blobs, storage), found.checkpoint)
    return found


def find_manifest(url: str, open_blobs: OpenBlobs = open_blobs) -> FoundCheckpoint:
    """As `find_checkpoint`, whatever has become of the files that the manifest lists."""
    named = open_blobs(url)
    folder = open_blobs(split_url(named.url)[0]) if split_url(named.url)[1] == MANIFEST else named
    paths = [path for path, _ in folder.list()]
    if MANIFEST in paths:
        return _found_in(folder, open_blobs)
    if any(manifest_number(path) is not None for path in paths):
        return FoundCheckpoint(folder.url, _newest_counted(folder))
    raise NoCheckpointError(f"{folder.url} is no checkpoint or savepoint: {_what_is_there(folder.url, paths)}")


def files_of(found: FoundCheckpoint, open_blobs: OpenBlobs, storage: Sequence[str] = ()) -> BlobStore:
    """The store that has the files of a checkpoint, those in the storage of single operators too."""
    own = [("", url) for url in storage]
    return routed(open_blobs(found.location), own, found.checkpoint.job_id, open_blobs)


def check_files(blobs: BlobStore, checkpoint: CompletedCheckpoint) -> None:
    """Compare the files of a checkpoint with those that are in the folder, by name and length.

    Raises:
        CheckpointCorruptError: one is missing or has another length. Names it.
    """
    for damage in unfit_files(blobs, checkpoint).values():
        raise damage


def unfit_files(blobs: BlobStore, checkpoint: CompletedCheckpoint) -> Mapping[str, CheckpointCorruptError]:
    """The files of a checkpoint that are missing or have another length, by their paths."""
    held = dict(blobs.list())
    unfit = {}
    for file in checkpoint.files():
        length = held.get(file.path)
        if length != file.length:
            what = "is missing" if length is None else f"has {length} bytes instead of {file.length}"
            unfit[file.path] = CheckpointCorruptError(
                f"{join_url(blobs.url, file.path)} {what}; checkpoint {checkpoint.checkpoint} of job "
                f"{checkpoint.job_name!r} needs it: restore it from a backup, set the storage of single operators as "
                "it was, or start from another checkpoint or savepoint"
            )
    return unfit


def _found_in(folder: BlobStore, open_blobs: OpenBlobs) -> FoundCheckpoint:
    """What the manifest in a folder describes: its files are beside it, or, of a checkpoint, in the job's folder."""
    checkpoint = _read_manifest(folder, MANIFEST)
    parent, name = split_url(folder.url)
    home = folder if checkpoint_folder(name) is None else open_blobs(parent)
    return FoundCheckpoint(home.url, checkpoint)


def _what_is_there(url: str, paths: Sequence[str]) -> str:
    manifests = [path.split("/")[0] for path in paths if path.endswith(f"/{MANIFEST}")]
    if manifests:
        return f"name one of the folders in it, {_some(manifests)}"
    if any(used_number(path) is not None for path in paths):
        return f"it has files of state, but no {MANIFEST}: it was not completed, or the file is lost"
    if is_local_file(url):
        return "it is a file; name the folder of a checkpoint or savepoint"
    return f"it holds {_some(path.split('/')[0] for path in paths)}" if paths else "it is missing or empty"


def _some(names: Iterable[str]) -> str:
    distinct = sorted(set(names))
    return ", ".join(distinct[:10]) + (f" and {len(distinct) - 10} more" if len(distinct) > 10 else "")


def _newest_counted(folder: BlobStore) -> CompletedCheckpoint:
    counted = counted_checkpoints(folder)
    if not counted:
        raise NoCheckpointError(
            f"{folder.url} has no checkpoint that counts: what is there was completed by a manager that had been "
            "replaced; name another checkpoint or savepoint"
        )
    return counted[-1]


def counted_checkpoints(blobs: BlobStore) -> list[CompletedCheckpoint]:
    """The checkpoints of a job's folder that count, oldest first; see the module.

    Raises:
        CheckpointCorruptError: the newest one is missing or damaged. Older ones that are, are left out.
    """
    paths = [path for path, _ in blobs.list()]
    claims = _claims(blobs, paths)
    counted: list[CompletedCheckpoint] = []
    manifests = {number: path for path in paths if (number := manifest_number(path)) is not None}
    for number in sorted(manifests, reverse=True):
        try:
            checkpoint = _read_manifest(blobs, manifests[number])
        except CheckpointError:
            if not counted:
                raise
            continue
        if claims.counts(number, checkpoint.epoch):
            counted.append(checkpoint)
    if claims.misses_restored(counted[0].checkpoint if counted else 0):
        raise CheckpointCorruptError(
            f"{join_url(blobs.url, JobPaths('').manifest(claims.restored))} is missing, and no newer checkpoint is "
            "there; restore it from a backup, or start from another checkpoint or savepoint"
        )
    return counted[::-1]


def _read_manifest(blobs: BlobStore, path: str) -> CompletedCheckpoint:
    return decode_manifest(bytes(memoryview(blobs.get(path))), join_url(blobs.url, path))


def _claims(blobs: BlobStore, paths: Sequence[str]) -> Claims:
    """What the newest manager has written down that said what it resumed from."""
    epoch = _decider(paths)
    return Claims(epoch, _restored_by(blobs, epoch)) if epoch else Claims()


def _restored_by(blobs: BlobStore, epoch: int) -> int:
    """The checkpoint that manager number `epoch` resumed from; 0 for none."""
    path = JobPaths("").restored(epoch)
    where = join_url(blobs.url, path)
    checkpoint = unseal(bytes(memoryview(blobs.get(path))), where).get("checkpoint")
    if type(checkpoint) is not int or checkpoint < 0:
        raise CheckpointCorruptError(f"{where} names no checkpoint")
    return checkpoint


def stopped_with(blobs: BlobStore, open_blobs: OpenBlobs) -> str | None:
    """URL of the savepoint that a manager of a job's folder stopped the job with: sinks may have committed it."""
    paths = [path for path, _ in blobs.list()]
    marks = [path for path in paths if is_savepoint_mark(path)]
    if not marks:
        return None
    claims, counted = Claims(_decider(paths)), counted_checkpoints(blobs)
    newest = counted[-1].checkpoint if counted else 0
    for path in marks:
        if (used_number(path) or 0) < newest:
            continue
        used = unseal(blobs.get(path).to_pybytes(), join_url(blobs.url, path))
        epoch, target = used.get("epoch"), used.get("savepoint")
        if used.get("kind") != SnapshotKind.SUSPEND.value or not isinstance(epoch, int) or claims.overrule(epoch):
            continue
        if isinstance(target, str) and any(name == MANIFEST for name, _ in open_blobs(target).list()):
            return target
    return None


def newest_claim(blobs: BlobStore) -> Mapping[str, object]:
    """What the newest manager of a job's folder has written down of itself; empty where there is none.

    Raises:
        CheckpointCorruptError: it is damaged.
    """
    epoch = _newest_epoch(blobs)
    path = JobPaths("").claim(epoch)
    return unseal(blobs.get(path).to_pybytes(), join_url(blobs.url, path)) if epoch else {}


def ended_by(blobs: BlobStore) -> End | None:
    """How the job has ended, going by what its last manager wrote down; a later one that resumed it knew better."""
    paths = [path for path, _ in blobs.list(CLAIMS)]
    last = max((epoch for path in paths if (epoch := ended_epoch(path)) is not None), default=0)
    if not last or Claims(_decider(paths)).overrule(last):
        return None
    where = join_url(blobs.url, JobPaths("").ended(last))
    content = unseal(blobs.get(JobPaths("").ended(last)).to_pybytes(), where)
    status, message = content.get("status"), content.get("message", "")
    if not isinstance(status, str) or not isinstance(message, str):
        raise CheckpointCorruptError(f"{where} does not say how the job has ended")
    # Ends that an older version wrote do not say it; checkpoints that are kept can still be removed.
    return End(status, message, bool(content.get("retains", True)))


def _decider(paths: Sequence[str]) -> int:
    """The newest manager that said what it resumed from; 0: none did."""
    return max((epoch for path in paths if (epoch := restored_epoch(path)) is not None), default=0)


def _newest_epoch(blobs: BlobStore) -> int:
    epochs = (claim_epoch(path) for path, _ in blobs.list(CLAIMS))
    return max((epoch for epoch in epochs if epoch is not None), default=0)
