"""A function resumes from the captures of its state, timers and event time as from a snapshot; nothing is dropped."""

from __future__ import annotations

import pytest

from penstock.engine.errors import StateError
from penstock.engine.functions import Context, KeyedProcessFunction, ProcessFunction, Row, Rows, RuntimeContext
from penstock.engine.operators.functions.keyed_process import KeyedProcessSpec
from penstock.engine.operators.functions.keyed_reduce import KeyedReduceSpec
from penstock.engine.operators.functions.process import ProcessSpec
from penstock.engine.operators.spec import OperatorSpec
from penstock.engine.state.capture import CaptureRequest, CaptureScope
from penstock.engine.state.descriptors import ListStateDescriptor, ValueStateDescriptor
from tests.engine.operators.functions.functions import Running, RunningSum, at
from tests.engine.state.saved import Saved, contents, snapshot_of

CHANGES, BASE, _, _ = (CaptureRequest(1, scope) for scope in CaptureScope)


class Remember(KeyedProcessFunction):
    """Counts the rows of each key, tells the count 10 ms of event time later, and keeps how often it was saved."""

    def open(self, context: RuntimeContext) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", "int64", default=0))
        self.saved = context.get_operator_list_state(ListStateDescriptor("saved", "int64"))

    def process_element(self, row: Row, ctx: Context) -> Rows:
        self.count.update(self.count.value() + 1)
        ctx.timer_service.register_event_time_timer(row["at"] + 10)

    def on_timer(self, timestamp: int, ctx: Context) -> Rows:
        yield {"key": ctx.current_key, "count": self.count.value()}

    def snapshot_state(self) -> None:
        self.saved.update([*self.saved.get(), 1])


REMEMBER = KeyedProcessSpec(Remember(), ("key",), timed=True)
REDUCE = KeyedReduceSpec(lambda one, other: {**one, "at": one["at"] + other["at"]}, ("key",), timed=True)


def fill(job: Running) -> None:
    job.process(at({"key": f"filler{number}", "at": 1000} for number in range(50)))


@pytest.mark.parametrize("spec", [REMEMBER, REDUCE], ids=["process", "reduce"])
def test_changes_add_up_to_what_a_snapshot_holds(spec: OperatorSpec) -> None:
    job, saved = Running(spec), Saved()
    saved.take(job.operator.capture(CHANGES))
    fill(job)
    saved.take(job.operator.capture(BASE))
    for step in range(3):
        job.process(at({"key": key, "at": step} for key in ("a", "b", f"c{step}")))
        job.advance(step + 9)
        capture = job.operator.capture(CHANGES)
        saved.take(capture)
        keyed = [table for table in capture.tables.values() if table.identity]
        assert keyed
        assert all(table.is_changes and table.rows().num_rows < 10 for table in keyed)
        expected = {name: rows for name, rows in contents(snapshot_of(job.operator)).items() if name != "saved"}
        job.process(at([{"key": "later", "at": 100}]))
        held = saved.snapshot()
        assert {name: rows for name, rows in contents(held).items() if name != "saved"} == expected
        assert held.watermark == step + 9
        job = Running(spec, restored=held)


def test_a_function_is_asked_for_its_state_before_a_capture() -> None:
    job = Running(REMEMBER)
    fill(job)
    for request in (BASE, CHANGES):
        capture = job.operator.capture(request)
    assert capture.tables["saved"].rows().column("value").to_pylist() == [1, 1]


def test_timers_of_a_restored_function_fire_in_the_order_of_registration() -> None:
    job, saved = Running(REMEMBER), Saved()
    names = [f"k{number}" for number in range(30)]
    job.process(at({"key": name, "at": 0} for name in names[:20]))
    saved.take(job.operator.capture(BASE))
    job.process(at({"key": name, "at": 0} for name in names[20:]))
    saved.take(job.operator.capture(CHANGES))
    again = Running(REMEMBER, restored=saved.snapshot())
    assert [row["key"] for row in again.advance(10)] == names


def test_state_of_a_function_that_declares_less_is_kept_for_one_that_declares_it_again() -> None:
    job = Running(REMEMBER)
    job.process(at([{"key": "a", "at": 0}]))
    fewer = Running(KeyedProcessSpec(RunningSum(), ("key",), timed=True), restored=snapshot_of(job.operator))
    fewer.process(at([{"key": "b", "at": 0, "n": 1}]))
    saved = Saved()
    saved.take(fewer.operator.capture(BASE))
    saved.take(fewer.operator.capture(CHANGES))
    again = Running(REMEMBER, restored=saved.snapshot())
    again.process(at([{"key": "a", "at": 1}]))
    assert again.advance(11)[-1] == {"key": "a", "count": 2}


class Pass(ProcessFunction):
    def process_element(self, row: Row, ctx: Context) -> Rows:
        return [row]


def test_state_of_keys_is_refused_where_there_are_none() -> None:
    job = Running(REMEMBER)
    fill(job)
    with pytest.raises(StateError, match=r"count belongs to keys, .* none now; call key_by as before, .* another uid"):
        Running(ProcessSpec(Pass(), timed=True), restored=snapshot_of(job.operator))


def test_state_of_another_operator_is_refused_by_reduce() -> None:
    job = Running(REMEMBER)
    fill(job)
    with pytest.raises(StateError, match=r"holds __event_timers, count, saved, which reduce does not keep"):
        Running(REDUCE, restored=snapshot_of(job.operator))
