"""One Spark session for all tests of this folder: it takes fifteen seconds to start.

It ends with the last of them, since its executors hold CPUs that other tests expect to be free.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import SparkOptions, StreamEnvironment, stop_spark
from penstock.actors.spark.session import spark_session
from tests.actors.spark.leftovers import nothing_left

OPTIONS = SparkOptions(executors=1, cores=2, memory="512m")

# Whoever takes rows from Spark leaves a socket to be closed when it is forgotten: pyspark.rdd._load_from_socket.
on_spark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

Environment = Callable[[], StreamEnvironment]


@pytest.fixture(scope="package")
def printed_at_start(ray_cluster: None) -> Iterator[str]:
    """Starts Spark, and ends it after all, without a word: what the driver's Java has printed on standard error as it
    started."""
    with nothing_left(), tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as environment:
        # Spark runs what has failed four times, each time in Python processes that import all anew.
        Path(folder, "spark-defaults.conf").write_text("spark.task.maxFailures 2\n")
        environment.setenv("SPARK_CONF_DIR", folder)
        with tempfile.TemporaryFile() as printed:
            own = os.dup(2)
            os.dup2(printed.fileno(), 2)
            try:
                spark_session(OPTIONS, None, 60, lambda line: None)
            finally:
                os.dup2(own, 2)
                os.close(own)
            printed.seek(0)
            yield printed.read().decode()
            before = os.fstat(printed.fileno()).st_size
            stop_spark()
            assert os.fstat(printed.fileno()).st_size == before


@pytest.fixture(scope="package")
def spark(printed_at_start: str) -> Environment:
    """Makes environments whose batch jobs run on the session's Spark."""
    return lambda: StreamEnvironment(parallelism=2, spark=OPTIONS)
