"""The runs of a job by its name: which was the newest, and what it has left to resume from.

The environment asks it for `submit(..., resume="latest")`. It reads what the managers of the runs have written
down, and never goes back behind what the newest run did: what that run has shown must not be shown again. Nor does it
begin without state where an older run has left some.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import NoCheckpointError
from penstock.engine.job.handle import may_be_id_of
from penstock.engine.job.status import JobStatus
from penstock.savepoints.manifest import decode_manifest
from penstock.savepoints.paths import (
    CLAIMS,
    DISCARDED,
    MANIFEST,
    checkpoint_folder_name,
    is_savepoint_mark,
    join_url,
    manifest_number,
    savepoint_of,
    split_url,
    used_number,
)
from penstock.savepoints.storage import BlobStore, OpenBlobs, open_blobs
from penstock.savepoints.store import FolderJobStore, counted_checkpoints, ended_by, newest_claim, stopped_with

_REMEDY: Final = "leave resume out to begin without state, or name a savepoint"


@dataclass(frozen=True, slots=True)
class _Run:
    """One submission of a job.

    Args:
        job_id: names its folder.
        folder: of its checkpoints.
        began_ms: when its newest manager took over; civil time, ms UTC.
        started_from: URL of what it began with; None: without state.
        token, replaces: `JobProgram.run` and `replaces`; an older version wrote neither.
    """

    job_id: str
    folder: BlobStore
    began_ms: int
    started_from: str | None
    token: str
    replaces: tuple[str, ...]


def state_to_resume(
    name: str, root_url: str, savepoint_url: str | None = None, opened: OpenBlobs = open_blobs
) -> str | None:
    """URL of the checkpoint or savepoint that the newest run of a job left: what its next run resumes from.

    That is the savepoint that it was stopped with; else its newest checkpoint; else what it had begun with itself.

    Args:
        name: of the job.
        root_url: of the folder with the checkpoints of all jobs.
        savepoint_url: of the folder for savepoints that name none.
        opened: makes a store of a URL.

    Returns:
        None: no run has left anything, and the newest began without state and has taken no checkpoint.

    Raises:
        NoCheckpointError: the newest run finished, or was cancelled and its checkpoints are gone; or it began without
            state and has taken no checkpoint, while an older run has left one.
        CheckpointCorruptError: what it has left is damaged.
    """
    runs = sorted(_runs(name, root_url, opened), key=_age, reverse=True)
    if not runs:
        return None
    run, *older = runs
    target = _taken(run, opened)
    if target is not None:
        return target
    end = ended_by(run.folder)
    if end is not None and end.status == JobStatus.FINISHED.value:
        target = None if savepoint_url is None else _last_savepoint(run.job_id, opened(savepoint_url), opened)
        if target is None:
            raise NoCheckpointError(
                f"job {name!r} cannot be resumed: its newest run, {run.job_id}, has finished, and there is no "
                f"savepoint that it was stopped with in {savepoint_url or 'a folder of the configuration'}; {_REMEDY}"
            )
        return target
    if any(path == DISCARDED for path, _ in run.folder.list(CLAIMS)):
        raise NoCheckpointError(
            f"job {name!r} cannot be resumed: its newest run, {run.job_id}, was cancelled, and its checkpoints were "
            f"removed (retain_on_cancel=True keeps the newest); {_REMEDY}"
        )
    if run.started_from is None:
        _refuse_older(name, run, older, opened)
    return run.started_from


def replace_newest_run(name: str, root_url: str, opened: OpenBlobs = open_blobs) -> None:
    """Have the newest run of a job, if it has not ended, complete nothing more: its next run is about to resume it.

    Where its process lives, in another cluster or on the local runtime, it would else write rows beside the next run.

    Args:
        name, root_url, opened: as for `state_to_resume`.
    """
    newest = max(_runs(name, root_url, opened), key=_age, default=None)
    if newest is not None and ended_by(newest.folder) is None:
        store = FolderJobStore(
            root_url,
            newest.job_id,
            name,
            open_blobs=opened,
            started_from=newest.started_from,
            run=newest.token,
            replaces=newest.replaces,
        )
        store.replace(newest.began_ms)


def replaced_by_resuming(name: str, url: str | None, root_url: str, opened: OpenBlobs = open_blobs) -> tuple[str, ...]:
    """Tokens of the runs that the next run of a job replaces, which takes up what the newest run has left.

    Args:
        name, root_url, opened: as for `state_to_resume`.
        url: of what the next run begins with; None: without state. Where the newest run has not ended, or has left
            something else, none is replaced: somebody else has resumed the job at the same time.
    """
    newest = max(_runs(name, root_url, opened), key=_age, default=None)
    if newest is None or ended_by(newest.folder) is None or (_taken(newest, opened) or newest.started_from) != url:
        return ()
    return _given_up(newest, opened)


def replaced_by_starting_from(url: str, job_id: str, root_url: str, opened: OpenBlobs = open_blobs) -> tuple[str, ...]:
    """Tokens of the runs that a run replaces which begins with a checkpoint or savepoint that its user has named.

    Args:
        url: of the checkpoint or savepoint. Where it is not the last thing that the run had left which took it, or that
            run has not ended, none is replaced: it may run on, or be resumed.
        job_id: of the run that took it.
        root_url, opened: as for `state_to_resume`.
    """
    run = _run(job_id, opened(join_url(opened(root_url).url, job_id)))
    if run is None or ended_by(run.folder) is None or _taken(run, opened) != url:
        return ()
    return _given_up(run, opened)


def _given_up(run: _Run, opened: OpenBlobs) -> tuple[str, ...]:
    """Tokens of this run, and of those that it has replaced itself, as far as nothing holds rows of their sinks.

    What is left of the run is the only thing that does. Whoever begins with it commits these rows as it begins.
    """
    taken = _taken(run, opened)
    # A run with a checkpoint of its own has tidied up behind those that it replaced, or its sinks' state says so.
    before = run.replaces if taken is None else ()
    paths = [path for path, _ in run.folder.list()]
    last = None if taken is None else savepoint_of(split_url(taken)[1], run.job_id)
    # It has run on behind another savepoint, which may hold rows, or has removed with its checkpoints what said so.
    may_hold_rows = DISCARDED in paths or any(is_savepoint_mark(path) and used_number(path) != last for path in paths)
    return before if may_hold_rows or not run.token else (run.token, *before)


def _age(run: _Run) -> tuple[int, str]:
    return run.began_ms, run.job_id


def _refuse_older(name: str, run: _Run, older: Sequence[_Run], opened: OpenBlobs) -> None:
    """Let nobody lose or repeat rows unknowingly, where the newest run has nothing and an older one has."""
    for other in older:
        left = _taken(other, opened) or other.started_from
        if left is not None:
            raise NoCheckpointError(
                f"job {name!r} cannot be resumed: its newest run, {run.job_id}, began without state and took no "
                f"checkpoint, and an older run, {other.job_id}, has left {left}; name that to resume from it "
                "(savepoint=, -s PATH), or leave resume out to begin without state"
            )


def _taken(run: _Run, opened: OpenBlobs) -> str | None:
    return stopped_with(run.folder, opened) or _newest_checkpoint(run.folder)


def _runs(name: str, root_url: str, opened: OpenBlobs) -> list[_Run]:
    root = opened(root_url)
    ids = {path.split("/")[0] for path, _ in root.list() if "/" in path}
    runs = []
    for job_id in sorted(ids):
        if not may_be_id_of(job_id, name):
            continue
        run = _run(job_id, opened(join_url(root.url, job_id)), name)
        if run is not None:
            runs.append(run)
    return runs


def _run(job_id: str, folder: BlobStore, name: str | None = None) -> _Run | None:
    """What the newest manager says of the run; None: there is no manager, or the job has another name."""
    claim = newest_claim(folder)
    if not claim or (name is not None and claim.get("job") != name):
        return None
    began_ms, started, token = claim.get("claimed_ms"), claim.get("started_from"), claim.get("run")
    replaces = claim.get("replaces")
    return _Run(
        job_id,
        folder,
        began_ms if isinstance(began_ms, int) else 0,
        started if isinstance(started, str) else None,
        token if isinstance(token, str) else "",
        tuple(map(str, replaces)) if isinstance(replaces, list) else (),
    )


def _newest_checkpoint(folder: BlobStore) -> str | None:
    if not any(manifest_number(path) is not None for path, _ in folder.list()):
        return None
    counted = counted_checkpoints(folder)
    return join_url(folder.url, checkpoint_folder_name(counted[-1].checkpoint)) if counted else None


def _last_savepoint(job_id: str, folder: BlobStore, opened: OpenBlobs) -> str | None:
    """The newest savepoint in a folder that a job was stopped with."""
    names = {path.split("/")[0] for path, _ in folder.list() if path.endswith(f"/{MANIFEST}")}
    found = {number: name for name in names if (number := savepoint_of(name, job_id)) is not None}
    for number in sorted(found, reverse=True):
        url = join_url(folder.url, found[number])
        manifest = decode_manifest(opened(url).get(MANIFEST).to_pybytes(), join_url(url, MANIFEST))
        if manifest.kind is SnapshotKind.SUSPEND:
            return url
    return None
