"""The names of all files and folders of checkpoints and savepoints: the only place that forms or takes apart a path.

The stores, writers and readers call it. Every name is made of plain characters, so that a path never leaves its folder
and is the same on a disk and in a bucket; no name of a file of state is ever used twice.

    <root>/<job id>/claims/00000002                     manager number 2 has taken the job over
                    claims/00000002.restored            and which checkpoint it resumed from
                    claims/00000002.ended               the job has ended under it; all else may go
                    claims/discarded                    and does: there is nothing to resume from
                    shared/<digest>-<checkpoint>-<attempt>-<task>-<subtask>-<number>.arrow
                    log/00000002-00000000.jsonl.gz      the stimulus log of manager 2, in parts
                    chk-00000042/manifest.json          written last: with it the checkpoint exists
                    chk-00000043/savepoint              savepoint 43 has had this number; it stands elsewhere
                    at-<hash of a URL>/...              such a path in the storage of a single operator
    <directory>/savepoint-<job id>-00000043-<random>/manifest.json
                                                     data/<digest>-<checkpoint>-<attempt>-...arrow
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from typing import Final

from penstock.engine.errors import CheckpointError

MANIFEST: Final = "manifest.json"
SHARED: Final = "shared"
CLAIMS: Final = "claims"
LOG: Final = "log"
DATA: Final = "data"
DISCARDED: Final = f"{CLAIMS}/discarded"
ROUTE: Final = "at-"
"""Begins the paths of files in the storage of a single operator."""

_SEGMENT: Final = re.compile(r"[A-Za-z0-9._=-]{1,255}")
_CHECKPOINT: Final = re.compile(r"chk-(\d{8,18})")
_MANIFEST: Final = re.compile(rf"chk-(\d{{8,18}})/{re.escape(MANIFEST)}")
_NUMBERED: Final = re.compile(r"chk-(\d{8,18})/[^/]+")
_FILE: Final = re.compile(rf"(?:[^/]+/)?(?:{SHARED}|{DATA})/[0-9a-f]{{64}}-(\d+)-\d+-.+")
_LOG_PART: Final = re.compile(r"(\d{8,18})-(\d{8,18})\.jsonl\.gz")
_WHAT_A_PATH_IS: Final = "it must be relative, without '..', and of the characters A-Z a-z 0-9 . _ = - between slashes"
_CLAIM: Final = re.compile(rf"{CLAIMS}/(\d{{8,18}})")


def check_path(path: str, where: str) -> str:
    """The path itself, if it is one that stays within its folder on every kind of storage.

    Args:
        path: relative, its parts joined by `/`.
        where: the folder, for the message.

    Raises:
        CheckpointError: it is empty, absolute, has a part `.` or `..`, or other characters than `A-Za-z0-9._=-`.

    Example:
        >>> check_path("chk-00000042/manifest.json", "s3://bucket/checkpoints/job")
        'chk-00000042/manifest.json'
    """
    if len(path) > 1024 or not all(_SEGMENT.fullmatch(part) and part not in (".", "..") for part in path.split("/")):
        raise CheckpointError(f"{where}: {path[:200]!r} is no path of a checkpoint's file: {_WHAT_A_PATH_IS}")
    return path


def join_url(url: str, *parts: str) -> str:
    """The URL of what stands at the relative path `parts` under the folder `url`."""
    return "/".join([url if url.endswith("://") else url.rstrip("/"), *parts])


def split_url(url: str) -> tuple[str, str]:
    """The URL of the folder that a file or folder stands in, and its name in it."""
    parent, _, name = url.rstrip("/").rpartition("/")
    return (f"{parent}/" if parent.endswith("//") else parent), name


def job_folder(root: str, job_id: str) -> str:
    """The URL of the folder of one job under the URL `root`.

    Raises:
        CheckpointError: the job id cannot be the name of a folder.
    """
    if "/" in job_id:
        raise CheckpointError(f"{root}: job id {job_id!r} cannot name a folder; use letters, digits, '-', '_' and '.'")
    return join_url(root, check_path(job_id, root))


def digits_of(digest: str) -> str:
    """The hexadecimal digits of a digest, without its algorithm: a file's name begins with them."""
    return digest.rpartition(":")[2]


def route_of(url: str) -> str:
    """The first part of the paths of files in the storage `url`.

    Example:
        >>> route_of("s3://hot/state")
        'at-4e3c24abfe60d595'
    """
    return ROUTE + hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class JobPaths:
    """The paths within the folder of one job, and the names of its savepoints' folders.

    Args:
        job_id: whose.
    """

    job_id: str

    def shared(
        self, digest: str, checkpoint: int, attempt: int, task: int, subtask: int, number: int, suffix: str = "arrow"
    ) -> str:
        """A file of state or of rows on their way, in the job's folder.

        Args:
            digest: of its content.
            checkpoint, attempt, task, subtask: that write it.
            number: counts the files that the subtask has written in this attempt.
            suffix: of its format.
        """
        return f"{SHARED}/{digits_of(digest)}-{checkpoint}-{attempt}-{task}-{subtask}-{number}.{suffix}"

    def savepoint_data(
        self, digest: str, checkpoint: int, attempt: int, task: int, subtask: int, number: int, suffix: str = "arrow"
    ) -> str:
        """A file of state in the folder of a savepoint; as `shared`."""
        return f"{DATA}/{digits_of(digest)}-{checkpoint}-{attempt}-{task}-{subtask}-{number}.{suffix}"

    def manifest(self, checkpoint: int) -> str:
        """What makes a checkpoint complete."""
        return f"{checkpoint_folder_name(checkpoint)}/{MANIFEST}"

    def savepoint_number(self, checkpoint: int) -> str:
        """Says that a savepoint has had this number."""
        return f"chk-{checkpoint:08d}/savepoint"

    def claim(self, epoch: int) -> str:
        """Says that manager number `epoch` has taken the job over."""
        return f"{CLAIMS}/{epoch:08d}"

    def restored(self, epoch: int) -> str:
        """Says which checkpoint manager number `epoch` resumed from."""
        return f"{CLAIMS}/{epoch:08d}.restored"

    def ended(self, epoch: int) -> str:
        """Says that the job has ended under manager number `epoch`, and how."""
        return f"{CLAIMS}/{epoch:08d}.ended"

    def log_part(self, epoch: int, part: int) -> str:
        """A part of the stimulus log of manager number `epoch`."""
        return f"{LOG}/{epoch:08d}-{part:08d}.jsonl.gz"

    def new_savepoint(self, checkpoint: int) -> str:
        """The name of a new folder for savepoint number `checkpoint`; never the same twice.

        Example: `savepoint-orders-cd2a6a97-00000007-5f0c9a31b2e4`.
        """
        return f"savepoint-{self.job_id}-{checkpoint:08d}-{secrets.token_hex(6)}"


def manifest_number(path: str) -> int | None:
    """The number of the checkpoint whose manifest a path of a job's folder is, if it is one."""
    return _number(_MANIFEST, path)


def used_number(path: str) -> int | None:
    """The number of the checkpoint or savepoint that has written a path of a job's folder, if it is of one."""
    found = _number(_NUMBERED, path)
    return _number(_FILE, path) if found is None else found


def claim_epoch(path: str) -> int | None:
    """The number of the manager whose claim a path of a job's folder is, if it is one."""
    return _number(_CLAIM, path)


def restored_epoch(path: str) -> int | None:
    """The number of the manager that says by this path what it resumed from, if it is such a path."""
    return _number(_CLAIM, path.removesuffix(".restored")) if path.endswith(".restored") else None


def log_part(path: str) -> tuple[int, int] | None:
    """The numbers of the manager and of the part of a stimulus log that a file of this name is, if it is one."""
    found = _LOG_PART.fullmatch(path.rpartition("/")[2])
    return (int(found[1]), int(found[2])) if found else None


def is_savepoint_mark(path: str) -> bool:
    """Whether a path of a job's folder says that a savepoint has had its number."""
    folder, _, name = path.rpartition("/")
    return name == "savepoint" and checkpoint_folder(folder) is not None


def ended_epoch(path: str) -> int | None:
    """The number of the manager that says by this path that the job has ended, if it is such a path."""
    return _number(_CLAIM, path.removesuffix(".ended")) if path.endswith(".ended") else None


def checkpoint_folder_name(checkpoint: int) -> str:
    """The name of a checkpoint's folder, in that of its job."""
    return f"chk-{checkpoint:08d}"


def savepoint_of(name: str, job_id: str) -> int | None:
    """The number of the savepoint of a job whose folder has this name, if it is one."""
    return _number(re.compile(rf"savepoint-{re.escape(job_id)}-(\d{{8,18}})-[0-9a-f]{{12}}"), name)


def checkpoint_folder(name: str) -> int | None:
    """The number of the checkpoint whose folder has this name, if it is one."""
    return _number(_CHECKPOINT, name)


def number_of(url: str) -> int | None:
    """The number of the checkpoint or savepoint whose folder a URL is, if it is one.

    Example:
        >>> number_of("s3://b/s/savepoint-orders-cd2a6a97-00000007-5f0c9a31b2e4"), number_of("s3://b/s")
        (7, None)
    """
    name = split_url(url.rstrip("/"))[1]
    return _number(re.compile(r"savepoint-.+-(\d{8,18})-[0-9a-f]{12}"), name) or checkpoint_folder(name)


def _number(pattern: re.Pattern[str], path: str) -> int | None:
    found = pattern.fullmatch(path)
    return int(found[1]) if found else None
