"""One Spark session for all tests of this folder: it takes fifteen seconds to start.

It ends with the last of them, since its executors hold CPUs that other tests expect to be free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from penstock import SparkOptions, StreamEnvironment, stop_spark
from tests.actors.spark.leftovers import nothing_left

OPTIONS = SparkOptions(executors=1, cores=2, memory="512m")

# Whoever takes rows from Spark leaves a socket to be closed when it is forgotten: pyspark.rdd._load_from_socket.
on_spark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

Environment = Callable[[], StreamEnvironment]


@pytest.fixture(scope="package")
def spark(ray_cluster: None) -> Iterator[Environment]:
    """Makes environments whose batch jobs run on the session's Spark."""
    with nothing_left():
        yield lambda: StreamEnvironment(parallelism=2, spark=OPTIONS)
        stop_spark()
