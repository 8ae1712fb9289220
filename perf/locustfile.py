"""Load for jobs under test, by locust: events into a Kafka topic, or over HTTP, at a rate and with skewed keys.

    locust -f perf/locustfile.py --headless -u 1 -t 30s KafkaEvents --kafka localhost:9092 --topic events --rate 10000
    locust -f perf/locustfile.py --headless -u 1 -t 30s HttpEvents --host http://localhost:8000 --rate 10000

`perf/run.py end_to_end` runs it. An event is `{"key": 17, "due": 1234.5, "v": 3}`: `due` is the time at which it was to
be sent, seconds by the monotonic clock of this machine. A tick that comes late sends all that is due, so a server that
is slow makes events late, not fewer. A line of locust's report is a tick: how long the server took to take its events.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any, Final

import gevent
import numpy as np
from locust import FastHttpUser, User, events, task

_TICK_SECONDS: Final = 0.01
_DRAWN: Final = 1 << 16
_FLUSH_SECONDS: Final = 10.0


@events.init_command_line_parser.add_listener
def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rate", type=float, default=10_000, help="events per second, over all users")
    parser.add_argument("--keys", type=int, default=1_000, help="how many keys there are")
    parser.add_argument("--skew", type=float, default=0.0, help="exponent of Zipf's law; 0: all keys alike")
    parser.add_argument("--kafka", default="localhost:9092", help="brokers, host:port with commas")
    parser.add_argument("--topic", default="events", help="the topic, which must exist")


class _Pace:
    """What is due, tick by tick: the values of the events, and when the next tick is."""

    def __init__(self, rate: float, keys: int, skew: float) -> None:
        self._rate = rate
        weights = 1.0 / np.arange(1, keys + 1) ** skew
        self._keys = np.random.default_rng(0).choice(keys, _DRAWN, p=weights / weights.sum()).tolist()
        self._started = time.monotonic()
        self._sent = 0

    def due(self) -> list[bytes]:
        """The events that are due now; waits for the tick."""
        gevent.sleep(max(0.0, self._started + self._sent / self._rate + _TICK_SECONDS - time.monotonic()))
        until = math.floor((time.monotonic() - self._started) * self._rate)
        numbers, self._sent = range(self._sent, until), until
        start, rate, keys = self._started, self._rate, self._keys
        return [
            b'{"key":%d,"due":%f,"v":%d}' % (keys[number % _DRAWN], start + number / rate, number % 1000)
            for number in numbers
        ]


def _pace_of(user: User) -> _Pace:
    options = user.environment.parsed_options
    return _Pace(options.rate / options.num_users, options.keys, options.skew)


class KafkaEvents(User):
    """Writes events to a topic, spread over its partitions by batches."""

    def on_start(self) -> None:
        """Connect to the brokers."""
        from confluent_kafka import Producer

        options = self.environment.parsed_options
        self._topic = options.topic
        self._producer = Producer(
            {"bootstrap.servers": options.kafka, "linger.ms": 2, "queue.buffering.max.messages": 2_000_000}
        )
        self._pace = _pace_of(self)

    @task
    def tick(self) -> None:
        """Send what is due."""
        values = self._pace.due()
        for value in values[:-1]:
            self._producer.produce(self._topic, value)
        sent = time.monotonic()
        size = sum(map(len, values))

        def taken(error: Any, _: object) -> None:
            self.environment.events.request.fire(
                request_type="kafka",
                name=self._topic,
                response_time=(time.monotonic() - sent) * 1000,
                response_length=size,
                exception=None if error is None else RuntimeError(str(error)),
            )

        if values:
            self._producer.produce(self._topic, values[-1], on_delivery=taken)
        self._producer.poll(0)

    def on_stop(self) -> None:
        """Wait for what is under way."""
        self._producer.flush(_FLUSH_SECONDS)


class HttpEvents(FastHttpUser):
    """Posts events, a line each, to `/events`: `perf/event_feed.py` gives them to whoever reads them there."""

    def on_start(self) -> None:
        """Begin to count."""
        self._pace = _pace_of(self)

    @task
    def tick(self) -> None:
        """Send what is due."""
        self.client.post("/events", data=b"\n".join([*self._pace.due(), b""]))
