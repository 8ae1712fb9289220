"""One question to a Kafka broker, in Kafka's own protocol: which brokers does it know to be alive?

Asked by `kafka.KafkaBroker` to see that it is ready, without a client library. Brokers that are starting, fenced or cut
off from the controllers are not in the answer. Source: the Metadata API, version 4, in Kafka's protocol guide.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

_METADATA: Final = 3
_VERSION: Final = 4
_CORRELATION: Final = 1
_NO_CLIENT_ID: Final = -1
_NO_TOPICS: Final = 0


def registered_brokers(connection: socket.socket) -> set[int]:
    """Ask over a new connection to a listener without authentication.

    Returns:
        Node ids; empty while the broker knows none.

    Raises:
        OSError: the broker hangs up or does not answer in time.
    """
    request = struct.pack("!hhihi?", _METADATA, _VERSION, _CORRELATION, _NO_CLIENT_ID, _NO_TOPICS, False)
    connection.sendall(struct.pack("!i", len(request)) + request)
    (size,) = struct.unpack("!i", _receive(connection, 4))
    answer = _receive(connection, size)
    # Correlation id and throttle time come first, then the brokers: node, host, port, rack.
    _, _, count = struct.unpack_from("!iii", answer)
    position = 12
    nodes = set()
    for _ in range(count):
        (node,) = struct.unpack_from("!i", answer, position)
        nodes.add(node)
        position = _after_string(answer, position + 4) + 4
        position = _after_string(answer, position)
    return nodes


def _after_string(answer: bytes, position: int) -> int:
    (length,) = struct.unpack_from("!h", answer, position)
    return int(position + 2 + max(length, 0))


def _receive(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        read = connection.recv(count - len(received))
        if not read:
            raise ConnectionResetError("the broker closed the connection")
        received += read
    return received
