"""The shell of the job brain on Ray, with processes that are none: what is done of what the brain says, and told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from ray.exceptions import RayActorError

from penstock.actors import brain_shell
from penstock.actors.brain_shell import BrainShell
from penstock.actors.client_view import JobReport
from penstock.engine.connectors import ConnectorContext, Sink, SinkWriter
from penstock.engine.errors import (
    CheckpointError,
    ClusterError,
    ConfigurationError,
    PenstockError,
    RecordError,
    WorkerLostError,
)
from penstock.engine.job import events as ev
from penstock.engine.job.status import JobStatus
from tests.actors.fakes import program_of

A = (1, 0)


class FakeExecution:
    """Processes that do what they are told; `deploy` gives what it is told to, or fails, and `stop` `not_closed`."""

    last_metrics = ()

    def __init__(self, deploy: Any = True, not_closed: PenstockError | None = None) -> None:
        self.calls: list[str] = []
        self.closing_seconds = 0.0
        self._deploy = deploy
        self._not_closed = not_closed

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any) -> Any:
            self.calls.append(name)
            if name == "deploy" and isinstance(self._deploy, Exception):
                raise self._deploy
            return self._deploy

        return call

    async def stop(self, seconds: float) -> PenstockError | None:
        self.calls.append("stop")
        self.closing_seconds = seconds
        return self._not_closed

    def remove_old(self) -> None:
        self.calls.append("remove_old")

    def fill_standbys(self) -> None:
        self.calls.append("fill_standbys")

    def kill(self) -> None:
        self.calls.append("kill")


class SlowStart(FakeExecution):
    """Processes that are there once they have `started`, which is waited for as for real ones."""

    def __init__(self) -> None:
        super().__init__()
        self.awaited, self.started = asyncio.Event(), asyncio.Event()

    async def provide(self, *arguments: Any) -> None:
        self.calls.append("provide")
        self.awaited.set()
        await asyncio.wait_for(self.started.wait(), 30)


class SlowSink(Sink):
    """Is being made ready from `asked` on, until it `may_end`."""

    def __init__(self) -> None:
        self.asked, self.may_end, self.is_ready = threading.Event(), threading.Event(), False

    def prepare(self) -> None:
        self.asked.set()
        self.is_ready = self.may_end.wait(30)

    def open(self, context: ConnectorContext) -> SinkWriter:
        raise AssertionError("nothing runs here")

    def describe(self) -> str:
        return "slow"


class LockedSink(SlowSink):
    """Is never ready."""

    def prepare(self) -> None:
        raise ConfigurationError("the table is locked")


def run(use: Callable[[BrainShell], Awaitable[Any]], execution: FakeExecution, *sinks: Sink) -> Any:
    """What `use` gives of a job that has begun, and takes no checkpoints."""

    async def main() -> Any:
        shell = BrainShell("job", program_of(sinks=sinks), None)
        shell.execution = execution  # type: ignore[assignment]
        running = asyncio.ensure_future(shell.run())
        try:
            return await asyncio.wait_for(use(shell), 30)
        finally:
            running.cancel()

    return asyncio.run(main())


async def until_running(shell: BrainShell) -> None:
    while not shell.brain.runs:
        await shell.change()


def test_a_job_runs_to_its_end_and_says_how_it_ended() -> None:
    async def use(shell: BrainShell) -> JobStatus:
        await until_running(shell)
        shell.handle(ev.TaskFinished(A, shell.brain.attempts.number))
        return (await shell.report).status

    execution = FakeExecution()
    assert run(use, execution) is JobStatus.FINISHED
    assert execution.calls == ["remove_old", "provide", "deploy", "stop"]


def test_a_job_that_cannot_be_closed_has_not_finished_and_has_long_for_it() -> None:
    async def use(shell: BrainShell) -> JobReport:
        await until_running(shell)
        shell.handle(ev.TaskFinished(A, shell.brain.attempts.number))
        return await shell.report

    execution = FakeExecution(not_closed=WorkerLostError("the last rows could not be written"))
    report = run(use, execution)
    assert (report.status, str(report.error)) == (JobStatus.FAILED, "the last rows could not be written")
    assert execution.closing_seconds > 60


def test_what_a_cancelled_job_cannot_close_changes_nothing_and_is_not_waited_for() -> None:
    async def use(shell: BrainShell) -> JobStatus:
        await until_running(shell)
        await shell.ask(ev.CancelJob())
        return (await shell.report).status

    execution = FakeExecution(not_closed=WorkerLostError("the last rows could not be written"))
    assert run(use, execution) is JobStatus.CANCELLED
    assert execution.closing_seconds < 10


def test_what_prevents_a_deployment_ends_a_job_that_cannot_restart_and_names_it() -> None:
    async def use(shell: BrainShell) -> Any:
        return (await shell.report).error

    error = run(use, FakeExecution(ClusterError("no room for 4 slots")))
    assert isinstance(error, ClusterError)
    assert "no room for 4 slots" in str(error)


def test_a_process_that_dies_while_it_is_deployed_is_a_lost_worker() -> None:
    async def use(shell: BrainShell) -> Any:
        return (await shell.report).error

    assert isinstance(run(use, FakeExecution(RayActorError())), WorkerLostError)


def test_a_job_is_cancelled_once_and_says_so() -> None:
    async def use(shell: BrainShell) -> tuple[bool, bool, JobStatus]:
        await until_running(shell)
        first = await shell.ask(ev.CancelJob())
        return first, await shell.ask(ev.CancelJob()), (await shell.report).status

    execution = FakeExecution()
    assert run(use, execution) == (True, False, JobStatus.CANCELLED)
    assert execution.calls[-1] == "stop"


def test_a_job_that_is_cancelled_as_its_processes_come_touches_no_sink_and_deploys_nothing() -> None:
    sink, execution = SlowSink(), SlowStart()

    async def use(shell: BrainShell) -> JobStatus:
        await execution.awaited.wait()
        execution.started.set()
        await shell.ask(ev.CancelJob())
        return (await shell.report).status

    assert run(use, execution, sink) is JobStatus.CANCELLED
    assert (execution.calls, sink.asked.is_set()) == (["remove_old", "provide", "stop"], False)


def test_a_job_that_is_cancelled_while_a_sink_is_made_ready_ends_behind_that() -> None:
    sink, execution = SlowSink(), FakeExecution()

    async def use(shell: BrainShell) -> tuple[bool, JobStatus, bool]:
        await asyncio.to_thread(sink.asked.wait)
        cancelling = asyncio.ensure_future(shell.ask(ev.CancelJob()))
        for _ in range(20):
            await asyncio.sleep(0)
        ended_before = shell.report.done()
        sink.may_end.set()
        await cancelling
        return ended_before, (await shell.report).status, sink.is_ready

    assert run(use, execution, sink) == (False, JobStatus.CANCELLED, True)
    assert execution.calls == ["remove_old", "provide", "stop"]


def test_a_sink_that_cannot_be_made_ready_ends_the_job_at_once() -> None:
    async def use(shell: BrainShell) -> JobReport:
        return await shell.report

    execution = FakeExecution()
    report = run(use, execution, LockedSink())
    assert (report.status, "the table is locked" in str(report.error)) == (JobStatus.FAILED, True)
    assert "deploy" not in execution.calls


def test_a_sink_that_is_never_ready_holds_up_the_end_of_its_job_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(brain_shell, "_PREPARE_SECONDS", 0.01)
    sink, execution = SlowSink(), FakeExecution()

    async def use(shell: BrainShell) -> JobStatus:
        await asyncio.to_thread(sink.asked.wait)
        await shell.ask(ev.CancelJob())
        status = (await shell.report).status
        assert not sink.is_ready
        sink.may_end.set()
        return status

    assert run(use, execution, sink) is JobStatus.CANCELLED
    assert execution.calls == ["remove_old", "provide", "stop"]
    assert "a sink is still being made ready" in caplog.text


def test_what_a_job_refuses_is_raised_where_it_was_asked() -> None:
    async def use(shell: BrainShell) -> None:
        await until_running(shell)
        await shell.ask(ev.TakeSavepoint(None))

    with pytest.raises(CheckpointError, match="no checkpoint storage"):
        run(use, FakeExecution())


def test_an_error_of_a_function_that_no_restart_mends_ends_the_job() -> None:
    async def use(shell: BrainShell) -> Any:
        await until_running(shell)
        shell.handle(ev.TaskFailed(A, shell.brain.attempts.number, RecordError("row 7 has no key")))
        return await shell.report

    execution = FakeExecution()
    report = run(use, execution)
    assert (report.status, "row 7 has no key" in str(report.error)) == (JobStatus.FAILED, True)
