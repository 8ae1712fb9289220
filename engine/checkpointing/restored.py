"""What a subtask resumes from: its share of a checkpoint or savepoint, read and shared out.

`savepoints/restore.py` makes it from files; the task opens its operators with it. It is the same whether the program,
the parallelism or nothing has changed since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.engine.checkpointing.task_capture import in_flight_origin
from penstock.engine.elements import Batch
from penstock.engine.state.snapshot import OperatorSnapshot


@dataclass(frozen=True, slots=True)
class RestoredTask:
    """What one subtask resumes from.

    Args:
        operators: the snapshot of each operator of the chain by uid (the source's too); one that is missing starts
            fresh, as it was not in the program then.
        in_flight: by the uid of the exchange, the rows to send out of this subtask before anything else.
        finished: whether the task had finished: it emits its end again and nothing more, and finishes nothing twice.
        tracked: whether the subtask's checkpoint writer knows the files of these snapshots, so that the first capture
            may be of changes only.
    """

    operators: Mapping[str, OperatorSnapshot] = field(default_factory=dict)
    in_flight: Mapping[str, Sequence[Batch]] = field(default_factory=dict)
    finished: bool = False
    tracked: bool = False


def share_in_flight(
    parts: Sequence[Mapping[str, Sequence[Batch]]], subtask: int, parallelism: int
) -> dict[str, list[Batch]]:
    """What one of `parallelism` upstream subtasks sends anew: the rows of its own channels, in their order.

    Args:
        parts: the rows under way of each subtask, by `in_flight_key`. Receivers come before senders: what had arrived
            on a channel goes before what had not been sent (the ids of tasks ascend downstream).
        subtask, parallelism: of the restored upstream subtask; old sender i's rows go to i modulo the parallelism.

    Returns:
        By the uid of the exchange, for `RestoredTask.in_flight`.

    Example:
        >>> share_in_flight([{"a->b#0@0": [received]}, {"a->b#0@0": [unsent], "a->b#0@1": [other]}], 0, 2)
        {'a->b#0': [received, unsent]}
    """
    shared: dict[str, list[Batch]] = {}
    for part in parts:
        for key, batches in part.items():
            exchange, sender = in_flight_origin(key)
            if sender % parallelism == subtask:
                shared.setdefault(exchange, []).extend(batches)
    return shared
