"""The anomaly example: the second job finds the faults that are in the readings of the first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from penstock.testing.services import Kafka


def test_the_second_job_finds_the_wrong_sensors_and_no_others(
    load: Callable[[str], ModuleType], kafka: Kafka, tmp_path: Path
) -> None:
    example = load("anomaly_detection")
    kafka.create_topic(example.MEANS, partitions=4)
    readings = 5 * example.FAULT_EVERY
    anomalies, means = example.run(kafka.bootstrap_servers, "local", readings, str(tmp_path))
    windows = readings // example.READINGS_PER_SECOND // 10
    assert means == windows * example.SENSORS
    # The first fault comes before there is enough to judge by; each of the others lasts for two windows.
    found = sorted((row["sensor"], (row["at"] - example.START_MS) // 10_000) for row in anomalies.to_pylist())
    assert found == [(f"sensor-{fault:02}", fault * 12 + window) for fault in (2, 3, 4) for window in (0, 1)]
