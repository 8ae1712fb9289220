"""The subtasks of a match operator, for tests: rows reach them by key group, and they can be restored and rescaled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engine.clock import ManualClock
from penstock.engine.config import DEFAULTS
from penstock.engine.elements import MAX_TIMESTAMP, Watermark
from penstock.engine.functions import OutputTag
from penstock.engine.metrics import OperatorMetrics
from penstock.engine.operators.base import OperatorContext
from penstock.engine.operators.matching.match_spec import MatchPlan
from penstock.engine.operators.matching.operator import MatchOperator, MatchSpec
from penstock.engine.patterns.compiler import compile_pattern
from penstock.engine.patterns.functions import SelectFunction
from penstock.engine.patterns.limits import NO_LIMITS, MatchLimits
from penstock.engine.patterns.pattern import Pattern
from penstock.engine.state.keys.groups import key_group_range, key_groups
from penstock.engine.state.snapshot import OperatorSnapshot, share
from tests.engine.helpers import RecordingCollector, timed
from tests.engine.state.saved import snapshot_of

TYPES = {"at": pa.int64(), "key": pa.string(), "name": pa.string(), "value": pa.int64(), "number": pa.int64()}
LATE = OutputTag("late")
SLOW = OutputTag("slow", {"text": "string"})
_MAX_PARALLELISM = 128


class MatchJob:
    """Subtasks that look for a pattern in rows of `TYPES`; matches come out as texts, `key|a=1,2;b=3`."""

    def __init__(
        self,
        pattern: Pattern,
        backend: str = "heap",
        parallelism: int = 1,
        is_event_time: bool = True,
        limits: MatchLimits = NO_LIMITS,
    ) -> None:
        compiled = compile_pattern(pattern)
        self._names = compiled.variables
        select = SelectFunction(
            lambda match: {"text": self._text(match)}, lambda match, at: {"text": f"{self._text(match)}@{at}"}, SLOW
        )
        plan = MatchPlan(
            compiled,
            ("key",),
            pa.schema(list(TYPES.items())),
            select,
            pa.schema([("text", pa.string())]),
            is_event_time,
            LATE,
            limits,
        )
        self._spec = MatchSpec(plan)
        self._config = replace(DEFAULTS, state_backend=backend)
        self.clock = ManualClock(1_000)
        self.metrics = OperatorMetrics()
        self._out, self._late, self._slow = RecordingCollector(), RecordingCollector(), RecordingCollector()
        self.operators: list[MatchOperator] = []
        self._start([OperatorSnapshot()], parallelism)

    def _text(self, match: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
        key = next(iter(match.values()))[0]["key"]
        parts = (
            f"{name}={','.join(str(row['number']) for row in match[name])}" for name in self._names if name in match
        )
        return f"{key}|{';'.join(parts)}"

    def _start(self, snapshots: Sequence[OperatorSnapshot], parallelism: int) -> None:
        self.operators = [self._spec.create() for _ in range(parallelism)]
        sides = {LATE.name: self._late, SLOW.name: self._slow}
        for subtask, operator in enumerate(self.operators):
            context = OperatorContext(
                "m", subtask, parallelism, self.clock, self.metrics, config=self._config, sides=sides
            )
            operator.open(context)
            operator.restore(share(snapshots, subtask, parallelism, _MAX_PARALLELISM))

    def limit(self, limits: MatchLimits) -> None:
        """Other limits, from the next start on."""
        self._spec = MatchSpec(replace(self._spec.plan, limits=limits))

    def restart(self, parallelism: int) -> None:
        """Resume from a snapshot, with other subtasks."""
        snapshots = [snapshot_of(operator) for operator in self.operators]
        self.close()
        self._start(snapshots, parallelism)

    def close(self) -> None:
        for operator in self.operators:
            operator.close()

    def rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Process one batch, of which each subtask gets its share."""
        batch = timed(rows, TYPES)
        groups = key_groups([batch.data.column("key")], _MAX_PARALLELISM)
        for subtask, operator in enumerate(self.operators):
            owned = key_group_range(subtask, len(self.operators), _MAX_PARALLELISM)
            mine = np.isin(groups, owned)
            if mine.any():
                operator.process_batch(batch.filter(pa.array(mine)), 0, self._out)

    def advance(self, watermark: int = MAX_TIMESTAMP) -> None:
        for operator in self.operators:
            operator.on_watermark(Watermark(watermark), self._out)

    def tick(self) -> None:
        """The clock has moved: fire what is due."""
        for operator in self.operators:
            due = operator.next_processing_time
            if due is not None and due <= self.clock.now_ms():
                operator.on_processing_time(self.clock.now_ms(), self._out)

    def matches(self) -> list[tuple[str, int | None]]:
        """All matches so far with their timestamps."""
        return list(zip([row["text"] for row in self._out.rows], self._out.timestamps, strict=True))

    def timed_out(self) -> list[str]:
        """All partial matches so far that timed out."""
        texts = [row["text"] for row in self._slow.rows]
        if self._spec.plan.is_event_time:
            assert [f"@{at}" for at in self._slow.timestamps] == [f"@{text.rpartition('@')[2]}" for text in texts]
        return texts

    def late(self) -> list[int]:
        """The numbers of all rows so far that came late."""
        return [row["number"] for row in self._late.rows]


def row(number: int, key: str, name: str, value: int, at: int) -> dict[str, Any]:
    """A row of `TYPES`."""
    return {"at": at, "key": key, "name": name, "value": value, "number": number}
