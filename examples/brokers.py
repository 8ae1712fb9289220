"""The Kafka that the examples use: the one that is named, or one of their own for as long as they run.

`clickstream_kafka.py`, `fraud_chains.py`, `anomaly_detection.py` and `advertising.py` call it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.testing.services import Kafka

PARTITIONS = 4


def add_option(parser: argparse.ArgumentParser, topics: str) -> None:
    """Let users name brokers that have the topics."""
    parser.add_argument(
        "--kafka", metavar="HOST:PORT", help=f"brokers with the empty topics {topics} (default: a broker is started)"
    )


@contextmanager
def brokers(address: str | None, *topics: str) -> Iterator[str]:
    """The address of brokers that have the topics; a broker of our own is stopped in the end, and its data is gone.

    Raises:
        PenstockError: none could be started, for want of Java or of Kafka (`make services` installs it).
    """
    if address is not None:
        yield address
        return
    with Kafka() as kafka:
        for topic in topics:
            kafka.create_topic(topic, partitions=PARTITIONS)
        yield kafka.bootstrap_servers
