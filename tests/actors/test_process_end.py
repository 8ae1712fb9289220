"""The end of a process is noticed without Ray."""

import asyncio
import os
import subprocess
import sys

import pytest

from penstock.actors.process_end import until_pid_ended

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux can tell")


def test_a_process_has_ended_once_it_is_killed_and_not_before() -> None:
    async def watched() -> tuple[bool, bool]:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
            ended = asyncio.ensure_future(until_pid_ended(process.pid))
            before, _ = await asyncio.wait({ended}, timeout=0)
            process.kill()
            behind, _ = await asyncio.wait({ended}, timeout=30)
            return bool(before), bool(behind)

    assert asyncio.run(watched()) == (False, True)


def test_a_process_that_is_no_more_has_ended() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    asyncio.run(asyncio.wait_for(until_pid_ended(process.pid), 30))


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
