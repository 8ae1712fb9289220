"""Exactly once: what a crash at any step, a zombie or an outage leaves is made whole by the next commit."""

from __future__ import annotations

import asyncio
import pickle
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiokafka import AIOKafkaProducer

from penstock.connectors.kafka import KafkaSink
from penstock.testing.services.kafka import Kafka
from tests.connectors.kafka.written import RAW, context, open_transactions, prepared, rows, transactions_end, values

NewTopic = Callable[..., str]
STEPS = ["begin_transaction", "send_batch", "send_and_wait", "commit_transaction"]
MOMENTS = ["before", "after"]
OTHER_HALF = pytest.mark.long("each moment of each step once, by a failure or by a crash")


def _cases(seldom: int) -> list[Any]:
    """Each moment of each step; every other of them is for long runs."""
    return [
        pytest.param(step, moment, marks=OTHER_HALF if (number + at) % 2 == seldom else ())
        for number, step in enumerate(STEPS)
        for at, moment in enumerate(MOMENTS)
    ]


@pytest.fixture
def topic(new_topic: NewTopic, kafka: Kafka) -> str:
    topic = new_topic()
    _sink(kafka, topic).prepare()
    return topic


def _sink(kafka: Kafka, topic: str, **arguments: Any) -> KafkaSink:
    """What a process of its own has."""
    return KafkaSink(kafka.bootstrap_servers, topic, format=RAW, **arguments)


def _check(kafka: Kafka, topic: str, *expected: Any) -> None:
    """Each row once and in order, and readers are not held back."""
    assert values(kafka.bootstrap_servers, topic) == [str(value) for value in expected]
    assert transactions_end(kafka.bootstrap_servers, topic)


def test_rows_are_seen_when_their_checkpoint_is_committed(kafka: Kafka, topic: str) -> None:
    sink, where = _sink(kafka, topic), context("job/seen")
    writer = sink.open(where)
    writer.write(rows(1, 2))
    first = writer.prepare(1)
    writer.write(rows(3))
    assert values(kafka.bootstrap_servers, topic, "read_uncommitted") == []
    sink.commit(first, where)
    _check(kafka, topic, 1, 2)
    second = writer.prepare(2)
    assert writer.prepare(3) == []
    sink.commit(second, where)
    writer.write(rows(4))
    sink.commit(writer.prepare(4), where)
    writer.close()
    _check(kafka, topic, 1, 2, 3, 4)


def test_commits_are_repeated_by_anybody_and_write_once(kafka: Kafka, topic: str) -> None:
    where = context("job/repeated")
    committables = prepared(_sink(kafka, topic), where, [1, 2], [3], [4, 5])
    sink = _sink(kafka, topic)
    sink.commit(committables[:2], where)
    sink.commit(committables[:2], where)
    for subtask in range(3):
        _sink(kafka, topic).commit(committables, context("job/repeated", subtask, 3))
    # A savepoint from before, which holds what has long been written.
    _sink(kafka, topic).commit(committables[:1], context("another job"))
    _check(kafka, topic, 1, 2, 3, 4, 5)


def test_a_batch_that_has_no_room_for_a_record_is_an_error(
    kafka: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = context("job/room")
    sink = _sink(kafka, topic, options={"max_batch_size": 1000})
    committables = prepared(sink, where, ["x" * 100] * 20)
    with monkeypatch.context() as patched:
        patched.setattr(
            "penstock.connectors.kafka.outgoing.record_sizes", lambda some: np.ones(some.num_rows, np.int64)
        )
        with pytest.raises(RuntimeError, match="a batch of 20 records is larger than was computed"):
            sink.commit(committables, where)
    sink.commit(committables, where)
    _check(kafka, topic, *["x" * 100] * 20)


def test_a_commit_goes_to_the_topic_that_the_rows_were_for(kafka: Kafka, topic: str, new_topic: NewTopic) -> None:
    where = context("job/moved")
    committables = prepared(_sink(kafka, topic), where, [1])
    other = new_topic()
    _sink(kafka, other, transactional_id_prefix="other").commit(committables, where)
    _sink(kafka, topic).commit(committables, where)
    _check(kafka, topic, 1)
    _check(kafka, other)


def test_several_writers_and_checkpoints_in_one_commit(kafka: Kafka, topic: str) -> None:
    sink = _sink(kafka, topic)
    committables = [
        one
        for subtask in range(3)
        for one in prepared(sink, context("job/many", subtask, 3), [subtask], [subtask + 10])
    ]
    assert len({one.writer for one in committables}) == 3
    sink.commit(committables[::-1], context("job/many"))
    sink.commit(committables, context("job/many", 0, 2))
    assert sorted(map(int, values(kafka.bootstrap_servers, topic))) == [0, 1, 2, 10, 11, 12]
    assert transactions_end(kafka.bootstrap_servers, topic)


def test_without_checkpoints_each_attempt_writes_its_rows(kafka: Kafka, topic: str) -> None:
    sink, where = _sink(kafka, topic), context("job/no-checkpoints")
    for value in (1, 2):
        committables = prepared(sink, where, [value], first=0)
        sink.commit(committables, where)
        sink.commit(committables, where)
    _check(kafka, topic, 1, 2)


class Fault:
    """Makes a method of aiokafka's producer fail, a number of times: before it has done its work, or after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: str, moment: str, times: int, error: Exception) -> None:
        self.left = times
        original = getattr(AIOKafkaProducer, step)

        async def faulty(producer: AIOKafkaProducer, *args: Any, **kwargs: Any) -> Any:
            fails, self.left = self.left > 0, self.left - 1
            if fails and moment == "before":
                raise error
            done = await original(producer, *args, **kwargs)
            if fails:
                raise error
            return done

        monkeypatch.setattr(AIOKafkaProducer, step, faulty)


@pytest.mark.parametrize(("step", "moment"), _cases(seldom=0))
def test_a_failure_at_any_step_is_made_good_by_the_same_commit(
    kafka: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch, step: str, moment: str
) -> None:
    where = context(f"job/{uuid.uuid4()}")
    sink = _sink(kafka, topic)
    writer = sink.open(where)
    writer.write(rows(1, 2))
    sink.commit(writer.prepare(1), where)
    writer.write(rows(3, 4))
    committables = writer.prepare(2)
    fault = Fault(monkeypatch, step, moment, 1, OSError("injected"))
    sink.commit(committables, where)
    assert fault.left <= 0
    writer.write(rows(5))
    sink.commit(writer.prepare(3), where)
    writer.close()
    _check(kafka, topic, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(("step", "moment"), _cases(seldom=1))
def test_a_crash_at_any_step_is_made_good_by_another_process(
    kafka: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch, step: str, moment: str
) -> None:
    where = context(f"job/{uuid.uuid4()}")
    committables = prepared(_sink(kafka, topic), where, [1, 2], [3])
    Fault(monkeypatch, step, moment, 1, RuntimeError("injected"))
    with pytest.raises(RuntimeError, match="injected"):
        _sink(kafka, topic).commit(committables, where)
    assert transactions_end(kafka.bootstrap_servers, topic)
    _sink(kafka, topic).commit(committables, where)
    _check(kafka, topic, 1, 2, 3)


KILLED = """
import os, pickle, signal, sys
from aiokafka import AIOKafkaProducer
moment, step = sys.argv[1:3]
original = getattr(AIOKafkaProducer, step)
async def deadly(*args, **kwargs):
    if moment == "after":
        await original(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(AIOKafkaProducer, step, deadly)
sink, committables, context = pickle.load(open(sys.argv[3], "rb"))
sink.commit(committables, context)
"""


@pytest.mark.parametrize(
    "moment", ["before", pytest.param("after", marks=pytest.mark.long("a crash behind the commit in the test above"))]
)
def test_a_process_that_is_killed_around_the_commit(kafka: Kafka, topic: str, tmp_path: Path, moment: str) -> None:
    where = context("job/killed")
    committables = prepared(_sink(kafka, topic), where, range(100))
    given = tmp_path / "given"
    given.write_bytes(pickle.dumps((_sink(kafka, topic), committables, where)))
    killed = subprocess.run([sys.executable, "-c", KILLED, moment, "commit_transaction", given], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (
        open_transactions(kafka.bootstrap_servers, topic)
        if moment == "before"
        else transactions_end(kafka.bootstrap_servers, topic)
    )
    _sink(kafka, topic).commit(committables, where)
    _check(kafka, topic, *range(100))


class Pause:
    """Holds up one call of a method of aiokafka's producer before it has done its work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        original = getattr(AIOKafkaProducer, step)

        async def waiting(producer: AIOKafkaProducer, *args: Any, **kwargs: Any) -> Any:
            if not self.reached.is_set():
                self.reached.set()
                await asyncio.to_thread(self.go_on.wait, 30)
            return await original(producer, *args, **kwargs)

        monkeypatch.setattr(AIOKafkaProducer, step, waiting)


@pytest.fixture
def pause(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Pause]]:
    made: list[Pause] = []

    def make(step: str) -> Pause:
        made.append(Pause(monkeypatch, step))
        return made[-1]

    yield make
    for one in made:
        one.go_on.set()


@pytest.mark.parametrize("step", ["send_batch", "send_and_wait", "commit_transaction"])
def test_a_zombie_that_wakes_up_writes_nothing(
    kafka: Kafka, topic: str, pause: Callable[[str], Pause], step: str
) -> None:
    where = context(f"job/{uuid.uuid4()}")
    committables = prepared(_sink(kafka, topic), where, [1, 2], [3])
    held = pause(step)
    zombie = threading.Thread(target=_sink(kafka, topic).commit, args=(committables[:1], where))
    zombie.start()
    assert held.reached.wait(10)
    successor, its_context = _sink(kafka, topic), context(where.identity)
    writer = successor.open(its_context)
    successor.commit(committables, its_context)
    _check(kafka, topic, 1, 2, 3)
    held.go_on.set()
    zombie.join(10)
    # The zombie has initialised the id in its turn, which its successor gets over.
    writer.write(rows(4))
    successor.commit(writer.prepare(3), its_context)
    writer.close()
    _check(kafka, topic, 1, 2, 3, 4)


def test_a_transaction_that_times_out_is_done_again(kafka: Kafka, topic: str, pause: Callable[[str], Pause]) -> None:
    where = context("job/timeout")
    committables = prepared(_sink(kafka, topic), where, [1, 2])
    held = pause("commit_transaction")
    sink = _sink(kafka, topic, transaction_timeout="300ms")
    paused = threading.Thread(target=sink.commit, args=(committables, where))
    paused.start()
    assert held.reached.wait(10)
    while open_transactions(kafka.bootstrap_servers, topic):
        assert paused.is_alive()
    held.go_on.set()
    paused.join(10)
    _check(kafka, topic, 1, 2)


def test_a_marker_behind_another_writers_open_transaction_is_found(
    kafka: Kafka, topic: str, new_topic: NewTopic
) -> None:
    markers = f"{topic}-markers"
    kafka.create_topic(markers, settings={"cleanup.policy": "compact"})
    where = context("job/behind")
    sink = _sink(kafka, topic, marker_topic=markers, delivery_timeout="500ms")
    writer = sink.open(where)
    writer.write(rows(1))
    sink.commit(writer.prepare(1), where)
    writer.write(rows(2, 3))
    committables = writer.prepare(2)

    async def hold_back() -> None:
        other = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=markers)
        async with other, other.transaction():
            await other.send_and_wait(markers, b'{"checkpoint": 7}', b"another writer", 0)
            await asyncio.to_thread(sink.commit, committables, where)
            writer.close()
            with pytest.raises(ConnectionError, match=f"open in the marker topic '{markers}', partition 0"):
                await asyncio.to_thread(sink.commit, committables, where)

    asyncio.run(hold_back())
    sink.commit(committables, where)
    _check(kafka, topic, 1, 2, 3)
