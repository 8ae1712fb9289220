"""What the engine's own operators capture, and the checkpoint writer writes, is shown in words that users know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from penstock import (
    KeyedProcessFunction,
    MapStateDescriptor,
    ValueStateDescriptor,
    savepoints,
)
from penstock.engine.aggregates import functions as aggregates
from penstock.engine.checkpointing.handles import CompletedCheckpoint
from penstock.engine.checkpointing.task_capture import TaskCapture
from penstock.engine.clock import ManualClock
from penstock.engine.elements import Barrier, Batch, CheckpointMode, SnapshotKind
from penstock.engine.errors import StateError
from penstock.engine.functions import Context, RuntimeContext
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.operators.base import OperatorContext
from penstock.engine.state.capture import CaptureRequest, CaptureScope
from penstock.engine.windows.assigners import tumbling
from penstock.environment import StreamEnvironment
from penstock.savepoints.store import FolderJobStore
from tests.engine.helpers import RecordingCollector, local_environment

MakeUrl = Callable[[], str]
WRITTEN = CheckpointMode.ALIGNED


class Clicks(KeyedProcessFunction):
    def open(self, context: RuntimeContext) -> None:
        self.n = context.get_state(ValueStateDescriptor("n", "int64", default=0))
        self.pages = context.get_map_state(MapStateDescriptor("pages", "int64", key_type="string"))

    def process_element(self, row: dict[str, Any], ctx: Context) -> Iterator[dict[str, Any]]:
        self.n.update(self.n.value() + 1)
        self.pages.put(row["page"], row["at"])
        if row["page"] == "bye":
            self.n.clear()
        ctx.timer_service.register_event_time_timer(row["at"] + 100)
        yield row

    def on_timer(self, timestamp: int, ctx: Context) -> None:
        pass


def stream(env: StreamEnvironment) -> Any:
    rows = env.from_collection([("ann", "a", 1)], schema=["user", "page", "at"]).assign_timestamps("at")
    return rows.key_by("user")


def saved(url: str, build: Callable[[Any], Any], batches: list[list[tuple[str, str, int]]]) -> savepoints.Savepoint:
    """The newest checkpoint of a job whose operator `op` got the batches, with a checkpoint behind each."""
    env = local_environment(1)
    build(stream(env)).uid("op").print()
    graph: PhysicalGraph = env.program("test").physical()
    (task,) = (task for task in graph.tasks if any(one.uid == "op" for one in task.operators))
    (plan,) = (one for one in task.operators if one.uid == "op")
    store = FolderJobStore(url, "job", "clicks")
    claim = store.claim()
    writer = store.writer(graph, task.id, 0, 1, None)
    operator, out = plan.spec.create(), RecordingCollector()
    operator.open(OperatorContext("op", 0, 1, ManualClock(), config=graph.config))
    for number, rows in enumerate(batches, 1):
        columns = dict(zip(["user", "page", "at"], zip(*rows, strict=True), strict=True))
        data = pa.RecordBatch.from_pydict({name: list(values) for name, values in columns.items()})
        operator.process_batch(Batch(data, data.column("at")), 0, out)
        scope = CaptureScope.BASE if number == 1 else CaptureScope.CHANGES
        capture = operator.capture(CaptureRequest(number, scope))
        barrier = Barrier(number, base=number - 1)
        handle = writer.write(TaskCapture(barrier, task.id, 0, 1, [("op", plan.name, capture)]))
        taken = CompletedCheckpoint("job", "clicks", number, 1, SnapshotKind.CHECKPOINT, WRITTEN, 128, 1, 2, (handle,))
        found = store.complete(claim.epoch, taken)
    operator.close()
    return savepoints.read(found)


CLICKS = [
    [("ann", "a", 1), ("bob", "a", 2), *((f"u{n}", "x", 3) for n in range(50))],
    [("ann", "b", 5), ("bob", "bye", 6)],
    [("cat", "a", 7)],
]


def test_keyed_state_that_was_written_by_changes(memory_url: MakeUrl) -> None:
    found = saved(memory_url(), lambda keyed: keyed.process(Clicks), CLICKS).operator("op")
    assert len(found.state("n")._parts[0].table.segments) > 1
    n = {row["user"]: row["value"] for row in found.state("n").to_arrow().to_pylist() if row["user"][0] != "u"}
    assert n == {"ann": 2, "cat": 1}
    assert found.state("n").rows == 52
    assert found.state("pages").get("ann") == {"a": 1, "b": 5}
    assert found.state("pages").kind is savepoints.StateKind.MAP
    timers = found.timers()
    assert timers.column_names == ["user", "time", "kind"]
    assert timers.filter(pa.compute.field("user") == "cat")["time"].cast(pa.int64()).to_pylist() == [107]
    assert timers.num_rows == 55


def test_a_copy_of_such_a_checkpoint_holds_the_same(memory_url: MakeUrl) -> None:
    found = saved(memory_url(), lambda keyed: keyed.process(Clicks), CLICKS)
    made = savepoints.write(found, memory_url())
    assert savepoints.diff(found, made).is_empty
    assert all(len(part.table.segments) == 1 for state in made.operator("op").all_states for part in state._parts)


def test_accumulators_of_a_running_aggregate(memory_url: MakeUrl) -> None:
    found = saved(
        memory_url(), lambda keyed: keyed.aggregate(n=aggregates.count(), latest=aggregates.sum("at")), CLICKS
    )
    (state,) = found.operator("op").states
    assert (state.kind, state.key_columns) == (savepoints.StateKind.AGGREGATE, ("user",))
    assert state.where(user="ann").to_pylist() == [{"user": "ann", "count(*)": 2, "sum(at)": 6}]
    assert state.get("ann") == {"count(*)": 2, "sum(at)": 6}
    assert state.get("nobody") is None


def test_accumulators_of_windows(memory_url: MakeUrl) -> None:
    def build(keyed: Any) -> Any:
        return keyed.window(tumbling("4ms")).aggregate(n=aggregates.count())

    state = saved(memory_url(), build, CLICKS).operator("op").state("window_aggregate")
    assert state.key_columns == ("user",)
    rows = state.where(user="ann").sort_by("slice_start")
    assert rows["slice_start"].cast(pa.int64()).to_pylist() == [0, 4]
    assert state.identity == ("user", "slice_start")
    with pytest.raises(StateError, match="belongs to windows"):
        state.get("ann")
