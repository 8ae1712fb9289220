"""What a task hands to its runtime at a barrier: the captures of its operators, and the rows on their way.

The runtime gives it to a checkpoint writer, in another thread, and acknowledges with the handle that comes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.engine.elements import Barrier, Batch
from penstock.engine.state.capture import OperatorCapture


@dataclass(frozen=True, slots=True)
class TaskCapture:
    """The state of one subtask at a barrier, by reference.

    Args:
        barrier: which checkpoint, for what.
        task, subtask, parallelism: of which.
        operators: uid, name and capture of each operator, the source first.
        in_flight: by exchange and sender (`in_flight_key`), the rows that an unaligned barrier overtook, in the order
            of each channel: those that this subtask was about to send, and those that had come to it.
        finished: whether the subtask's input has ended and it has emitted all it had.
        alignment_ms: how long the barriers of the channels were apart.
        sync_ms: how long the data waited for the capture.
        start_delay_ms: how long the first barrier was on its way, since the checkpoint was triggered.
    """

    barrier: Barrier
    task: int
    subtask: int
    parallelism: int
    operators: Sequence[tuple[str, str, OperatorCapture]]
    in_flight: Mapping[str, Sequence[Batch]] = field(default_factory=dict)
    finished: bool = False
    alignment_ms: float = 0.0
    sync_ms: float = 0.0
    start_delay_ms: float = 0.0


def in_flight_key(exchange: str, sender: int) -> str:
    """What the rows under way are kept by: the exchange, and the subtask that sent them, which sends them again.

    Args:
        exchange: `Exchange.uid`.
        sender: index of the upstream subtask.

    Example:
        >>> in_flight_key("1:source->2:count#0", 3)
        '1:source->2:count#0@3'
    """
    return f"{exchange}@{sender}"


def in_flight_origin(key: str) -> tuple[str, int]:
    """The exchange and the sender of an `in_flight_key`."""
    exchange, _, sender = key.rpartition("@")
    return exchange, int(sender)
