"""The subtasks of one keyed operator, run by hand: asked for their state as those of a running job are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engine.clock import ManualClock
from penstock.engine.elements import Batch
from penstock.engine.errors import StateNotReadyError
from penstock.engine.operators.base import OperatorContext
from penstock.engine.state.capture import CaptureRequest, CaptureScope
from penstock.engine.state.keys.groups import key_groups, subtask_of
from penstock.engine.state.request import StateRequest
from penstock.savepoints.live_rows import LiveRows, ScanFilter, rendered_rows, stored_name
from penstock.savepoints.live_state import LiveState
from tests.engine.helpers import RecordingCollector, local_environment

Build = Callable[[Any], Any]
COLUMNS = ["user", "page", "at"]


class RunByHand:
    """The subtasks of one operator, which get the rows of their keys; see `Subtasks`."""

    max_parallelism = 128

    def __init__(self, build: Build, parallelism: int = 3, **settings: Any) -> None:
        env = local_environment(1, **settings)
        stream = env.from_collection([("ann", "a", 1)], schema=COLUMNS).assign_timestamps("at")
        build(stream.key_by("user")).uid("op").print()
        graph = env.program("test").physical()
        (plan,) = (one for task in graph.tasks for one in task.operators if one.uid == "op")
        self.keys = plan.spec.traits.keys[0]
        self.parallelism = parallelism
        self.asked: list[int] = []
        self.away = 0
        self.operators = [plan.spec.create() for _ in range(parallelism)]
        self.contexts = [
            OperatorContext("op", subtask, parallelism, ManualClock(), config=graph.config)
            for subtask in range(parallelism)
        ]
        for operator, context in zip(self.operators, self.contexts, strict=True):
            operator.open(context)

    def take(self, rows: Sequence[tuple[str, str, int]]) -> RunByHand:
        data = pa.RecordBatch.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in rows])
        owners = subtask_of(key_groups([data.column("user")], 128), self.parallelism, 128)
        for subtask, operator in enumerate(self.operators):
            own = data.filter(pa.array(np.asarray(owners) == subtask))
            if own.num_rows:
                operator.process_batch(Batch(own, own.column("at")), 0, RecordingCollector())
        return self

    def read(self, asked: Mapping[int, pa.RecordBatch | None], state: str, wanted: ScanFilter) -> list[LiveRows | None]:
        if self.away:
            self.away -= 1
            raise StateNotReadyError("away")
        self.asked += asked
        return [self.of(subtask, keys, state, wanted) for subtask, keys in asked.items()]

    def of(self, subtask: int, keys: pa.RecordBatch | None, state: str, wanted: ScanFilter) -> LiveRows | None:
        captured = self.operators[subtask].read_state(StateRequest(state, keys))
        name = stored_name(state, list(captured))
        return None if name is None else rendered_rows(name, captured[name], keys, wanted)

    def saved(self, state: str) -> pa.Table:
        """What a savepoint would show of all subtasks."""
        shares = [one.capture(CaptureRequest(1, CaptureScope.COMPLETE)).tables[state] for one in self.operators]
        return pa.concat_tables([rendered_rows(state, share, None, ScanFilter()).data for share in shares])

    def state(self, name: str, patience: float = 0) -> LiveState:
        return LiveState(f"state {name!r}", name, lambda: self, patience)
