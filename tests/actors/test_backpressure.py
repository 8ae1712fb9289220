"""A slow subtask on Ray: it bounds what is under way, and holds back nobody but its own producers."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest

from penstock import DataGenSource, Sequence, StreamEnvironment
from penstock.engine.operators.base import OperatorContext

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster", "no_leak")]

ROWS = 20_000
BATCH = 500
CREDITS = 3


class FirstSubtaskWaits:
    """Passes rows on; subtask 0 only once a file is there."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def open(self, context: OperatorContext) -> None:
        self.waits = context.subtask == 0

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        while self.waits and not self.path.exists():
            time.sleep(0.01)  # the slowness under test, not a wait for a result
        return batch


def test_a_stuck_subtask_bounds_what_is_under_way_and_does_not_starve_its_sibling(tmp_path: Path) -> None:
    gate = tmp_path / "open"
    env = StreamEnvironment(parallelism=2, max_batch_rows=BATCH, channel_credits=CREDITS, buffer_timeout="0ms")
    source = env.from_source(DataGenSource({"n": Sequence()}, rows=ROWS)).disable_chaining()
    results = source.map_batches(FirstSubtaskWaits(str(gate)), returns={"n": "int64"}).collect()
    job = env.submit("stuck")
    seen: set[int] = set()
    for row in results:
        seen.add(row["n"])
        # Subtask i reads every second row, from i on: the sibling's rows are the odd ones.
        if len(seen) == ROWS // 2:
            produced = job.metrics().operators[0].rows_out
            gate.touch()
            assert all(n % 2 for n in seen)
            # Taken by the stuck function, under way within credits, and waiting in the sender's buffer.
            assert produced - len(seen) <= BATCH + CREDITS * BATCH + 2 * BATCH
    assert len(seen) == ROWS
