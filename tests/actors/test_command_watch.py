"""Recorded commands, with a job of this process: each is done once, and forgotten when it is done or refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.actors import command_watch as module
from penstock.actors.command_watch import CommandWatch
from penstock.actors.recorded_commands import new_command, record, recorded
from penstock.engine.errors import CheckpointError
from penstock.engine.job import events as ev
from tests.actors.notes import InMemory


class FakeShell:
    """A job that answers, or refuses; it has ended once it was asked for something, if `ends`."""

    name = "orders"

    def __init__(self, answer: Any = True, ends: bool = True) -> None:
        self.asked: list[ev.Command] = []
        self.brain = SimpleNamespace(is_coming_back=False)
        self.report: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.changed = asyncio.Event()
        self._answer = answer
        self._ends = ends

    async def change(self) -> None:
        await self.changed.wait()

    async def ask(self, command: ev.Command) -> Any:
        self.asked.append(command)
        await asyncio.sleep(0)
        if self._ends and not self.report.done():
            self.report.set_result(None)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0)


def run(use: Callable[[InMemory], Awaitable[Any]]) -> Any:
    notes = InMemory()

    async def main() -> Any:
        return await asyncio.wait_for(use(notes), 30)

    return asyncio.run(main()), list(recorded(notes, "manager"))


def test_a_command_that_comes_twice_is_done_once_and_answers_both() -> None:
    command = new_command("stop", "file:///savepoints")

    async def use(notes: InMemory) -> Any:
        record(notes, "manager", command)
        shell: Any = FakeShell("file:///savepoints/1")
        watch = CommandWatch(shell, notes, "manager")
        return await asyncio.gather(watch.obey(command), watch.obey(command)), shell.asked

    (answers, asked), left = run(use)
    assert answers == ["file:///savepoints/1"] * 2
    assert (asked, left) == ([ev.StopJob("file:///savepoints")], [])


@pytest.mark.parametrize(
    ("method", "asked"),
    [
        ("cancel", ev.CancelJob()),
        ("suspend", ev.CancelJob(retain=True)),
        ("stop", ev.StopJob(None)),
        ("drain", ev.DrainJob(None)),
    ],
)
def test_a_command_whose_call_never_came_is_found_and_done(method: Any, asked: ev.Command) -> None:
    async def use(notes: InMemory) -> Any:
        record(notes, "manager", new_command(method))
        record(notes, "another manager", new_command("cancel"))
        shell: Any = FakeShell()
        await CommandWatch(shell, notes, "manager").run()
        while notes.names("command:manager:"):
            await asyncio.sleep(0)
        return shell.asked

    assert run(use) == ([asked], [])


def test_commands_are_found_again_when_the_head_of_the_cluster_was_away() -> None:
    async def use(notes: InMemory) -> Any:
        record(notes, "manager", new_command("cancel"))
        away, names = iter([True, True]), notes.names

        def asked_for(prefix: str) -> Sequence[str]:
            if next(away, False):
                raise ConnectionError("the head is away")
            return names(prefix)

        notes.names = asked_for  # type: ignore[method-assign]
        shell: Any = FakeShell()
        await CommandWatch(shell, notes, "manager").run()
        return shell.asked

    assert run(use)[0] == [ev.CancelJob()]


def test_a_savepoint_waits_until_the_job_runs_again_and_a_cancel_does_not() -> None:
    async def use(notes: InMemory) -> Any:
        shell: Any = FakeShell(ends=False)
        shell.brain.is_coming_back = True
        record(notes, "manager", new_command("stop"))
        record(notes, "manager", new_command("cancel"))
        looking = asyncio.ensure_future(CommandWatch(shell, notes, "manager").run())
        while len(notes.texts) > 1:
            await asyncio.sleep(0)
        before = list(shell.asked)
        shell.brain.is_coming_back = False
        shell.changed.set()
        while notes.texts:
            await asyncio.sleep(0)
        shell.report.set_result(None)
        await looking
        return before, shell.asked

    (before, after), _ = run(use)
    assert (before, after) == ([ev.CancelJob()], [ev.CancelJob(), ev.StopJob(None)])


def test_a_late_command_that_is_refused_is_a_line_of_the_log_and_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    async def use(notes: InMemory) -> None:
        record(notes, "manager", new_command("drain"))
        shell: Any = FakeShell(CheckpointError("no checkpoints are configured"))
        await CommandWatch(shell, notes, "manager").run()
        while notes.texts or "refused" not in caplog.text:
            await asyncio.sleep(0)

    assert run(use) == (None, [])
    assert "job 'orders': the recorded command 'drain' was refused: no checkpoints" in caplog.text
