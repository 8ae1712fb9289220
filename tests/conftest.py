"""Fixtures for all tests: a Ray cluster and servers, one each a session, started when the first test asks for it."""

from __future__ import annotations

import functools
import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from penstock.testing.services import S3, Kafka, Postgres, Redis, ServiceNotInstalledError

_Service = TypeVar("_Service", Kafka, Postgres, Redis, S3)

# A shell that runs the tests in the background makes them, and the programs that they start, deaf to Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several processes (`make test`), one runs all files that need the cluster, which wait most of the time.

    By files, since the process that shares out has nothing but names; `--dist loadgroup` does not know pytest 9.2.
    """
    from xdist.scheduler import LoadScopeScheduling

    class OneCluster(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::", 1)[0]
            return "cluster" if _needs_cluster(config.rootpath / file) else file

    return OneCluster(config, log)


@functools.cache
def _needs_cluster(file: Path) -> bool:
    return "pytest.mark.ray" in file.read_text("utf-8")


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """A Ray cluster on this machine, shared by all tests that run jobs on it."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    ray.init(
        address="local",
        num_cpus=8,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=1024**3,
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """A Kafka broker, shared by all tests: name topics and groups so that nobody else has them, leave it running."""
    yield from _serve(Kafka)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server, shared by all tests: name tables so that nobody else has them."""
    yield from _serve(Postgres)


@pytest.fixture(scope="session")
def redis() -> Iterator[Redis]:
    """A Redis server, shared by all tests: name keys so that nobody else has them."""
    yield from _serve(Redis)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    """An S3 server, shared by all tests: each makes its own buckets. `s3.environment` is what clients need."""
    yield from _serve(S3)


def _serve(service: Callable[[], _Service]) -> Iterator[_Service]:
    try:
        running = service()
        running.start()
    except ServiceNotInstalledError as error:
        pytest.skip(f"NOT TESTED, A SERVER IS MISSING: {error}")
    yield running
    running.stop()
