"""Two brokers are asked for the same partitions, as happens while their leader changes, and answer in any order."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, TypeVar

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.protocol.fetch import FetchResponse_v4
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.kafka import columnar
from tests.connectors.kafka.batches import batch

BATCHES = [batch([(1, None, b"a", []), (2, None, b"b", [])], offset) for offset in (0, 2, 4)]
END = 6
ERRORS = {"not leader": 6, "out of range": 1, "not authorized": 29}

T = TypeVar("T")


@pytest.fixture(autouse=True, scope="module")
def _no_long_wait() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columnar, "_POLL_SECONDS", 0.01)
        yield


def answer(kind: str, number: int, offset: int) -> tuple[Any, ...]:
    """What a broker says of a partition that is asked for from `offset` on."""
    if kind in ERRORS:
        return number, ERRORS[kind], -1, -1, None, b""
    left = b"".join(BATCHES[offset // 2 :])
    size = {"all": None, "one batch": len(BATCHES[0]), "cut off": 30, "nothing": 0}[kind]
    return number, 0, END, END, [], left[:size]


class Brokers:
    """Stands in for aiokafka's client. The first request to each of two brokers is answered by the test."""

    def __init__(self) -> None:
        self.cluster, self.leader, self._loop = self, 1, asyncio.get_running_loop()
        self.waiting: dict[int, tuple[Any, asyncio.Future[Any]]] = {}
        self.asked: asyncio.Queue[int] = asyncio.Queue()
        self._conns: dict[Any, Any] = {}
        self._metadata_max_age_ms = 300_000

    def leader_for_partition(self, partition: TopicPartition) -> int:
        return self.leader

    def broker_metadata(self, node: int) -> object:
        return object()

    def force_metadata_update(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    async def send(self, node: int, request: Any) -> Any:
        future = asyncio.get_running_loop().create_future()
        if node not in self.waiting:
            self.waiting[node] = request, future
            self.asked.put_nowait(node)
        else:
            # No answer is there at once.
            self._loop.call_soon(future.set_result, answered(request, ["all"] * 3))
        return await future

    def answer(self, node: int, kinds: Sequence[str]) -> None:
        """Answer the first request with one of the kinds for each partition."""
        request, future = self.waiting[node]
        future.set_result(answered(request, kinds))


def answered(request: Any, kinds: Sequence[str]) -> FetchResponse_v4:
    ((topic, asked),) = request.topics
    return FetchResponse_v4(0, [(topic, [answer(kinds[number], number, offset) for number, offset, _ in asked])])


class Reader:
    """A consumer of the partitions, as far as `ColumnarFetch` knows one."""

    def __init__(self, partitions: int) -> None:
        self.brokers, self._subscription = Brokers(), SubscriptionState()
        self._fetcher = Fetcher(self.brokers, self._subscription, auto_offset_reset="none")
        self.fetch = columnar.ColumnarFetch(self)  # type: ignore[arg-type]
        self.assign([TopicPartition("t", number) for number in range(partitions)])
        self.offsets: dict[int, list[int]] = {number: [] for number in range(partitions)}

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self._subscription.assign_from_user(partitions)
        for partition in partitions:
            self._subscription.subscription.assignment.state_value(partition).seek(0)

    def assignment(self) -> Sequence[TopicPartition]:
        return list(self._subscription.subscription.assignment.tps)

    async def change_leader(self) -> None:
        """Both brokers have been asked for the partitions afterwards, and neither has answered."""
        assert await self.brokers.asked.get() == 1
        self.brokers.leader = 2
        self._fetcher._notify(self._fetcher._wait_consume_future)
        assert await self.brokers.asked.get() == 2

    async def read(self) -> None:
        for fetched in await self.fetch.next():
            self.offsets[fetched.partition.partition] += fetched.records().offsets.to_pylist()

    async def read_all(self) -> None:
        while any(len(offsets) < END for offsets in self.offsets.values()):
            await self.read()
        assert all(offsets == list(range(END)) for offsets in self.offsets.values())

    async def close(self) -> None:
        await self._fetcher.close()


def run(story: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(story, 60))


@pytest.mark.parametrize("late", ["not leader", "nothing", "out of range", "not authorized", "cut off", "one batch"])
def test_what_the_old_leader_says_late_takes_nothing_from_the_new_ones_answer(late: str) -> None:
    async def story() -> None:
        reader = Reader(1)
        await reader.change_leader()
        reader.brokers.answer(2, ["all"])
        reader.brokers.answer(1, [late])
        await reader.read_all()
        await reader.close()

    run(story())


kinds = st.lists(st.sampled_from(["all", "one batch", "nothing", "not leader"]), min_size=3, max_size=3)


@given(kinds, kinds, st.permutations([1, 2]), st.booleans())
def test_each_record_comes_once_whichever_leader_gives_it(
    old: list[str], new: list[str], order: list[int], reads_between: bool
) -> None:
    async def story() -> None:
        reader = Reader(3)
        await reader.change_leader()
        for node in order:
            reader.brokers.answer(node, old if node == 1 else new)
            if reads_between:
                await reader.read()
        await reader.read_all()
        await reader.close()

    run(story())


@pytest.mark.parametrize("is_read", [False, True])
def test_an_answer_does_not_stay_in_memory(is_read: bool) -> None:
    async def story() -> None:
        reader = Reader(1)
        await reader.brokers.asked.get()
        _, future = reader.brokers.waiting[1]
        frame = memoryview(BATCHES[0])
        kept = weakref.ref(frame)
        future.set_result(FetchResponse_v4(0, [("t", [(0, 0, END, END, [], frame)])]))
        reader.brokers.waiting.clear()
        del frame, future
        while not reader._fetcher._records:
            await asyncio.sleep(0)
        assert kept() is not None
        if is_read:
            await reader.read()
        else:
            reader.assign([TopicPartition("other", 0)])
            await reader.brokers.asked.get()
        assert kept() is None
        await reader.close()

    # What waits for the garbage collector waits long: answers are few and large.
    gc.disable()
    try:
        run(story())
    finally:
        gc.enable()
