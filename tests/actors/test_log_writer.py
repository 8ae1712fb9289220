"""The writer of the stimulus log on Ray's side, with a storage of its own and no cluster."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Sequence

import pytest

from penstock.actors import log_writer
from penstock.actors.log_writer import LogWriter
from penstock.engine.errors import CheckpointError
from penstock.engine.job import events as ev
from tests.engine.job.shell import Shell


class Storage:
    """Keeps parts, refuses the first writes, and answers when it may."""

    def __init__(self, refused: Sequence[Exception] = ()) -> None:
        self.parts: dict[tuple[int, int], bytes] = {}
        self.may_answer = threading.Event()
        self.may_answer.set()
        self._refused = list(refused)

    def write_log(self, epoch: int, part: int, data: bytes) -> None:
        self.may_answer.wait()
        if self._refused:
            raise self._refused.pop(0)
        self.parts[epoch, part] = data

    def drop_log(self, epoch: int, part: int) -> None:
        del self.parts[epoch, part]

    def events(self) -> int:
        """How many events are in the log of manager 3."""
        return len(gzip.decompress(self.parts[3, 0]).splitlines()) - 1


def _writer(shell: Shell, storage: Storage) -> LogWriter:
    return LogWriter(shell.log, storage, "orders")  # type: ignore[arg-type]


def test_all_that_happened_is_written_before_the_end() -> None:
    async def run() -> None:
        shell, storage = Shell().run(), Storage()
        writer = _writer(shell, storage)
        writer.on_event(3)
        shell.fail()
        await writer.finish(3)
        assert storage.events() == 4
        shell.cancelled()
        await writer.finish(3)
        assert storage.events() == 5

    asyncio.run(run())


def test_what_matters_is_written_soon_and_the_rest_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "_SOON_SECONDS", 0.0)

    async def run() -> None:
        shell, storage = Shell().run(), Storage()
        writer = _writer(shell, storage)
        writer.on_event(0)
        await _until_idle()
        assert not storage.parts, "nobody knows yet whose it is"
        writer.on_event(3)
        await _until_idle()
        assert storage.events() == 3
        shell.handle(ev.Ticked())
        writer.on_event(3)
        await _until_idle()
        assert storage.events() == 3
        await writer.finish(3)
        assert storage.events() == 4

    asyncio.run(run())


async def _until_idle() -> None:
    """Let callbacks and threads that are under way come to their end."""
    for _ in range(3):
        await asyncio.to_thread(int)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others)


def test_a_storage_that_refuses_is_told_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        shell, storage = Shell().run(), Storage([CheckpointError("no space"), CheckpointError("no space")])
        writer = _writer(shell, storage)
        for _ in range(3):
            shell.handle(ev.Ticked())
            await writer.finish(3)
        assert storage.events() == 6
        assert shell.log.is_open

    asyncio.run(run())
    assert [record.getMessage() for record in caplog.records] == [
        "the stimulus log of job 'orders' could not be written: no space"
    ]


def test_what_cannot_be_mended_ends_the_log_and_not_the_job(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        shell, storage = Shell().run(), Storage([ValueError("a bug")])
        await _writer(shell, storage).finish(3)
        assert not shell.log.is_open
        assert shell.fail()

    asyncio.run(run())
    assert "a bug" in caplog.text


def test_a_storage_that_hangs_holds_the_end_up_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "_END_SECONDS", 0.01)

    async def run() -> None:
        shell, storage = Shell().run(), Storage()
        storage.may_answer.clear()
        await _writer(shell, storage).finish(3)
        assert not storage.parts
        storage.may_answer.set()

    asyncio.run(run())
