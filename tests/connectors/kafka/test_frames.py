from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.api import RequestHeader_v1
from aiokafka.protocol.fetch import FetchRequest_v4, FetchResponse_v4
from aiokafka.protocol.metadata import MetadataRequest_v1, MetadataResponse_v1

from penstock.connectors.kafka.frames import read_frames

TOPICS = [
    ("a", [(0, 0, 7, 7, [(1, 2)], b"x" * 300_000), (1, 3, -1, -1, None, b"")]),
    ("b", [(0, 0, 9, 9, [], b"y" * 5), (1, 0, 9, 9, [], bytes(range(256)) * 1000)]),
    ("c", [(number, 0, 9, 9, [], bytes([number]) * 70_000) for number in range(10)]),
]
METADATA = MetadataResponse_v1([(1, "h", 9092, None)], 1, [(0, "a", False, [])])


class Broker:
    """Answers requests in their order with what it is given, in pieces of some bytes."""

    def __init__(self, answers: Sequence[bytes], piece: int) -> None:
        self.answers, self.piece = list(answers), piece

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in self.answers:
            size, *_ = struct.unpack(">i", await reader.readexactly(4))
            request = await reader.readexactly(size)
            frame = request[4:8] + answer  # the number of the request
            frame = struct.pack(">i", len(frame)) + frame
            for begin in range(0, len(frame), self.piece):
                writer.write(frame[begin : begin + self.piece])
                await writer.drain()
        writer.close()


async def ask(requests: Sequence[Any], answers: Sequence[bytes], piece: int, *, adopted: bool) -> list[Any]:
    broker = Broker(answers, piece)
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    connection = AIOKafkaConnection(host, port)
    connection._do_version_lookup = _nothing
    await connection.connect()
    connection._versions = {1: (4, 4), 3: (1, 1)}
    if adopted:
        read_frames(connection)
    try:
        waiting = [asyncio.ensure_future(_send(connection, request)) for request in requests]
        return await asyncio.gather(*waiting, return_exceptions=True)
    finally:
        closed = connection.close()
        server.close()
        await server.wait_closed()
        await closed


async def _nothing() -> None: ...


async def _send(connection: AIOKafkaConnection, request: Any) -> Any:
    """As the connection sends requests of a version that is agreed upon."""
    number = connection._next_correlation_id()
    message = RequestHeader_v1(request, correlation_id=number, client_id="c").encode() + request.encode()
    connection._writer.write(struct.pack(">i", len(message)) + message)
    future = asyncio.get_running_loop().create_future()
    connection._requests.append((number, request, future))
    return await future


FETCH = FetchRequest_v4(-1, 1, 1, 1, 0, [])


@pytest.mark.parametrize("piece", [3001, 1 << 20])
def test_answers_are_those_that_aiokafka_reads(piece: int) -> None:
    requests = [FETCH, MetadataRequest_v1([]), FETCH, FETCH]
    answers = [FetchResponse_v4(0, topics).encode() for topics in (TOPICS, [], TOPICS[1:])]
    answers.insert(1, METADATA.encode())
    plain = asyncio.run(ask(requests, answers, piece, adopted=False))
    given = asyncio.run(ask(requests, answers, piece, adopted=True))
    assert given == plain
    assert plain[0].topics == TOPICS


@pytest.mark.parametrize("broken", ["answer", "end"])
def test_a_connection_that_breaks_fails_what_waits(broken: str) -> None:
    answer = FetchResponse_v4(0, TOPICS).encode()
    answers = [b"", answer] if broken == "answer" else [answer]
    given = asyncio.run(ask([FETCH, FETCH], answers, 1 << 20, adopted=True))
    assert isinstance(given[-1], KafkaConnectionError)
