"""Load that rises and falls as a sine, by locust: events into a Kafka topic, by as many users as there is load.

    locust -f perf/locust_sine.py --headless --kafka localhost:9092 --topic events --lowest 25 --highest 200 \\
        --period 300 --periods 2 --report sent.json

`perf/run.py sine` runs it. An event is `{"key": 17, "number": 4217, "due": 1764145512345}`: `number` counts the events
from 0, `due` is when it was sent (ms UTC). It begins at the least load. In the end `--report` has how many were `sent`,
how many of these the brokers have `taken`, and when the `last` one was due.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from pathlib import Path
from typing import Any, Final

from locust import LoadTestShape, User, constant_pacing, events, task

USER_RATE: Final = 5
"""Events a second of each user."""
_SPAWN_RATE: Final = 100
_FLUSH_SECONDS: Final = 30.0


@events.init_command_line_parser.add_listener
def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lowest", type=float, default=25, help="events per second at least")
    parser.add_argument("--highest", type=float, default=200, help="events per second at most")
    parser.add_argument("--period", type=float, default=300, help="seconds from one low to the next")
    parser.add_argument("--periods", type=float, default=1, help="how many")
    parser.add_argument("--keys", type=int, default=500, help="how many keys there are, in turns")
    parser.add_argument("--kafka", default="localhost:9092", help="brokers, host:port with commas")
    parser.add_argument("--topic", default="events", help="the topic, which must exist")
    parser.add_argument("--report", default="sent.json", help="file for what was sent")


def load(at: float, lowest: float, highest: float, period: float) -> float:
    """Events a second, `at` seconds behind the beginning.

    Example:
        >>> load(0, 50, 400, 300), load(150, 50, 400, 300)
        (50.0, 400.0)
    """
    return (lowest + highest) / 2 - (highest - lowest) / 2 * math.cos(2 * math.pi * at / period)


class Sine(LoadTestShape):
    """As many users as the load of the moment takes."""

    def tick(self) -> tuple[int, float] | None:
        """How many users there are to be; None: it is over."""
        assert self.runner is not None
        options, at = self.runner.environment.parsed_options, self.get_run_time()
        if at >= options.period * options.periods:
            return None
        return round(load(at, options.lowest, options.highest, options.period) / USER_RATE), _SPAWN_RATE


class _Sender:
    """Numbers and sends the events of all users."""

    def __init__(self, environment: Any) -> None:
        from confluent_kafka import Producer

        self._environment = environment
        self._options = environment.parsed_options
        self._producer = Producer(
            {"bootstrap.servers": self._options.kafka, "linger.ms": 2, "enable.idempotence": True}
        )
        self._numbers = itertools.count()
        self._sent = self._taken = self._last = 0
        # The clock of the machine may be set back.
        self._began = time.time() - time.monotonic()

    def send(self) -> None:
        """Send one event."""
        sent, number = time.monotonic(), next(self._numbers)
        key = number % self._options.keys
        self._last = int((self._began + sent) * 1000)
        value = b'{"key":%d,"number":%d,"due":%d}' % (key, number, self._last)
        self._sent += 1

        def taken(error: Any, _: object) -> None:
            self._taken += error is None
            self._environment.events.request.fire(
                request_type="kafka",
                name=self._options.topic,
                response_time=(time.monotonic() - sent) * 1000,
                response_length=len(value),
                exception=None if error is None else RuntimeError(str(error)),
            )

        self._producer.produce(self._options.topic, value, key=b"%d" % key, on_delivery=taken)
        self._producer.poll(0)

    def finish(self) -> None:
        """Wait for what is under way, and leave the report."""
        self._producer.flush(_FLUSH_SECONDS)
        Path(self._options.report).write_text(
            json.dumps({"sent": self._sent, "taken": self._taken, "last": self._last})
        )


@events.test_start.add_listener
def _begin(environment: Any, **_: Any) -> None:
    environment.sender = _Sender(environment)


@events.test_stop.add_listener
def _finish(environment: Any, **_: Any) -> None:
    environment.sender.finish()


class Events(User):
    """Sends events at an even pace."""

    wait_time = constant_pacing(1 / USER_RATE)

    @task
    def send(self) -> None:
        """Send one."""
        self.environment.sender.send()
