"""What the coordinator knows of the attempt that runs, and of the checkpoints that were asked for, with their barriers.

Values alone: the rules are the coordinator's.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.engine.checkpoint_config import CheckpointConfig
from penstock.engine.checkpointing.instructions import Place
from penstock.engine.elements import Barrier, CheckpointMode, SnapshotKind


class Drain(enum.Enum):
    """How far an attempt has been drained."""

    NONE = enum.auto()
    BEGUN = enum.auto()
    """Sources end one after another: a checkpoint would have some of them finished, and others not."""
    ENDED = enum.auto()
    """All subtasks have finished: what is taken now has the whole input."""


@dataclass(slots=True)
class Attempt:
    """The attempt that runs.

    Args:
        number, places: which, and its subtasks.
        split_parallelism: as in `CompletedCheckpoint`.
        due: when the next periodic checkpoint is to be triggered, were there nothing against it; monotonic seconds,
            infinity where none is taken.
        failing: whether it is about to end, as too many checkpoints failed.
        drain: how far it has been drained.
    """

    number: int
    places: tuple[Place, ...]
    split_parallelism: Mapping[str, int]
    due: float
    failing: bool = False
    drain: Drain = Drain.NONE


@dataclass(frozen=True, slots=True)
class Request:
    """A checkpoint or savepoint that is to be triggered.

    Args:
        number, kind: which; whoever asked for it knows the number.
        directory: of a savepoint: where the user wants it.
        requested: when, monotonic seconds.
        replaced: as in `Barrier`.
    """

    number: int
    kind: SnapshotKind
    directory: str | None
    requested: float
    replaced: frozenset[int] = frozenset()


def barrier_of(request: Request, config: CheckpointConfig, base: int) -> Barrier:
    """The barrier of a checkpoint that is triggered; `base` as there."""
    if request.kind is not SnapshotKind.CHECKPOINT:
        return Barrier(request.number, CheckpointMode.ALIGNED, request.kind)
    if request.replaced:
        return Barrier(request.number, CheckpointMode.ALIGNED, request.kind, base, replaced=request.replaced)
    mode, patience = config.mode, config.alignment_timeout_ms
    if patience is not None:
        # As in Flink, it begins aligned where there is a time-out to become unaligned by, unless that is 0.
        mode = CheckpointMode.ALIGNED if patience else CheckpointMode.UNALIGNED
    return Barrier(request.number, mode, request.kind, base, patience)
