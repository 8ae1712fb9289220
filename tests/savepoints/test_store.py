"""The job's folder: what counts, what is refused, what users find by a path."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.engine.checkpointing.store import Claim, JobStore
from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import CheckpointCorruptError, CheckpointError, FencedError, RestoreError
from penstock.savepoints.paths import DISCARDED, JobPaths
from penstock.savepoints.storage import BlobStore, open_blobs
from penstock.savepoints.store import KEPT_LOGS, FolderJobStore, find_checkpoint
from tests.savepoints.samples import JOB, empty, small

_PATHS = JobPaths(JOB)


@pytest.fixture
def store(folder_url: str) -> FolderJobStore:
    """A new job, once for each kind of storage."""
    return FolderJobStore(folder_url, JOB, "job")


@pytest.fixture
def local(tmp_path: Path) -> FolderJobStore:
    """A new job on a disk."""
    return FolderJobStore(str(tmp_path), JOB, "job")


def _numbers(claim: Claim) -> list[int]:
    return [checkpoint.checkpoint for checkpoint in claim.retained]


def test_a_job_resumes_from_what_was_completed(store: FolderJobStore) -> None:
    manager: JobStore = store
    assert manager.claim() == Claim(1, 1)
    blobs = open_blobs(store.url)
    url = manager.complete(1, small(blobs, 1))
    assert url == f"{store.url}/chk-00000001"
    second = small(blobs, 2)
    manager.complete(1, second)
    claim = manager.claim()
    assert (claim.epoch, claim.next_checkpoint, _numbers(claim)) == (2, 3, [1, 2])
    assert claim.retained[-1] == replace(second, epoch=1)


def test_a_store_survives_pickling(store: FolderJobStore) -> None:
    store.claim()
    again: FolderJobStore = pickle.loads(pickle.dumps(store))
    assert again.claim().epoch == 2


def test_the_old_manager_is_fenced(store: FolderJobStore) -> None:
    store.claim()
    store.claim()
    with pytest.raises(FencedError, match="manager 2 has taken the job over from manager 1"):
        store.complete(1, empty(1))
    store.complete(2, empty(2))


def test_what_a_fenced_manager_completes_does_not_count(store: FolderJobStore) -> None:
    store.claim()
    store.complete(1, empty(1))
    store.claim()
    with pytest.raises(FencedError):
        store.complete(1, empty(7))
    claim = store.claim()
    assert _numbers(claim) == [1]
    assert claim.next_checkpoint == 8


def test_completing_again_after_a_time_out_is_no_error(store: FolderJobStore) -> None:
    store.claim()
    assert store.complete(1, empty(1)) == store.complete(1, empty(1))
    with pytest.raises(CheckpointError, match=r"chk-00000001/manifest.json is there already"):
        store.complete(1, replace(empty(1), attempt=9))


def test_numbers_of_files_and_savepoints_are_not_used_again(store: FolderJobStore) -> None:
    store.claim()
    small(open_blobs(store.url), 5)
    assert store.claim().next_checkpoint == 6
    target = store.savepoint_target(store.savepoint_folder(f"{store.root_url}/savepoints"), 8)
    store.complete(2, small(open_blobs(target), 8, kind=SnapshotKind.SAVEPOINT), target)
    claim = store.claim()
    assert (claim.next_checkpoint, claim.retained) == (9, ())


@pytest.mark.parametrize("damage", ["missing", "shorter"])
def test_the_newest_with_a_damaged_file_is_refused_and_no_older_one_taken(store: FolderJobStore, damage: str) -> None:
    store.claim()
    blobs = open_blobs(store.url)
    store.complete(1, small(blobs, 1))
    newest = small(blobs, 2)
    store.complete(1, newest)
    [file] = newest.files()
    if damage == "missing":
        blobs.delete([file.path])
    else:
        blobs.put(file.path, b"short")
    with pytest.raises(
        CheckpointCorruptError, match=rf"{file.path} (is missing|has 5 bytes).*checkpoint 2 of job 'job'"
    ):
        store.claim()


def test_a_damaged_newest_manifest_is_refused(store: FolderJobStore) -> None:
    store.claim()
    store.complete(1, empty(1))
    store.complete(1, empty(2))
    open_blobs(store.url).put(_PATHS.manifest(2), b"{}")
    with pytest.raises(CheckpointCorruptError, match=r"chk-00000002/manifest.json is not as it was written"):
        store.claim()


def test_a_missing_manifest_that_was_restored_is_refused(store: FolderJobStore) -> None:
    store.claim()
    store.complete(1, empty(1))
    store.complete(1, empty(2))
    store.claim()
    open_blobs(store.url).delete([_PATHS.manifest(2)])
    with pytest.raises(CheckpointCorruptError, match=r"chk-00000002/manifest.json is missing"):
        store.claim()


def test_an_older_manifest_that_is_damaged_harms_nobody(store: FolderJobStore) -> None:
    store.claim()
    store.complete(1, empty(1))
    store.complete(1, empty(2))
    open_blobs(store.url).put(_PATHS.manifest(1), b"{}")
    assert _numbers(store.claim()) == [2]


def test_every_changed_byte_of_what_a_manager_reads_is_found(memory_url: Callable[[], str]) -> None:
    store = FolderJobStore(memory_url(), JOB, "job")
    store.claim()
    store.complete(1, empty(1))
    blobs = open_blobs(store.url)
    kept = {path: blobs.get(path).to_pybytes() for path, _ in blobs.list()}
    for path in (_PATHS.manifest(1), _PATHS.restored(1)):
        for place in range(len(kept[path])):
            changed = bytearray(kept[path])
            changed[place] ^= 1 << (place % 8)
            blobs.put(path, bytes(changed))
            with pytest.raises(CheckpointCorruptError, match=path):
                store.claim()
            blobs.delete([name for name, _ in blobs.list() if name not in kept])
        blobs.put(path, kept[path])
    assert store.claim().epoch == 2


def test_deleting_removes_manifests_and_files_and_twice_is_no_error(store: FolderJobStore) -> None:
    store.claim()
    blobs = open_blobs(store.url)
    old, new = small(blobs, 1), small(blobs, 2, (2,))
    store.complete(1, old)
    store.complete(1, new)
    for _ in range(2):
        store.delete([old], old.files())
    assert _numbers(store.claim()) == [2]
    assert [path for path, _ in blobs.list("shared")] == [file.path for file in new.files()]


class _Order:
    """A store that notes what is deleted, in order."""

    def __init__(self, inner: BlobStore, deleted: list[str]) -> None:
        self._inner = inner
        self._deleted = deleted
        self.url, self.put, self.create, self.get, self.list = inner.url, inner.put, inner.create, inner.get, inner.list

    def delete(self, paths: list[str]) -> None:
        self._deleted.extend(paths)
        self._inner.delete(paths)


def test_manifests_go_before_the_files_they_need(memory_url: Callable[[], str]) -> None:
    deleted: list[str] = []
    store = FolderJobStore(memory_url(), JOB, "job", open_blobs=lambda url: _Order(open_blobs(url), deleted))
    store.claim()
    checkpoint = small(open_blobs(store.url), 1)
    store.complete(1, checkpoint)
    store.delete([checkpoint], checkpoint.files())
    assert deleted == [_PATHS.manifest(1), *(file.path for file in checkpoint.files())]
    deleted.clear()
    store.complete(1, small(open_blobs(store.url), 2))
    store.discard()
    assert deleted[0] == _PATHS.manifest(2)


def test_discard_leaves_nothing_but_that_the_job_has_ended(local: FolderJobStore) -> None:
    local.claim()
    local.complete(1, small(open_blobs(local.url), 1))
    local.finish(1, "finished")
    local.discard()
    local.discard()
    left = [path for path, _ in open_blobs(local.url).list()]
    assert left == [_PATHS.claim(1), _PATHS.ended(1), _PATHS.restored(1), DISCARDED]
    assert local.claim().ended == "finished"


def test_the_next_manager_hears_why_the_job_failed(local: FolderJobStore) -> None:
    local.claim()
    local.finish(1, "failed", "chk-00000003/manifest.json is damaged")
    claim = local.claim()
    assert (claim.ended, claim.message) == ("failed", "chk-00000003/manifest.json is damaged")
    assert local.claim() == replace(claim, epoch=3)


@pytest.mark.parametrize("retains", [False, True])
def test_managers_that_find_the_job_ended_hear_whether_its_checkpoints_stay(
    local: FolderJobStore, retains: bool
) -> None:
    local.claim()
    local.finish(1, "cancelled", retains=retains)
    assert [local.claim().retains for _ in range(2)] == [retains, retains]


def test_who_has_been_replaced_cannot_end_the_job(local: FolderJobStore) -> None:
    local.claim()
    local.claim()
    with pytest.raises(FencedError, match="the end"):
        local.finish(1, "failed")
    assert not [path for path, _ in open_blobs(local.url).list() if path.endswith(".ended")], "nobody hears of it"
    assert local.claim().ended is None


def _suspend(store: FolderJobStore, epoch: int, number: int) -> str:
    target = store.savepoint_target(store.savepoint_folder(f"{store.root_url}/mine"), number)
    return store.complete(epoch, empty(number, SnapshotKind.SUSPEND), target)


def test_a_job_whose_manager_died_behind_its_last_savepoint_has_failed_and_says_how_it_goes_on(
    store: FolderJobStore,
) -> None:
    store.claim()
    store.complete(1, empty(1))
    url = _suspend(store, 1, 2)
    for epoch in (2, 3):
        claim = store.claim()
        assert (claim.epoch, claim.ended, claim.retained) == (epoch, "failed", ())
        assert f"savepoint {url} is complete" in claim.message
        assert claim.message.endswith("start it again from that savepoint")


def test_a_job_that_was_stopped_and_says_so_has_finished(store: FolderJobStore) -> None:
    store.claim()
    _suspend(store, 1, 1)
    store.finish(1, "finished")
    for epoch in (2, 3):
        assert store.claim() == Claim(epoch, 1, (), "finished")


def test_what_a_replaced_manager_completes_late_does_not_hide_that_the_job_was_stopped(store: FolderJobStore) -> None:
    store.claim()
    store.complete(1, empty(1))
    store.claim()
    _suspend(store, 2, 2)
    with pytest.raises(FencedError):
        store.complete(1, empty(3))
    assert store.claim().ended == "failed"


def test_a_job_that_went_on_behind_a_savepoint_that_may_be_there_was_not_stopped(store: FolderJobStore) -> None:
    store.claim()
    _suspend(store, 1, 1)
    store.complete(1, empty(2))
    claim = store.claim()
    assert (claim.ended, _numbers(claim)) == (None, [2])


def test_state_of_single_operators_may_lie_elsewhere(memory_url: Callable[[], str]) -> None:
    elsewhere = memory_url()
    store = FolderJobStore(memory_url(), JOB, "job", storage_overrides=(("op", elsewhere),))
    store.claim()
    checkpoint = small(store._blobs, 1)
    store.complete(1, checkpoint)
    assert _numbers(store.claim()) == [1]
    store.discard()
    assert all(path.startswith("claims/") for path, _ in open_blobs(store.url).list())
    assert open_blobs(elsewhere).list() == []


def test_a_savepoint_is_a_folder_of_its_own(store: FolderJobStore) -> None:
    store.claim()
    target = store.savepoint_target(store.savepoint_folder(f"{store.root_url}/mine"), 3)
    assert target.startswith(f"{store.root_url}/mine/savepoint-{JOB}-00000003-")
    savepoint = small(open_blobs(target), 3, kind=SnapshotKind.SAVEPOINT)
    assert store.complete(1, savepoint, target) == target
    found = find_checkpoint(target)
    assert (found.location, found.checkpoint) == (target, replace(savepoint, epoch=1))


def test_a_savepoint_of_a_fenced_manager_is_not_reported_as_complete(store: FolderJobStore) -> None:
    store.claim()
    target = store.savepoint_target(store.savepoint_folder(f"{store.root_url}/mine"), 1)
    store.claim()
    with pytest.raises(FencedError):
        store.complete(1, empty(1, SnapshotKind.SUSPEND), target)


def test_savepoints_go_to_the_configured_folder(tmp_path: Path) -> None:
    store = FolderJobStore(str(tmp_path), JOB, "job", savepoint_url=str(tmp_path / "saved"))
    assert store.savepoint_folder(None) == (tmp_path / "saved").as_uri()
    assert store.savepoint_folder(str(tmp_path / "asked")) == (tmp_path / "asked").as_uri()


def test_a_savepoint_without_a_folder_is_refused(local: FolderJobStore, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"a savepoint of job 'job' has no folder: name one"):
        local.savepoint_folder(None)
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"a savepoint of job 'job' cannot be written: .*file cannot be written"):
        local.savepoint_folder(str(tmp_path / "file"))
    with pytest.raises(CheckpointError, match=r"no storage is called 'ftp'"):
        local.savepoint_folder("ftp://host")


def test_users_find_a_checkpoint_by_any_of_its_paths(store: FolderJobStore) -> None:
    store.claim()
    blobs = open_blobs(store.url)
    for number in (1, 2):
        store.complete(1, small(blobs, number, (number,)))
    for path, number in (("", 2), ("/", 2), ("/chk-00000001", 1), ("/chk-00000002/manifest.json", 2)):
        found = find_checkpoint(store.url + path)
        assert (found.location, found.checkpoint.checkpoint) == (store.url, number)


def test_users_are_told_what_is_there_instead(local: FolderJobStore, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(RestoreError, match="is no checkpoint or savepoint: it is missing or empty"):
            find_checkpoint(str(path))
    (tmp_path / "a file").write_text("")
    with pytest.raises(RestoreError, match="it is a file; name the folder of a checkpoint or savepoint"):
        find_checkpoint(str(tmp_path / "a file"))
    (tmp_path / "a file").unlink()
    local.claim()
    local.complete(1, small(open_blobs(local.url), 1))
    with pytest.raises(RestoreError, match=rf"name one of the folders in it, {JOB}"):
        find_checkpoint(str(tmp_path))
    small(open_blobs(str(tmp_path / "half")), 1, kind=SnapshotKind.SAVEPOINT)
    with pytest.raises(RestoreError, match=r"has files of state, but no manifest.json: it was not completed"):
        find_checkpoint(str(tmp_path / "half"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "notes.txt").write_text("")
    with pytest.raises(RestoreError, match=r"it holds notes.txt"):
        find_checkpoint(str(tmp_path / "home"))


def test_a_folder_where_no_checkpoint_counts_is_refused(store: FolderJobStore) -> None:
    store.claim()
    store.claim()
    with pytest.raises(FencedError):
        store.complete(1, empty(1))
    with pytest.raises(RestoreError, match=r"has no checkpoint that counts: what is there was completed by a manager"):
        find_checkpoint(store.url)


def test_a_named_checkpoint_with_a_missing_file_is_refused(store: FolderJobStore) -> None:
    store.claim()
    checkpoint = small(open_blobs(store.url), 1)
    url = store.complete(1, checkpoint)
    store.delete([], checkpoint.files())
    with pytest.raises(CheckpointCorruptError, match=next(checkpoint.files()).path):
        find_checkpoint(url)


def test_no_file_is_a_pickle(local: FolderJobStore, tmp_path: Path) -> None:
    local.claim()
    local.complete(1, small(open_blobs(local.url), 1))
    target = local.savepoint_target(local.savepoint_folder(str(tmp_path / "saved")), 2)
    local.complete(1, small(open_blobs(target), 2, kind=SnapshotKind.SAVEPOINT), target)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) == 7
    for file in files:
        data = file.read_bytes()
        assert data.startswith((b"ARROW1", b"{\n")), file
        with pytest.raises((pickle.UnpicklingError, EOFError)):
            pickle.loads(data)


def test_the_code_that_reads_checkpoints_knows_no_pickle() -> None:
    package = Path(__file__).parents[2] / "savepoints"
    for module in package.glob("*.py"):
        text = module.read_text()
        assert not [word for word in ("import pickle", "import cloudpickle", "marshal", "import dill") if word in text]


def test_stimulus_logs_outlive_the_job_and_those_of_old_managers_go(store: FolderJobStore) -> None:
    blobs = store.open_blobs(store.url)
    for epoch in range(1, KEPT_LOGS + 3):
        store.write_log(epoch, 0, b"a")
        store.write_log(epoch, 1, b"b")
    store.write_log(7, 1, b"c")
    store.drop_log(6, 1)
    store.finish(store.claim().epoch, "finished")
    store.discard()
    left = [path for path, _ in blobs.list("log")]
    assert left == [
        f"log/{epoch:08d}-{part:08d}.jsonl.gz" for epoch in range(3, 8) for part in (0, 1) if (epoch, part) != (6, 1)
    ]
    assert blobs.get("log/00000007-00000001.jsonl.gz").to_pybytes() == b"c"
