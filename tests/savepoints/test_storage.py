"""Storage: the same promises on a disk, in memory and in a bucket."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.engine.errors import CheckpointCorruptError, CheckpointError, ConfigurationError
from penstock.savepoints.content import Data, Pieces
from penstock.savepoints.storage import (
    BlobExistsError,
    BlobStore,
    LocalBlobs,
    RetryingBlobs,
    RetryPolicy,
    TransientStorageError,
    check_writable,
    normalise_url,
    open_blobs,
    redact,
)


def test_what_is_put_is_there(blobs: BlobStore) -> None:
    blobs.put("shared/one.arrow", b"1")
    blobs.put("shared/two.arrow", pa.py_buffer(b"22"))
    blobs.put("chk-1/manifest.json", Pieces(()))
    assert blobs.get("shared/two.arrow").to_pybytes() == b"22"
    assert blobs.list() == [("chk-1/manifest.json", 0), ("shared/one.arrow", 1), ("shared/two.arrow", 2)]
    assert blobs.list("shared") == [("shared/one.arrow", 1), ("shared/two.arrow", 2)]
    assert blobs.list("share") == []


def test_put_replaces(blobs: BlobStore) -> None:
    blobs.put("a", b"old")
    blobs.put("a", b"new")
    assert blobs.get("a").to_pybytes() == b"new"


def test_create_refuses_another_content_and_recognises_its_own(blobs: BlobStore) -> None:
    blobs.create("claims/00000001", b"mine")
    blobs.create("claims/00000001", b"mine")
    with pytest.raises(BlobExistsError, match="claims/00000001 is there already"):
        blobs.create("claims/00000001", b"theirs")
    assert blobs.get("claims/00000001").to_pybytes() == b"mine"


def test_one_of_many_rivals_creates(blobs: BlobStore) -> None:
    won = []

    def rival(number: int) -> None:
        try:
            blobs.create("claims/00000001", str(number).encode())
        except BlobExistsError:
            return
        won.append(number)

    rivals = [threading.Thread(target=rival, args=(number,)) for number in range(8)]
    for thread in rivals:
        thread.start()
    for thread in rivals:
        thread.join()
    assert [str(number).encode() for number in won] == [blobs.get("claims/00000001").to_pybytes()]


def test_a_missing_blob_is_named(blobs: BlobStore) -> None:
    with pytest.raises(CheckpointCorruptError, match=rf"{blobs.url}/shared/gone.arrow is missing"):
        blobs.get("shared/gone.arrow")


def test_deleting_what_is_gone_is_no_error_and_the_rest_goes(blobs: BlobStore) -> None:
    for name in ("a/1", "a/2", "b"):
        blobs.put(name, b"x")
    blobs.delete(["a/1", "a/nothing", "nowhere/nothing", "a/2"])
    assert blobs.list() == [("b", 1)]
    blobs.delete([])
    assert blobs.list() == [("b", 1)]


def test_an_empty_folder_lists_nothing(blobs: BlobStore) -> None:
    assert blobs.list() == []


def test_a_store_survives_pickling(blobs: BlobStore) -> None:
    blobs.put("a", b"1")
    again: BlobStore = pickle.loads(pickle.dumps(blobs))
    assert again.url == blobs.url
    assert again.get("a").to_pybytes() == b"1"


@pytest.mark.parametrize("length", [11 << 20, (11 << 20) + 7])
def test_blobs_larger_than_one_part(blobs: BlobStore, length: int) -> None:
    data = os.urandom(length)
    blobs.put("large", data)
    assert blobs.get("large").to_pybytes() == data
    cuts = [0, 1, 1, 700_000, 5 << 20, (5 << 20) + 3, length]
    parts = tuple(pa.py_buffer(data[begin:end]) for begin, end in itertools.pairwise(cuts))
    blobs.put("pieces", Pieces(parts))
    assert blobs.get("pieces").to_pybytes() == data


@pytest.mark.parametrize("path", ["../out", "/out", "a/../../out", ""])
def test_no_path_leaves_the_folder(blobs: BlobStore, path: str) -> None:
    for call in (lambda: blobs.put(path, b""), lambda: blobs.get(path), lambda: blobs.delete([path])):
        with pytest.raises(CheckpointError, match="is no path"):
            call()


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    root = tmp_path / "root"
    root.mkdir()
    (root / "file").symlink_to(tmp_path / "secret")
    (root / "folder").symlink_to(tmp_path)
    blobs = open_blobs(str(root))
    for path in ("file", "folder/secret"):
        with pytest.raises(CheckpointError, match="link out of the folder"):
            blobs.get(path)
        with pytest.raises(CheckpointError, match="link out of the folder"):
            blobs.put(path, b"overwritten")
    with pytest.raises(CheckpointError, match="link out of the folder"):
        blobs.delete(["folder/secret"])
    blobs.delete(["file"])
    assert not (root / "file").is_symlink()
    assert (tmp_path / "secret").read_text() == "secret"


def test_a_folder_reached_by_a_link_is_as_good_as_any(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    open_blobs(str(tmp_path / "link")).put("a/b", b"1")
    assert (tmp_path / "real/a/b").read_bytes() == b"1"


_WRITER = """
import os, sys
from penstock.savepoints import storage
blobs = storage.open_blobs(sys.argv[1])
write = os.fsync
def killed(handle):
    os.kill(os.getpid(), 9)
os.fsync = killed
getattr(blobs, sys.argv[2])("chk-1/manifest.json", b"x" * 1000)
"""


@pytest.mark.parametrize("method", ["put", "create"])
def test_a_killed_writer_leaves_no_half_file(tmp_path: Path, method: str) -> None:
    (tmp_path / "chk-1").mkdir()
    ended = subprocess.run([sys.executable, "-c", _WRITER, str(tmp_path), method], check=False)
    assert ended.returncode == -signal.SIGKILL
    left = [path for path, _ in open_blobs(str(tmp_path)).list()]
    assert len(left) == 1
    assert left[0].startswith("chk-1/.partial-")


def test_deleting_leaves_no_empty_folders(tmp_path: Path) -> None:
    blobs = open_blobs(str(tmp_path / "root/job"))
    blobs.put("chk-1/manifest.json", b"1")
    blobs.delete(["chk-1/manifest.json"])
    assert not (tmp_path / "root/job").exists()
    assert (tmp_path / "root").exists()


def test_a_folder_that_cannot_be_read_does_not_pass_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: object = ".") -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(CheckpointError, match="cannot be listed: Permission denied"):
        open_blobs(str(tmp_path)).list()


def test_a_full_disk_is_named_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"a cannot be written: No space left on device; the disk is full"):
        LocalBlobs(str(tmp_path)).put("a", b"1")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_found_beforehand(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigurationError, match=r"file/sub cannot be written: .* choose another folder"):
        check_writable(open_blobs(str(tmp_path / "file/sub")))


def test_checking_leaves_nothing(blobs: BlobStore) -> None:
    check_writable(blobs)
    assert blobs.list() == []


def test_a_missing_bucket_is_named(s3_bucket: str) -> None:
    blobs = open_blobs("s3://no-such-bucket/folder")
    for call in (lambda: check_writable(blobs), lambda: blobs.list()):
        with pytest.raises(
            (ConfigurationError, CheckpointError),
            match=rf"s3://no-such-bucket/folder.* check the bucket.* of the process on {socket.gethostname()}",
        ):
            call()


def test_no_message_shows_credentials(s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckpointError) as caught:
        open_blobs("s3://no-such-bucket-either").put("a", b"1")
    assert "of-the-test" not in str(caught.value)
    assert "secret" not in redact("GET https://user:secret@host/x?X-Amz-Signature=secret failed")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "is empty"),
        ("fiel://bucket/x", r"no storage is called 'fiel' \(did you mean 'file'\?\)"),
        ("hdfs://host/x", "use one of file://, s3://"),
        ("s3://", "names no bucket"),
        ("memory:///x", "names no name"),
        ("s3://user:secret@bucket/x", r"s3://bucket/x: credentials .* in the environment"),
        ("s3://bucket/x?token=secret", r"\?\.\.\.: credentials"),
        ("file://host/x", "names the host 'host'"),
        ("s3://bucket/../x", "is no path"),
    ],
)
def test_a_url_that_cannot_be_used_says_what_can(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        open_blobs(url)
    assert "secret" not in str(caught.value)


def test_every_spelling_of_a_folder_becomes_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    url = (tmp_path / "a b").as_uri()
    for spelling in ("a b", "./x/../a b", str(tmp_path / "a b"), url, f"{url}/", "file:a b"):
        assert normalise_url(spelling) == url
    assert normalise_url("s3://bucket//a/") == "s3://bucket/a"
    open_blobs("a b").put("x", b"1")
    assert (tmp_path / "a b" / "x").read_bytes() == b"1"


def test_memory_is_shared_by_name() -> None:
    open_blobs("memory://shared-by-name/a").put("x", b"1")
    assert open_blobs("memory://shared-by-name").list() == [("a/x", 1)]
    assert open_blobs("memory://another-name").list() == []


@dataclass
class _Flaky:
    """Fails `failures` times before, or after, it does what it is asked for."""

    inner: BlobStore
    failures: int
    is_done_before: bool = False
    calls: list[str] = field(default_factory=list)
    url: str = "flaky://"

    def _fail(self, name: str) -> None:
        self.calls.append(name)
        if self.failures:
            self.failures -= 1
            raise TransientStorageError(f"{name}: the storage does not answer")

    def put(self, path: str, data: Data) -> None:
        self._fail("put")
        self.inner.put(path, data)

    def create(self, path: str, data: Data) -> None:
        if self.is_done_before:
            self.inner.create(path, data)
        self._fail("create")
        self.inner.create(path, data)

    def get(self, path: str) -> pa.Buffer:
        self._fail("get")
        return self.inner.get(path)

    def list(self, prefix: str = "") -> Sequence[tuple[str, int]]:
        self._fail("list")
        return self.inner.list(prefix)

    def delete(self, paths: Iterable[str]) -> None:
        self._fail("delete")
        self.inner.delete(paths)


_AT_ONCE = RetryPolicy(attempts=3, first_s=0, largest_s=0)


def test_transient_errors_are_tried_again(tmp_path: Path) -> None:
    for call in (
        lambda blobs: blobs.put("b", b"1"),
        lambda blobs: blobs.create("c", b"1"),
        lambda blobs: blobs.get("b"),
        lambda blobs: blobs.list(),
        lambda blobs: blobs.delete(path for path in ["b"]),
    ):
        call(RetryingBlobs(_Flaky(LocalBlobs(str(tmp_path)), failures=2), _AT_ONCE))
    assert [path for path, _ in LocalBlobs(str(tmp_path)).list()] == ["c"]


def test_retries_end(tmp_path: Path) -> None:
    flaky = _Flaky(LocalBlobs(str(tmp_path)), failures=99)
    with pytest.raises(CheckpointError, match="does not answer"):
        RetryingBlobs(flaky, _AT_ONCE).put("a", b"1")
    assert flaky.calls == ["put"] * 3


def test_who_is_patient_tries_as_often_as_there_is_time_for_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flaky = _Flaky(LocalBlobs(str(tmp_path)), failures=50)
    RetryingBlobs(flaky, RetryPolicy(attempts=3, first_s=0, largest_s=0, seconds=60)).put("a", b"1")
    assert flaky.calls == ["put"] * 51
    assert caplog.text.count("the storage is tried again for up to 60 s: put: the storage does not answer") == 1


def test_lasting_errors_are_not_tried_again(tmp_path: Path) -> None:
    flaky = _Flaky(LocalBlobs(str(tmp_path)), failures=0)
    with pytest.raises(CheckpointCorruptError):
        RetryingBlobs(flaky, _AT_ONCE).get("nothing")
    assert flaky.calls == ["get"]


def test_a_create_that_succeeded_but_timed_out_has_succeeded(tmp_path: Path) -> None:
    flaky = _Flaky(LocalBlobs(str(tmp_path)), failures=1, is_done_before=True)
    RetryingBlobs(flaky, _AT_ONCE).create("a", b"mine")
    assert (tmp_path / "a").read_bytes() == b"mine"


def test_a_server_that_does_not_answer_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-key")
    blobs = open_blobs("s3://unreachable-bucket/x")
    assert isinstance(blobs, RetryingBlobs)
    with pytest.raises(TransientStorageError, match="s3://unreachable-bucket/x/a cannot be written") as caught:
        blobs.inner.put("a", b"1")
    assert "secret-key" not in str(caught.value)
