"""Checkpoints with rows in them, written by hand as a job's would be."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.engine.checkpointing.handles import (
    CompletedCheckpoint,
    OperatorHandle,
    SegmentHandle,
    SubtaskHandle,
    TableHandle,
)
from penstock.engine.elements import CheckpointMode, SnapshotKind
from penstock.engine.state.capture import DELETED, Expiry
from penstock.engine.state.keys.groups import key_group_range
from penstock.engine.state.snapshot import KEY_GROUP, Redistribution, keyed_table, rows_of_groups
from penstock.savepoints.content import digest_of
from penstock.savepoints.manifest import encode_manifest
from penstock.savepoints.paths import JobPaths
from penstock.savepoints.segments import encode_table, write_file
from penstock.savepoints.storage import open_blobs

GROUPS = 8
IDENTITY = ("user", "__start", "__end")
_NUMBERS = itertools.count()


def totals(rows: dict[str, int | None]) -> pa.Table:
    """Segment of a value state `total` of key `user`; None deletes (a segment without None is a base)."""
    data = {
        "user": pa.array(list(rows), pa.string()),
        "__start": pa.nulls(len(rows), pa.int64()),
        "__end": pa.nulls(len(rows), pa.int64()),
        "value": pa.array(list(rows.values()), pa.int64()),
    }
    if None in rows.values():
        data[DELETED] = pa.array([value is None for value in rows.values()])
    return keyed_table(pa.table(data), ["user"], GROUPS).data


def checkpoint(
    url: str, segments: Sequence[pa.Table], parallelism: int = 1, shared: bool = False, expiry: Expiry | None = None
) -> str:
    """Write checkpoint 3 of a job, whose operator "totals" has one keyed state; returns the URL of its folder.

    Args:
        url: of the job's folder.
        segments: of the state, oldest first.
        parallelism: of the operator.
        shared: whether all subtasks refer to the same segments, as after a rescale, or each to its own rows.
        expiry: of the state.
    """
    blobs, subtasks = open_blobs(url), []

    def write(table: pa.Table) -> SegmentHandle:
        data = encode_table(table)
        digest = digest_of(data)
        file = write_file(blobs, JobPaths("job").shared(digest, 3, 1, 0, 0, next(_NUMBERS)), data, digest)
        groups = table.column(KEY_GROUP).to_pylist()
        return SegmentHandle(file, len(groups), *((groups[0], groups[-1]) if groups else (-1, -1)))

    whole = [write(table) for table in segments] if shared else []
    for subtask in range(parallelism):
        owned = key_group_range(subtask, parallelism, GROUPS)
        own = whole if shared else [write(rows_of_groups(table, owned)) for table in segments]
        table = TableHandle(Redistribution.KEYED, IDENTITY, tuple(own), expiry)
        subtasks.append(SubtaskHandle(0, subtask, parallelism, (OperatorHandle("totals", "sum", {"total": table}),)))
    return complete(url, subtasks)


def complete(url: str, subtasks: Sequence[SubtaskHandle], **fields: Any) -> str:
    """Write the manifest of checkpoint 3."""
    taken = CompletedCheckpoint(
        "job", "sums", 3, 1, SnapshotKind.CHECKPOINT, CheckpointMode.ALIGNED, GROUPS, 1_000, 2_000, tuple(subtasks)
    )
    open_blobs(url).create(JobPaths("job").manifest(3), encode_manifest(replace(taken, **fields)))
    return f"{url}/chk-00000003"
