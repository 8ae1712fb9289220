"""The end of a process on another node is noticed by its connection, and by nothing else that closes one."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import pytest

from penstock.actors import lifeline as module
from penstock.actors.lifeline import Address, Lifeline, answers, until_closed

_OTHER = """
import asyncio
from penstock.actors.lifeline import Lifeline
async def main():
    lifeline = Lifeline("127.0.0.1")
    print((await lifeline.address())[1], flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


def test_a_process_has_ended_once_it_is_killed_and_not_before() -> None:
    async def watched(address: Address, kill: Callable[[], None]) -> tuple[bool, bool]:
        ended = asyncio.ensure_future(until_closed(address))
        assert await answers(address, 30)
        await until_connected(2)
        is_over = ended.done()
        kill()
        await asyncio.wait_for(ended, 30)
        return is_over, await answers(address, 30)

    async def until_connected(turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)

    with subprocess.Popen([sys.executable, "-c", _OTHER], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        assert asyncio.run(watched(("127.0.0.1", port), other.kill)) == (False, False)


def runs(body: Callable[[Lifeline, Address], Awaitable[object]]) -> object:
    async def main() -> object:
        lifeline = Lifeline("127.0.0.1")
        address = await lifeline.address()
        assert address is not None
        try:
            return await asyncio.wait_for(body(lifeline, address), 30)
        finally:
            lifeline.close()

    return asyncio.run(main())


def test_a_connection_that_was_cut_is_made_again() -> None:
    connections: list[asyncio.StreamWriter] = []
    twice = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        if len(connections) == 1:
            writer.close()
        else:
            twice.set()

    async def cut(lifeline: Lifeline, address: Address) -> bool:
        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        watching = asyncio.ensure_future(until_closed(server.sockets[0].getsockname()[:2]))
        await twice.wait()
        is_over = watching.done()
        watching.cancel()
        server.close()
        for writer in connections:
            writer.close()
        return is_over

    assert runs(cut) is False


def test_where_nobody_was_ever_reached_nothing_is_said() -> None:
    async def refused(lifeline: Lifeline, address: Address) -> bool:
        lifeline.close()
        watching = asyncio.ensure_future(until_closed(address))
        assert not await answers(address, 30)
        done, _ = await asyncio.wait({watching}, timeout=0)
        watching.cancel()
        return bool(done)

    assert runs(refused) is False


def test_whoever_talks_to_it_is_cut_off() -> None:
    async def talked(lifeline: Lifeline, address: Address) -> bytes:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET / HTTP/1.1\r\n")
        said = await reader.read()
        writer.close()
        return said

    assert runs(talked) == b""


def test_an_address_stays() -> None:
    async def asked(lifeline: Lifeline, address: Address) -> bool:
        return await lifeline.address() == address

    assert runs(asked) is True


def test_a_node_without_such_an_address_has_no_lifeline() -> None:
    async def asked() -> Address | None:
        return await Lifeline("192.0.2.1").address()

    assert asyncio.run(asked()) is None


def test_a_connection_that_is_closed_at_once_is_not_made_again_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: asyncio.Queue[float] = asyncio.Queue()

    async def pause(seconds: float) -> None:
        pauses.put_nowait(seconds)
        await asyncio.Event().wait()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def paused(lifeline: Lifeline, address: Address) -> float:
        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
            watching = asyncio.ensure_future(until_closed(server.sockets[0].getsockname()[:2]))
            try:
                return await pauses.get()
            finally:
                watching.cancel()

    monkeypatch.setattr(module, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": pause}))
    assert runs(paused) == 1.0
