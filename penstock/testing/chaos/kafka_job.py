"""The job from Kafka over keyed state to Kafka, exactly once; and a reader of topics that knows nothing of the engine.

`penstock chaos run --job kafka` and our tests run it against a broker that may be killed, restarted and stopped. Topics
are filled and read back by aiokafka alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from penstock.connectors.kafka import KafkaOffsets, KafkaSink, KafkaSource
from penstock.connectors.records import JsonFormat
from penstock.engine.api.streams import DataStream
from penstock.engine.connectors import TransactionalSink
from penstock.engine.durations import Duration
from penstock.environment import StreamEnvironment
from penstock.testing.chaos.checkers import OracleChecker, Verdict
from penstock.testing.chaos.harness import ChaosServer
from penstock.testing.chaos.jobs import KEYS
from penstock.testing.chaos.server_jobs import COUNTED, EVENTS, Trial, check_counted, count_events, user_name
from penstock.testing.services import Kafka

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer, TopicPartition

TRANSACTION_TIMEOUT: Final = "2s"
_PARTITIONS: Final = {"in": 3, "out": 4}
_PIECE_SECONDS: Final = 0.02
_SLOWER: Final = 20
_STOP_SECONDS: Final = 2.0
"""How long the feeder's client may take to end."""
_OUTAGE_MS: Final = 120_000
"""For how long the feeder tries to write a record."""
_MARKER_SECONDS: Final = 1.0
"""How long the brokers may take to end a transaction for its readers behind its commit: less than its time-out."""


@dataclass(frozen=True)
class KafkaJob:
    """Numbered events of users from a topic, counted, into another topic.

    Args:
        kafka: the running cluster.
        transaction_timeout: of the sink.
    """

    kafka: Kafka
    transaction_timeout: Duration = TRANSACTION_TIMEOUT

    @property
    def name(self) -> str:
        return "kafka"

    @property
    def servers(self) -> Mapping[str, ChaosServer]:
        return {"kafka": self.kafka}

    @property
    def weights(self) -> Mapping[str, float]:
        """A subtask that is stopped comes often: past the heartbeat's and the transaction's time-out it is a zombie."""
        subtasks = {"subtask": 5.0, "two": 1.0, "manager": 1.0, "pause": 2.0}
        return {**subtasks, "kill-server": 1.0, "restart-server": 1.0, "pause-server": 1.0}

    def program(self, events: DataStream) -> DataStream:
        """What is between the topics."""
        return count_events(events)

    def sink(self, topic: str, markers: str) -> TransactionalSink:
        """Where the counts go."""
        return KafkaSink(
            self.kafka.bootstrap_servers,
            topic,
            format=JsonFormat(COUNTED),
            key="user",
            marker_topic=markers,
            transaction_timeout=self.transaction_timeout,
        )

    def begin(self, env: StreamEnvironment, rows: int, rate: float) -> Trial:
        topics = Topics.make(self.kafka)
        self.build(env, topics, rows)
        return Trial(
            lambda: feeding(self.kafka.bootstrap_servers, topics.incoming, rows, rate),
            lambda: self.check(topics, rows),
        )

    def build(self, env: StreamEnvironment, topics: Topics, rows: int) -> None:
        """Write the program into an environment; it ends when it has read all rows."""
        ends = {(topics.incoming, one): count for one, count in enumerate(_counts(rows))}
        source = KafkaSource(
            self.kafka.bootstrap_servers, topics.incoming, format=JsonFormat(EVENTS), until=KafkaOffsets.of(ends)
        )
        counted = self.program(env.from_source(source, "events").uid("events"))
        counted.sink_to(self.sink(topics.outgoing, topics.markers)).uid("out")

    def check(self, topics: Topics, rows: int) -> Sequence[Verdict]:
        """What is wrong with the output, as a reader of committed records sees it; and with the input, of course."""
        servers = self.kafka.bootstrap_servers
        given = [{"user": user_name(row % KEYS), "number": row // KEYS} for row in range(rows)]
        return [
            _renamed(OracleChecker(lambda: given).check(read_committed(servers, topics.incoming)), "input"),
            *check_counted(read_committed(servers, topics.outgoing), rows),
            check_transactions(servers, [topics.outgoing, topics.markers]),
        ]


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of one run: its input, its output, and the sink's markers."""

    incoming: str
    outgoing: str
    markers: str

    @classmethod
    def make(cls, kafka: Kafka) -> Topics:
        """New ones."""
        run = secrets.token_hex(4)
        topics = cls(f"events-{run}", f"counts-{run}", f"markers-{run}")
        kafka.create_topic(topics.incoming, partitions=_PARTITIONS["in"])
        kafka.create_topic(topics.outgoing, partitions=_PARTITIONS["out"])
        return topics


def _renamed(verdict: Verdict, checker: str) -> Verdict:
    return Verdict(
        checker, verdict.rows, Counter({f"{checker}: {k}": n for k, n in verdict.counts.items()}), verdict.violations
    )


# Input


def _counts(rows: int) -> Sequence[int]:
    """How many rows each partition gets: all of a user go to one, or they would have no order."""
    users, parts = rows // KEYS, _PARTITIONS["in"]
    return [len(range(part, KEYS, parts)) * users for part in range(parts)]


@contextmanager
def feeding(servers: str, topic: str, rows: int, rate: float) -> Iterator[Callable[[], None]]:
    """Numbered events come into the topic while the context lasts, each once, by a thread that ends with the last.

    A third of them comes slowly until the function that this gives is called: so the job is not at its end before.
    """
    feeder = _Feeder(servers, topic, rows, rate)
    thread = threading.Thread(target=lambda: asyncio.run(feeder.run()), name="chaos-feed")
    thread.start()
    try:
        yield feeder.released.set
    finally:
        feeder.stopped.set()
        thread.join()


@dataclass(frozen=True, slots=True, eq=False)
class _Feeder:
    """Fills a topic; arguments as of `feeding`."""

    servers: str
    topic: str
    rows: int
    rate: float
    released: threading.Event = field(default_factory=threading.Event)
    stopped: threading.Event = field(default_factory=threading.Event)

    async def run(self) -> None:
        """Send all events, unless stopped."""
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=self.servers, enable_idempotence=True, request_timeout_ms=_OUTAGE_MS
        )
        sending = asyncio.ensure_future(self._send_all(producer))
        try:
            while not sending.done() and not self.stopped.is_set():
                await asyncio.wait([sending], timeout=_PIECE_SECONDS)
            if sending.done():
                sending.result()
        finally:
            sending.cancel()
            # It waits for what is under way: for ever, where the broker that was killed has not come back.
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(producer.stop(), _STOP_SECONDS)
            # Broken off, it has closed no connection.
            await producer.client.close()

    async def _send_all(self, producer: AIOKafkaProducer) -> None:
        await producer.start()
        last, due, sent = time.monotonic(), 0.0, 0
        while sent < self.rows:
            now = time.monotonic()
            due, last = min(self.rows, due + (now - last) * self._rate_now(sent)), now
            for row in range(sent, int(due)):
                await _send(producer, self.topic, row)
            sent = int(due)
            await asyncio.sleep(_PIECE_SECONDS)
        await producer.flush()

    def _rate_now(self, sent: int) -> float:
        quick = self.released.is_set() or sent < self.rows * 2 // 3
        return self.rate if quick else self.rate / _SLOWER


async def _send(producer: AIOKafkaProducer, topic: str, row: int) -> None:
    user = row % KEYS
    value = json.dumps({"user": user_name(user), "number": row // KEYS}).encode()
    await producer.send(topic, value, partition=user % _PARTITIONS["in"])


# Output


def read_committed(servers: str, topic: str) -> list[dict[str, Any]]:
    """The values (JSON) that a reader of committed records sees, partition after partition."""
    return asyncio.run(_read(servers, topic))


async def _read(servers: str, topic: str) -> list[dict[str, Any]]:
    from aiokafka import AIOKafkaConsumer

    found: dict[TopicPartition, list[dict[str, Any]]] = {}
    async with AIOKafkaConsumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
        ends = await _ends(servers, topic, "read_committed")
        consumer.assign(list(ends))
        await consumer.seek_to_beginning(*ends)
        while any([await consumer.position(one) < end for one, end in ends.items()]):
            for one, records in (await consumer.getmany(timeout_ms=50)).items():
                found.setdefault(one, []).extend(json.loads(record.value) for record in records)
    return [row for _, rows in sorted(found.items()) for row in rows]


def check_transactions(servers: str, topics: Sequence[str]) -> Verdict:
    """Object to each partition that readers of committed records cannot read to its end."""
    verdict = Verdict("transactions", counts=Counter({"left open": 0}))
    for topic in topics:
        for one, (stable, newest) in asyncio.run(_open(servers, topic)).items():
            verdict.object("left open", f"{one.topic}-{one.partition}: committed to {stable}, written to {newest}")
    return verdict


async def _open(servers: str, topic: str) -> dict[TopicPartition, tuple[int, int]]:
    """Partitions with an open transaction: where it begins, and the end.

    A commit is answered before the brokers have written its marks, so they get a moment for that.
    """
    deadline = time.monotonic() + _MARKER_SECONDS
    while True:
        newest = await _ends(servers, topic, "read_uncommitted")
        stable = await _ends(servers, topic, "read_committed")
        found = {one: (stable[one], end) for one, end in newest.items() if stable[one] < end}
        if not found or time.monotonic() > deadline:
            return found


async def _ends(servers: str, topic: str, isolation: str) -> dict[TopicPartition, int]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async with AIOKafkaConsumer(topic, bootstrap_servers=servers, isolation_level=isolation) as consumer:
        numbers = consumer.partitions_for_topic(topic) or set()
        return dict(await consumer.end_offsets([TopicPartition(topic, number) for number in sorted(numbers)]))
