"""Paths: unique, safe, and taken apart as they were formed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.errors import CheckpointError
from penstock.savepoints.paths import (
    JobPaths,
    check_path,
    checkpoint_folder,
    claim_epoch,
    job_folder,
    join_url,
    manifest_number,
    restored_epoch,
    split_url,
    used_number,
)

_PATHS = JobPaths("4f2a90ccd1")
_HASH = "ab" * 32


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "..",
        "../x",
        "shared/../../x",
        "a//b",
        "a/",
        "./a",
        "a\\b",
        "a\0b",
        "a b",
        "é",
        "a" * 300,
        "%2e%2e/x",
    ],
)
def test_a_path_that_could_leave_its_folder_is_refused(path: str) -> None:
    with pytest.raises(CheckpointError, match=r"s3://bucket/job: .* is no path"):
        check_path(path, "s3://bucket/job")


@given(st.text(max_size=12))
def test_whatever_passes_names_one_place_within_the_folder(text: str) -> None:
    try:
        check_path(text, "memory://x")
    except CheckpointError:
        return
    assert not text.startswith("/")
    assert not {"", ".", ".."} & set(text.split("/"))


@pytest.mark.parametrize("number", [1, 42, 99_999_999, 123_456_789_012])
def test_numbers_come_back(number: int) -> None:
    assert manifest_number(_PATHS.manifest(number)) == number
    assert used_number(_PATHS.manifest(number)) == number
    assert used_number(_PATHS.savepoint_number(number)) == number
    assert used_number(_PATHS.shared(_HASH, number, 3, 2, 1, 0)) == number
    assert used_number(_PATHS.savepoint_data(_HASH, number, 3, 2, 1, 0)) == number
    assert claim_epoch(_PATHS.claim(number)) == number
    assert restored_epoch(_PATHS.restored(number)) == number
    assert checkpoint_folder(f"chk-{number:08d}") == number


def test_one_kind_of_path_is_not_taken_for_another() -> None:
    claim, restored, manifest = _PATHS.claim(2), _PATHS.restored(2), _PATHS.manifest(2)
    assert [claim_epoch(path) for path in (restored, manifest)] == [None, None]
    assert [restored_epoch(path) for path in (claim, manifest)] == [None, None]
    assert [manifest_number(path) for path in (claim, restored, _PATHS.savepoint_number(2))] == [None, None, None]
    assert used_number(claim) is None
    assert checkpoint_folder(_PATHS.new_savepoint(2)) is None


def test_file_names_sort_and_read_as_documented() -> None:
    assert _PATHS.manifest(42) == "chk-00000042/manifest.json"
    assert _PATHS.shared(_HASH, 42, 3, 2, 1, 7) == f"shared/{_HASH}-42-3-2-1-7.arrow"
    assert _PATHS.new_savepoint(42).startswith("savepoint-4f2a90ccd1-00000042-")


def test_two_savepoints_never_share_a_folder() -> None:
    assert _PATHS.new_savepoint(1) != _PATHS.new_savepoint(1)


def test_all_paths_are_safe() -> None:
    for path in (
        _PATHS.manifest(1),
        _PATHS.claim(1),
        _PATHS.shared(_HASH, 1, 1, 1, 1, 1, "sst"),
        _PATHS.new_savepoint(1),
    ):
        assert check_path(path, "here") == path


@pytest.mark.parametrize("job_id", ["..", "a/b", "", "a b"])
def test_a_job_id_that_is_no_folder_is_refused(job_id: str) -> None:
    with pytest.raises(CheckpointError):
        job_folder("s3://bucket/root", job_id)


def test_urls_are_joined_and_split() -> None:
    assert join_url("s3://bucket/", "a", "b") == "s3://bucket/a/b"
    assert split_url("s3://bucket/a/b/") == ("s3://bucket/a", "b")
    assert split_url("file:///a") == ("file:///", "a")
