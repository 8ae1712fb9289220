"""The jobs of `server_jobs` by name, each with a server of its own that is started for it and is gone behind it.

The command line calls it; programs that have a server make a `KafkaJob`, `S3Job` or `PostgresJob` for that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from penstock.testing.chaos.kafka_job import KafkaJob
from penstock.testing.chaos.server_jobs import ServerJob
from penstock.testing.chaos.store_jobs import PostgresJob, S3Job
from penstock.testing.services import S3, Kafka, Postgres


@contextmanager
def _kafka() -> Iterator[ServerJob]:
    # The report says what the client would log of a broker that is away.
    logger = logging.getLogger("aiokafka")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with Kafka() as kafka:
            yield KafkaJob(kafka)
    finally:
        logger.setLevel(level)


@contextmanager
def _postgres() -> Iterator[ServerJob]:
    with Postgres() as postgres:
        yield PostgresJob(postgres)


@contextmanager
def _s3() -> Iterator[ServerJob]:
    with S3() as s3:
        yield S3Job(s3)


SERVER_JOBS: Final[Mapping[str, Callable[[], AbstractContextManager[ServerJob]]]] = {
    "kafka": _kafka,
    "postgres": _postgres,
    "s3": _s3,
}
"""Each gives a job while its server runs.

Raises:
    ServiceNotInstalledError: the server is not installed.
    ServiceStartError: it does not start.
"""
