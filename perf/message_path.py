"""What does a message from one actor to another cost, by each way that Ray has?

A batch of columns is sent, and an answer comes when it has been taken: at a pace, as a job sends small batches, and as
fast as it goes with four under way. `link` is what the engine does within a machine: messages go through sockets, the
rows of larger ones through shared memory. `packed` is what it does between machines: calls of an asynchronous actor,
into which they are pickled. Beside them: the same in four arguments that Ray pickles; a batch alone as the argument, of
asynchronous and of plain methods; and the channel of a compiled graph (one message under way, from the driver). CPU is
that of all processes of the cluster. Run by `python perf/message_path.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TypeAlias

if __name__ == "__main__":
    ROOT = Path(__file__).resolve().parents[1]
    sys.path.insert(0, str(ROOT))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

import numpy as np
import pyarrow as pa
import ray
from ray.dag import InputNode

from penstock.actors.channels import Pushed, Pusher, packed, take_frame, unpacked
from penstock.actors.links import LinkServer, Reply
from penstock.engine.elements import Batch
from perf.processes import ProcessTree

_UNDER_WAY: Final = 4
_PACE_SECONDS: Final = 0.008
"""As rows come from sources with a rate."""
_WARM_UP: Final = 50
_ROW_BYTES: Final = 16
_STORE_BYTES: Final = 2**30
_ROOM: Final = 1.2
"""A channel has so many times the room that a batch takes."""


class AsyncReceiver:
    """Takes messages in an event loop."""

    async def push(self, *arguments: object) -> int:
        return len(arguments)


class PackedReceiver:
    """Takes what `packed` gives, in an event loop."""

    async def push(self, *arguments: Pushed | bytes) -> int:
        return len(unpacked(arguments))


class LinkedReceiver(PackedReceiver):
    """Takes messages through links, too."""

    def __init__(self) -> None:
        self._links: LinkServer | None = None

    async def listen(self) -> None:
        """Returns when senders find it."""
        if self._links is None:
            self._links = LinkServer(ray.get_runtime_context().get_actor_id() or "", self._on_frame)

    def _on_frame(self, frame: bytes, reply: Reply) -> None:
        take_frame(frame, reply, lambda pushed, answer: answer(1.0))


class PlainReceiver:
    """Takes messages in a thread."""

    def push(self, message: pa.RecordBatch) -> int:
        return message.num_rows


Packing: TypeAlias = Callable[[int, pa.RecordBatch], tuple[object, ...]]
"""Of the call that carries message number n."""
Push: TypeAlias = Callable[[int, pa.RecordBatch], "Future[Any]"]
"""Sends message number n."""


def _alone(number: int, message: pa.RecordBatch) -> tuple[object, ...]:
    return (message,)


def _four(number: int, message: pa.RecordBatch) -> tuple[object, ...]:
    return 1, 0, number, (Batch(message),)


def _packed(number: int, message: pa.RecordBatch) -> tuple[object, ...]:
    return tuple(packed((1, 0, number, (Batch(message),))))


_CALLS: Final[Sequence[tuple[str, type, Packing | None]]] = (
    ("link", LinkedReceiver, None),
    ("packed", PackedReceiver, _packed),
    ("four arguments", AsyncReceiver, _four),
    ("async actor", AsyncReceiver, _alone),
    ("plain actor", PlainReceiver, _alone),
)


class Sender:
    """Calls the receiver from another actor, as subtasks call each other."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def send(
        self, receiver: Any, packing: Packing | None, message: pa.RecordBatch, count: int, pause: float
    ) -> list[float]:
        """Seconds to the answer of each of `count` messages; without a packing they go as the engine sends them."""
        credit, answered = threading.Semaphore(_UNDER_WAY), threading.Semaphore(0)
        seconds: list[float] = []
        calls: list[Future[Any]] = []
        way = self._pushing(receiver) if packing is None else _calling(receiver, packing)

        def push() -> None:
            credit.acquire()
            begin = time.monotonic()

            def on_answer(_: Future[Any]) -> None:
                seconds.append(time.monotonic() - begin)
                credit.release()
                answered.release()

            calls.append(way(len(calls), message))
            calls[-1].add_done_callback(on_answer)

        _in_turn(count, pause, push)
        for _ in range(count):
            answered.acquire()
        for call in calls:
            call.result()
        return seconds

    def _pushing(self, receiver: Any) -> Push:
        ray.get(receiver.listen.remote())
        pusher = Pusher(receiver, 1, 0, self._loop)

        def push(number: int, message: pa.RecordBatch) -> Future[Any]:
            answer: Future[Any] = Future()

            def on_answer(wanted: float | None, error: BaseException | None) -> None:
                if error is None:
                    answer.set_result(wanted)
                else:
                    answer.set_exception(error)

            pusher(number, (Batch(message),), on_answer)
            return answer

        return push


def _calling(receiver: Any, packing: Packing) -> Push:
    def call(number: int, message: pa.RecordBatch) -> Future[Any]:
        answer: Future[Any] = receiver.push.remote(*packing(number, message)).future()
        return answer

    return call


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure each way, size and pace; a line each."""
    given = _parser().parse_args(arguments)
    ray.init(address="local", include_dashboard=False, object_store_memory=_STORE_BYTES, log_to_driver=False)
    try:
        print(f"{'way':>15}{'bytes':>11}{'pace':>9}{'messages/s':>12}{'p50 ms':>8}{'p99 ms':>8}{'CPU ms':>8}")
        for size in given.bytes:
            message = _batch(size)
            for way, receiver, packing in _CALLS:
                _measure_calls(way, receiver, packing, message, given.messages)
            _measure_graph(message, given.messages)
    finally:
        ray.shutdown()
    return 0


def _measure_calls(way: str, receiver: type, packing: Packing | None, message: pa.RecordBatch, count: int) -> None:
    options = {"num_cpus": 0, **({} if receiver is PlainReceiver else {"max_concurrency": 100})}
    target = ray.remote(receiver).options(**options).remote()
    sender = ray.remote(Sender).options(num_cpus=0).remote()

    def send(messages: int, pause: float) -> list[float]:
        seconds: list[float] = ray.get(sender.send.remote(target, packing, message, messages, pause))
        return seconds

    _report(way, message, count, send)
    for actor in (sender, target):
        ray.kill(actor)


def _measure_graph(message: pa.RecordBatch, count: int) -> None:
    target = ray.remote(PlainReceiver).options(num_cpus=0).remote()
    with InputNode() as given:
        graph = target.push.bind(given).experimental_compile(_buffer_size_bytes=int(message.nbytes * _ROOM) + 100_000)

    def send(messages: int, pause: float) -> list[float]:
        seconds = []

        def push() -> None:
            begin = time.monotonic()
            ray.get(graph.execute(message))
            seconds.append(time.monotonic() - begin)

        _in_turn(messages, pause, push)
        return seconds

    _report("compiled graph", message, count, send)
    graph.teardown()
    ray.kill(target)


def _report(way: str, message: pa.RecordBatch, count: int, send: Callable[[int, float], list[float]]) -> None:
    send(_WARM_UP, 0.0)
    processes = ProcessTree()
    for pace, pause in (("125/s", _PACE_SECONDS), ("full", 0.0)):
        before, begin = processes.cpu_seconds(), time.monotonic()
        seconds = send(count, pause)
        lasted, used = time.monotonic() - begin, processes.cpu_seconds() - before
        p50, p99 = (np.quantile(seconds, [0.5, 0.99]) * 1000).tolist()
        figures = f"{count / lasted:>12,.0f}{p50:>8.2f}{p99:>8.2f}{used / count * 1000:>8.2f}"
        print(f"{way:>15}{message.nbytes:>11,}{pace:>9}{figures}", flush=True)


def _in_turn(count: int, pause: float, push: Callable[[], object]) -> None:
    begin = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, begin + number * pause - time.monotonic()) if pause else 0.0)
        push()


def _batch(size: int) -> pa.RecordBatch:
    rows = np.arange(size // _ROW_BYTES)
    return pa.record_batch({"key": rows, "v": rows.astype(np.float64)})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure messages between actors.")
    parser.add_argument(
        "--bytes", type=int, nargs="+", default=[1_000, 90_000, 400_000, 1_000_000, 3_000_000], help="of a batch"
    )
    parser.add_argument("--messages", type=int, default=500, help="of each measurement")
    return parser


if __name__ == "__main__":
    sys.exit(main())
