"""What is seen of a job on Ray, with processes that are none: counters while it runs, routes while it is whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.actors import job_watch as module
from penstock.actors.client_view import ClientView
from penstock.actors.job_view import JobView
from penstock.actors.job_watch import JobWatch
from penstock.actors.stacks import SampledStack
from penstock.engine.errors import JobError, StateNotReadyError
from penstock.engine.graph.explain import explain_physical
from penstock.engine.job import events as ev
from penstock.engine.job.info import EventTimeWait
from penstock.engine.job.layout import GraphPlanner
from tests.actors.fakes import program_of

A = (1, 0)


class FakeShell:
    """A job whose brain says what it is told to."""

    name = "orders"

    def __init__(self, **brain: Any) -> None:
        usual = {
            "runs": True,
            "is_whole": True,
            "ended": False,
            "checkpoints": None,
            "completed": 4,
            "layout": None,
            "since_ms": 1,
        }
        self.brain = SimpleNamespace(**{**usual, **brain})
        self.brain.attempts = SimpleNamespace(number=7, restored=3, deployed={A: (7, 3)})
        self.brain.runs_anew = lambda seen: self.brain.is_whole and seen < 7
        self.graph = program_of().physical()
        self.execution = SimpleNamespace(
            actors={A: "actor"}, attempts={A: 7}, last_metrics=["last"], metrics=self._metrics, leave=self._leave
        )
        self.report: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.changed = asyncio.Event()
        self.heard: list[ev.Event] = []
        self.looks = 0

    def planner(self) -> GraphPlanner:
        return GraphPlanner(program_of())

    async def _metrics(self) -> list[str]:
        return ["now"]

    def _leave(self, nodes: Any) -> list[Any]:
        self.looks += 1
        return [A] if nodes else []

    async def change(self) -> None:
        await self.changed.wait()

    def handle(self, event: ev.Event) -> None:
        self.heard.append(event)


def run(use: Callable[[Any], Any], **brain: Any) -> Any:
    async def main() -> Any:
        return await asyncio.wait_for(use(FakeShell(**brain)), 30)

    return asyncio.run(main())


def test_processes_are_asked_for_their_counters_while_the_job_runs() -> None:
    assert run(lambda shell: JobView(shell).metrics()) == ["now"]
    assert run(lambda shell: JobView(shell).metrics(), runs=False) == ["last"]


def test_the_autoscaler_reads_nothing_of_a_job_that_does_not_run() -> None:
    assert run(lambda shell: JobView(shell).reading(), runs=False) is None


def test_a_job_that_does_not_run_has_no_rates_to_preview_a_rescale_by() -> None:
    with pytest.raises(StateNotReadyError, match="does not run now"):
        run(lambda shell: JobView(shell).previews([3], 0.0), runs=False)


@pytest.mark.parametrize(
    ("brain", "error"),
    [
        ({"ended": True, "is_whole": False}, (JobError, "'orders' has ended")),
        ({"is_whole": False}, (StateNotReadyError, "does not run just now")),
    ],
)
def test_routes_are_those_of_a_job_that_runs_as_a_whole(brain: Any, error: tuple[type[Exception], str]) -> None:
    async def use(shell: Any) -> None:
        for route in (JobView(shell).state_route, JobView(shell).stream_route):
            with pytest.raises(error[0], match=error[1]):
                route("numbers")

    run(use, **brain)


def test_the_plan_that_runs_is_told_as_the_program_tells_it() -> None:
    async def use(shell: Any) -> tuple[str, str]:
        return JobView(shell).explain(), explain_physical(shell.graph)

    told, wanted = run(use)
    assert told == wanted
    assert told.startswith("task 1 x")


def test_all_subtasks_of_a_task_are_looked_at_together_and_one_that_dies_hides_no_other() -> None:
    async def use(shell: Any) -> Any:
        async def stacks(place: tuple[int, int], seconds: float) -> list[SampledStack]:
            if place == (1, 3):
                raise JobError("no process")
            return [SampledStack(("task-loop", "f"), 3, 2), SampledStack(("task-loop", f"g{place[1]}"), 1, 1)]

        shell.execution.stacks = stacks
        shell.execution.actors = {(task, subtask): "actor" for task in (1, 2) for subtask in range(4)}
        together = await JobView(shell).stacks(1, None, 0.1)
        shell.execution.actors = {(1, 3): "actor"}
        with pytest.raises(JobError, match="no process"):
            await JobView(shell).stacks(1, None, 0.1)
        shell.execution.actors = {(1, subtask): "actor" for subtask in range(100, 1700)}
        return together, await JobView(shell).stacks(1, None, 0.1)

    together, many = run(use)
    assert together[0] == SampledStack(("task-loop", "f"), 9, 6)
    assert {one.stack[1] for one in together} == {"f", "g0", "g1", "g2"}
    assert many[0].count == 3 * 32


def test_a_client_waits_for_the_next_attempt_and_is_told_where_its_rows_are() -> None:
    async def use(shell: Any) -> tuple[bool, ClientView | None]:
        waiting = asyncio.ensure_future(JobView(shell).client_view([shell.graph.tasks[0].outputs[0].result], 6))
        await asyncio.sleep(0)
        has_waited = not waiting.done()
        shell.brain.is_whole = True
        shell.changed.set()
        return has_waited, await waiting

    has_waited, view = run(use, is_whole=False)
    assert has_waited
    assert view is not None
    assert (view.attempt, view.restored, view.completed) == (7, 3, 4)
    assert [(one.place, one.actor, one.attempt, one.restored) for one in view.channels] == [(A, "actor", 7, 3)]


def test_a_client_that_waits_is_told_of_the_end() -> None:
    async def use(shell: Any) -> ClientView | None:
        waiting = asyncio.ensure_future(JobView(shell).client_view([1], 7))
        await asyncio.sleep(0)
        shell.report.set_result(None)
        shell.changed.set()
        return await waiting

    assert run(use) is None


@pytest.mark.parametrize("runs", [True, False])
def test_the_brain_hears_of_subtasks_on_nodes_that_leave_while_the_job_runs(
    monkeypatch: pytest.MonkeyPatch, runs: bool
) -> None:
    """A head of the cluster that is away for a moment ends nothing."""
    monkeypatch.setattr(module, "_NODES_SECONDS", 0)
    monkeypatch.setattr(module, "_EVENT_TIME_SECONDS", 0)

    async def use(shell: Any) -> list[ev.Event]:
        asked = 0

        def leaving() -> set[str]:
            nonlocal asked
            asked += 1
            if asked == 1:
                raise OSError("the head is away")
            if asked == 3:
                shell.report.set_result(None)
            return {"node"}

        monkeypatch.setattr(module, "leaving_nodes", leaving)
        await JobWatch(shell, JobView(shell), 0).run()
        return list(shell.heard)

    assert run(use, runs=runs) == ([ev.Leaving((A,))] * 2 if runs else [])


def test_where_windows_wait_is_told_of_the_attempt_that_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_EVENT_TIME_SECONDS", 0)
    monkeypatch.setattr(module, "has_event_time", lambda graph: True)
    monkeypatch.setattr(module, "leaving_nodes", set)
    wait = EventTimeWait("windows", 0, "clicks", 0, 5, 5, 0)
    began: list[int] = []

    async def use(shell: Any) -> list[tuple[EventTimeWait, ...]]:
        watch = JobWatch(shell, JobView(shell), 0)
        watching = asyncio.ensure_future(watch.run())
        while not watch.waits:
            await asyncio.sleep(0)
        told = [watch.waits]
        shell.brain.runs = False
        told.append(watch.waits)
        shell.brain.runs, shell.brain.since_ms = True, 2
        told.append(watch.waits)
        shell.report.set_result(None)
        await watching
        return told

    monkeypatch.setattr(module.EventTimeWatch, "begin", lambda watch, began_ms: began.append(began_ms))
    monkeypatch.setattr(module.EventTimeWatch, "look", lambda *given: (wait,))
    assert run(use) == [(wait,), (), ()]
    assert began[0] == 1
