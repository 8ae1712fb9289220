"""The end of a process is noticed without Ray."""

import asyncio
import contextlib
import gc
import os
import subprocess
import sys

import pytest

from penstock.actors.process_end import ProcessEndedError, unless_ended, until_pid_ended

linux = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux can tell")


@linux
def test_a_process_has_ended_once_it_is_killed_and_not_before() -> None:
    async def watched() -> tuple[bool, bool]:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
            ended = asyncio.ensure_future(until_pid_ended(process.pid))
            before, _ = await asyncio.wait({ended}, timeout=0)
            process.kill()
            behind, _ = await asyncio.wait({ended}, timeout=120)
            return bool(before), bool(behind)

    assert asyncio.run(watched()) == (False, True)


@linux
def test_a_process_that_is_no_more_has_ended() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    asyncio.run(asyncio.wait_for(until_pid_ended(process.pid), 30))


@linux
def test_whoever_stops_waiting_leaves_no_handle() -> None:
    async def stopped() -> None:
        held = len(os.listdir("/proc/self/fd"))
        waiting = asyncio.ensure_future(until_pid_ended(os.getpid()))
        await asyncio.wait({waiting}, timeout=0)
        assert len(os.listdir("/proc/self/fd")) == held + 1
        waiting.cancel()
        await asyncio.wait({waiting})
        assert len(os.listdir("/proc/self/fd")) == held

    asyncio.run(stopped())


def test_who_asks_for_its_process_joins_no_cluster() -> None:
    script = (
        "import ray; from penstock.actors.process_end import Process; print(Process.own().pid, ray.is_initialized())"
    )
    asked = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert asked.stdout.split()[1] == "False"


@linux
def test_where_the_loop_cannot_watch_a_handle_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def asked() -> bool:
        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", refuse)
        waiting = asyncio.ensure_future(until_pid_ended(os.getpid()))
        done, _ = await asyncio.wait({waiting}, timeout=0)
        waiting.cancel()
        return bool(done)

    assert not asyncio.run(asked())


def test_an_answer_that_is_there_counts_though_the_process_has_ended() -> None:
    async def asked() -> str:
        ended, answer = asyncio.get_running_loop().create_future(), asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(unless_ended(ended, answer))
        await asyncio.wait({waiting}, timeout=0)
        answer.set_result("the last report")
        await asyncio.wait({asyncio.ensure_future(asyncio.sleep(0))})
        ended.set_result(None)
        return str(await waiting)

    assert asyncio.run(asked()) == "the last report"


def test_the_call_to_a_process_that_has_ended_is_handed_on() -> None:
    async def asked() -> str:
        ended, answer = asyncio.get_running_loop().create_future(), asyncio.get_running_loop().create_future()
        ended.set_result(None)
        with pytest.raises(ProcessEndedError) as caught:
            await unless_ended(ended, answer)
        answer.set_result("what was under way")
        return str(await caught.value.call)

    assert asyncio.run(asked()) == "what was under way"


def test_nobody_complains_of_the_error_of_a_call_that_nobody_waits_for() -> None:
    complaints: list[object] = []

    async def asked() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        ended, answer = loop.create_future(), loop.create_future()
        ended.set_result(None)
        with contextlib.suppress(ProcessEndedError):
            await unless_ended(ended, answer)
        answer.set_exception(RuntimeError("the actor died"))
        del answer
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gc.collect()

    asyncio.run(asked())
    assert complaints == []


def test_a_notice_that_fails_is_no_end_of_a_process() -> None:
    async def asked() -> str:
        ended, answer = asyncio.get_running_loop().create_future(), asyncio.get_running_loop().create_future()
        ended.set_exception(RuntimeError("cannot tell"))
        waiting = asyncio.ensure_future(unless_ended(ended, answer))
        await asyncio.wait({waiting}, timeout=0)
        answer.set_result("alive")
        return str(await waiting)

    assert asyncio.run(asked()) == "alive"
