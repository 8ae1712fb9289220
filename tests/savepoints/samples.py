"""Checkpoints for tests: one that has everything, and small ones with files that are there."""

from __future__ import annotations

import pyarrow as pa

from penstock.engine.checkpointing.handles import (
    CompletedCheckpoint,
    FileHandle,
    InFlightHandle,
    NativeHandle,
    OperatorHandle,
    SegmentHandle,
    SubtaskHandle,
    TableHandle,
)
from penstock.engine.elements import CheckpointMode, SnapshotKind
from penstock.engine.state.capture import Expiry
from penstock.engine.state.snapshot import Redistribution
from penstock.savepoints.content import digest_of
from penstock.savepoints.paths import JobPaths
from penstock.savepoints.segments import encode_table, write_file
from penstock.savepoints.storage import BlobStore

JOB = "4f2a90ccd1"


def file_of(number: int) -> FileHandle:
    """A handle of a file that is nowhere."""
    digest = digest_of(str(number).encode())
    return FileHandle(JobPaths(JOB).shared(digest, 42, 3, 1, 0, number), 1000 + number, digest)


FULL = CompletedCheckpoint(
    job_id=JOB,
    job_name="delays per é",
    checkpoint=42,
    attempt=3,
    kind=SnapshotKind.SUSPEND,
    mode=CheckpointMode.UNALIGNED,
    max_parallelism=128,
    triggered_ms=1_700_000_000_000,
    completed_ms=1_700_000_000_250,
    subtasks=(
        SubtaskHandle(
            1,
            0,
            2,
            (
                OperatorHandle(
                    "totals",
                    "sum",
                    {
                        "sums": TableHandle(
                            Redistribution.KEYED,
                            ("key", "window"),
                            (SegmentHandle(file_of(1), 10, 0, 63, file_of(6)), SegmentHandle(file_of(2), 2, 5, 5)),
                            Expiry("window", -5),
                        ),
                        "offsets": TableHandle(Redistribution.UNION, (), (SegmentHandle(file_of(3), 1),)),
                    },
                    watermark=-(2**63),
                ),
                OperatorHandle(
                    "cache", "process", native=NativeHandle("rocksdb", {"000012.sst": file_of(4)}, {"sequence": "9"})
                ),
            ),
            (InFlightHandle("totals->sink", file_of(5)),),
        ),
        SubtaskHandle(0, 0, 1, (OperatorHandle("source", "numbers", watermark=2**63 - 1),), finished=True),
    ),
    split_parallelism={"source": 4},
    epoch=2,
)
"""A checkpoint that has everything that one can have."""


def small(
    blobs: BlobStore, number: int, values: tuple[int, ...] = (1,), kind: SnapshotKind = SnapshotKind.CHECKPOINT
) -> CompletedCheckpoint:
    """A checkpoint of one state in one file, which is written."""
    data = encode_table(pa.table({"n": pa.array(values)}))
    digest, paths = digest_of(data), JobPaths(JOB)
    name = paths.shared if kind is SnapshotKind.CHECKPOINT else paths.savepoint_data
    file = write_file(blobs, name(digest, number, 1, 0, 0, 0), data)
    table = TableHandle(Redistribution.SPLIT, (), (SegmentHandle(file, len(values)),))
    subtask = SubtaskHandle(0, 0, 1, (OperatorHandle("op", "op", {"state": table}),))
    return empty(number, kind, (subtask,))


def empty(
    number: int, kind: SnapshotKind = SnapshotKind.CHECKPOINT, subtasks: tuple[SubtaskHandle, ...] = ()
) -> CompletedCheckpoint:
    """A checkpoint without files."""
    return CompletedCheckpoint(JOB, "job", number, 1, kind, CheckpointMode.ALIGNED, 128, 0, 0, subtasks)
