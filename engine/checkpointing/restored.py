"""What a subtask goes on from: its share of a checkpoint or savepoint, read and shared out.

`savepoints/restore.py` makes it from files; the task opens its operators with it. It is the same whether the program,
the parallelism or nothing has changed since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.engine.elements import Batch
from penstock.engine.state.snapshot import OperatorSnapshot


@dataclass(frozen=True, slots=True)
class RestoredTask:
    """What one subtask goes on from.

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
