"""Manifests: read as written, readable by people, and refused if a single byte is not as it was."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock.savepoints.manifest as manifest_module
from penstock.engine.checkpointing.handles import JobStory, Size
from penstock.engine.checkpointing.history import CheckpointRecord
from penstock.engine.checkpointing.instructions import AbortReason
from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import CheckpointCorruptError, RestoreError
from penstock.engine.graph.scale import Scale
from penstock.savepoints.manifest import decode_manifest, encode_manifest, seal
from penstock.savepoints.paths import digits_of
from tests.savepoints.samples import FULL, empty

_WHERE = "s3://bucket/job/chk-00000042/manifest.json"
_DATA = encode_manifest(FULL)


def test_a_checkpoint_comes_back() -> None:
    assert decode_manifest(_DATA, _WHERE) == FULL
    assert decode_manifest(encode_manifest(empty(1)), _WHERE) == empty(1)


def test_the_story_of_the_job_comes_back_and_costs_a_few_hundred_bytes() -> None:
    record = CheckpointRecord(42, SnapshotKind.CHECKPOINT, 1_000_001, 1_700_000_000_000, 0.12, 4, 4, Size(26_300, 900))
    told = dataclasses.replace(FULL, story=JobStory(42, 1, (record.to_text(),) * 5))
    data = encode_manifest(told)
    assert decode_manifest(data, _WHERE) == told
    assert len(data) - len(_DATA) < 600
    assert CheckpointRecord.from_text(record.to_text()) == record
    aborted = dataclasses.replace(record, reason=AbortReason.TIMEOUT, message="missing: task 1\nand more")
    assert CheckpointRecord.from_text(aborted.to_text()) == dataclasses.replace(aborted, message="missing: task 1")


def test_what_a_job_is_to_have_that_runs_smaller_comes_back() -> None:
    smaller = dataclasses.replace(FULL, scale=Scale(None, (("sink", 3), ("totals", 4)), most=1))
    assert decode_manifest(encode_manifest(smaller), _WHERE) == smaller


@pytest.mark.parametrize("text", ["", "[]", "{}", "[1]", '[1,"nothing",1,1,1,1,1,1,1]'])
def test_what_another_version_tells_of_a_checkpoint_is_passed_over(text: str) -> None:
    assert CheckpointRecord.from_text(text) is None


def test_equal_checkpoints_have_equal_manifests() -> None:
    assert encode_manifest(decode_manifest(_DATA, _WHERE)) == _DATA


def test_people_and_tools_can_read_it() -> None:
    content = json.loads(_DATA)
    assert [name for name in content if name != "sha256"] == sorted(content.keys() - {"sha256"})
    assert (content["format"], content["checkpoint"], content["kind"]) == (2, 42, "suspend")
    assert (content["files"], content["bytes"]) == (6, 6021)
    assert content["penstock"]
    lines = _DATA.decode().splitlines()
    subtasks = [line for line in lines if line.startswith("  ")]
    assert [json.loads(line.removesuffix(",")) for line in subtasks] == content["subtasks"]
    assert len(lines) == len(content) + len(subtasks) + 3  # the braces, and the bracket behind the subtasks


def test_every_flipped_bit_is_refused_with_the_files_name() -> None:
    for place in range(len(_DATA)):
        for bit in range(8):
            changed = bytearray(_DATA)
            changed[place] ^= 1 << bit
            with pytest.raises(CheckpointCorruptError, match=_WHERE):
                decode_manifest(bytes(changed), _WHERE)


def test_every_truncation_is_refused() -> None:
    for length in range(len(_DATA)):
        with pytest.raises(CheckpointCorruptError, match=_WHERE):
            decode_manifest(_DATA[:length], _WHERE)


@given(st.integers(0, len(_DATA)), st.binary(min_size=1, max_size=4))
def test_every_insertion_is_refused(place: int, more: bytes) -> None:
    with pytest.raises(CheckpointCorruptError, match=_WHERE):
        decode_manifest(_DATA[:place] + more + _DATA[place:], _WHERE)


@given(st.binary(max_size=200))
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(CheckpointCorruptError, match=_WHERE):
        decode_manifest(data, _WHERE)


def _sealed(text: str) -> bytes:
    """Text with a last line as manifests have."""
    head = text.removesuffix("\n}") + ",\n"
    return (head + manifest_module._last_line(head.encode())).encode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1", "is no JSON"),
        ('{"a": ' + "[" * 100_000 + "\n}", "is no JSON"),
        ('{"format": "1"\n}', "has no format number"),
        ('{"format": true\n}', "has no format number"),
        ('{"format": 0\n}', "has no format number"),
        ('{"format": 1\n}', "the manifest must have the members attempt, bytes, "),
        ('{"format": ' + "9" * 5000 + "\n}", "is no JSON"),
    ],
)
def test_what_is_sealed_but_no_manifest_is_refused(text: str, message: str) -> None:
    with pytest.raises(CheckpointCorruptError, match=rf"{_WHERE} {message}|{_WHERE} .*{message}"):
        decode_manifest(_sealed(text), _WHERE)


def test_files_of_a_manifest_of_format_1_have_a_sha256() -> None:
    def older(value: Any) -> Any:
        if isinstance(value, list):
            return [older(one) for one in value]
        if not isinstance(value, dict):
            return value
        return {("sha256" if name == "digest" else name): older(one) for name, one in value.items()}

    content = older(json.loads(_DATA.replace(b"blake3:", b"")))
    del content["sha256"]
    found = decode_manifest(seal({**content, "format": 1}), _WHERE)
    expected = {file.path: f"sha256:{digits_of(file.digest)}" for file in FULL.files()}
    assert {file.path: file.digest for file in found.files()} == expected
    # A checkpoint behind it refers to the same files.
    assert decode_manifest(encode_manifest(found), _WHERE) == found


def test_a_newer_format_asks_for_a_newer_penstock() -> None:
    with pytest.raises(RestoreError, match=rf"{_WHERE} has format 3, written by Penstock 9.1.*upgrade penstock"):
        decode_manifest(seal({"format": 3, "penstock": "9.1", "unknown": {}}), _WHERE)


def _nodes(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, inner in items for found in _nodes(inner, (*path, key)))]


_CONTENT = {name: value for name, value in json.loads(_DATA).items() if name != "sha256"}


@pytest.mark.parametrize("path", [path for path in _nodes(_CONTENT) if path], ids=str)
def test_a_value_of_another_type_is_refused_with_its_place(path: tuple[Any, ...]) -> None:
    content = json.loads(json.dumps(_CONTENT))
    holder = content
    for key in path[:-1]:
        holder = holder[key]
    for wrong in (1.5, [[]], True if not isinstance(holder[path[-1]], bool) else 1, {"no": 1.5}):
        holder[path[-1]] = wrong
        with pytest.raises((CheckpointCorruptError, RestoreError), match=_WHERE):
            decode_manifest(seal(content), _WHERE)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("checkpoint",), 0, "checkpoint is 0, which is less than 1"),
        (("kind",), "backup", "kind must be one of checkpoint, savepoint, suspend"),
        (("bytes",), 1, "number of files or bytes"),
        (("triggered_ms",), 2**63, "whole number of 64 bits"),
        (("subtasks", 0, "subtask"), -1, r"subtasks\[0\].subtask is -1"),
        (("subtasks", 0, "in_flight", 0, "file", "path"), "../../etc/passwd", "is no path"),
        (("subtasks", 0, "in_flight", 0, "file", "path"), "/etc/passwd", "is no path"),
        (("subtasks", 0, "in_flight", 0, "file", "digest"), "blake3:" + "AB" * 32, "digest is no digest by"),
        (("subtasks", 0, "in_flight", 0, "file", "digest"), "md5:" + "ab" * 32, "digest is no digest by"),
        (("subtasks", 1), _CONTENT["subtasks"][0], r"subtask \(1, 0\) occurs twice"),
        (("subtasks", 0, "subtask"), 2, r"subtasks\[0\].subtask is 2, of a parallelism of 2"),
        (("subtasks", 0, "operators", 1), _CONTENT["subtasks"][0]["operators"][0], "operator totals occurs twice"),
        (
            ("subtasks", 0, "operators", 0, "tables", "sums", "segments", 1),
            _CONTENT["subtasks"][0]["operators"][0]["tables"]["sums"]["segments"][0],
            "sums: file .* occurs twice",
        ),
        (("subtasks", 0, "operators", 0, "tables", "sums", "segments", 0, "rows"), 2**62, "cannot hold"),
        (("subtasks", 0, "more"), 1, r"subtasks\[0\] must have the members finished, in_flight"),
    ],
)
def test_a_value_that_cannot_be_is_refused(path: tuple[Any, ...], value: object, message: str) -> None:
    content = json.loads(json.dumps(_CONTENT))
    holder = content
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    with pytest.raises(CheckpointCorruptError, match=message):
        decode_manifest(seal(content), _WHERE)


def test_a_member_that_occurs_twice_is_refused() -> None:
    head = _DATA[: _DATA.rindex(b' "sha256"')].replace(b"{\n", b'{\n "attempt": 9,\n', 1)
    digest = hashlib.sha256(head).hexdigest()
    resealed = head + f' "sha256": "{digest}"\n}}\n'.encode()
    with pytest.raises(CheckpointCorruptError, match="member 'attempt' occurs twice"):
        decode_manifest(resealed, _WHERE)


def test_a_file_that_is_far_too_large_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_module, "LARGEST", 100)
    with pytest.raises(CheckpointCorruptError, match=f"{_WHERE} has {len(_DATA)} bytes; a manifest has at most 100"):
        decode_manifest(_DATA, _WHERE)
