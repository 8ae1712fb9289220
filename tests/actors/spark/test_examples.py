"""The example programs whose input ends give in batch mode the rows that they give in streaming mode."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from ray import cloudpickle as ray_cloudpickle

import penstock as ps
from penstock.batch import Mode
from penstock.testing.services import Kafka
from tests.actors.spark.conftest import Environment, on_spark
from tests.connectors.kafka.written import values

pytestmark = on_spark
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports an example by its name. Its functions travel as those of a script do, with their code."""
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def load_example(name: str) -> ModuleType:
        module = importlib.import_module(name)
        for pickle in (cloudpickle, ray_cloudpickle):
            pickle.register_pickle_by_value(module)
        return module

    return load_example


def assert_equal_rows(
    spark: Environment, build: Callable[[ps.StreamEnvironment], list[ps.DataStream]], ordered_by: list[list[str]]
) -> None:
    """Run a program in both modes, and compare its streams, each sorted by columns that tell its rows apart."""
    streaming, batch = ps.StreamEnvironment(parallelism=2, runtime="local"), spark()
    expected, found = ([stream.collect() for stream in build(env)] for env in (streaming, batch))
    streaming.execute()
    batch.execute("example", mode="batch")
    for rows, others, columns in zip(expected, found, ordered_by, strict=True):
        sorting = [(column, "ascending") for column in columns]
        in_order: list[pa.Table] = [one.to_arrow().sort_by(sorting).combine_chunks() for one in (rows, others)]
        assert in_order[0].num_rows
        assert in_order[0].equals(in_order[1])


@pytest.mark.long("tests/examples runs each example here; test_operators its verbs on Spark")
def test_flight_delays(spark: Environment, load: Callable[[str], ModuleType], tmp_path: Path) -> None:
    example = load("flight_delays")
    path = example.replay_file(example.load_departures().slice(0, 10_000), tmp_path)
    assert_equal_rows(spark, lambda env: example.build(env, path), [["carrier", "window_start"]] * 2)


@pytest.mark.long("tests/examples runs each example here; test_operators its verbs on Spark")
def test_advertising(spark: Environment, load: Callable[[str], ModuleType]) -> None:
    example = load("advertising")
    source = example.events(20_000)
    assert_equal_rows(spark, lambda env: [example.build(env, source)], [["campaign", "window_start"]])


@pytest.mark.long("tests/examples runs each example here; test_operators its verbs on Spark")
def test_clickstream(
    spark: Environment, load: Callable[[str], ModuleType], kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    example, servers = load("clickstream_kafka"), kafka.bootstrap_servers
    monkeypatch.setattr(example, "CLICKS", "clicks-in-both-modes")
    kafka.create_topic("clicks-in-both-modes", partitions=4)
    example.produce(ps.StreamEnvironment(parallelism=1, runtime="local"), servers, example.clicks(5_000))

    def visits(env: ps.StreamEnvironment, mode: Mode) -> list[dict[str, Any]]:
        monkeypatch.setattr(example, "VISITS", f"visits-{mode}")
        kafka.create_topic(f"visits-{mode}", partitions=4)
        example.build(env, servers)
        env.execute("visits", mode=mode)
        found: list[dict[str, Any]] = example.committed(ps.StreamEnvironment(runtime="local"), servers).to_pylist()
        return sorted(found, key=lambda row: (row["user"], row["began"]))

    expected = visits(ps.StreamEnvironment(parallelism=2, runtime="local"), "streaming")
    assert sum(row["pages"] for row in expected) == 5_000
    assert visits(spark(), "batch") == expected


@pytest.mark.long("tests/examples runs each example here; test_operators its verbs on Spark")
@pytest.mark.parametrize("model", ["1", "2"])
def test_fraud_detection(spark: Environment, load: Callable[[str], ModuleType], model: str) -> None:
    """Each model judges all payments: what resumes from a savepoint has no batch mode."""
    example = load("fraud_detection")
    assert_equal_rows(spark, lambda env: [example.build(env, model, 20_000)], [["card", "at", "payments"]])


@pytest.mark.long("tests/examples runs each example here; test_operators its verbs on Spark")
def test_the_first_job_of_anomaly_detection(
    spark: Environment, load: Callable[[str], ModuleType], kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one has no end."""
    example = load("anomaly_detection")

    def means(env: ps.StreamEnvironment, mode: Mode) -> dict[tuple[str, int], float]:
        topic = f"means-{mode}"
        kafka.create_topic(topic, partitions=4)
        monkeypatch.setattr(example, "MEANS", topic)
        example.condense(env, kafka.bootstrap_servers, 30_000)
        env.execute("condense", mode=mode)
        rows = [json.loads(value) for value in values(kafka.bootstrap_servers, topic)]
        found = {(row["sensor"], row["at"]): row["mean"] for row in rows}
        assert len(found) == len(rows) == 6 * example.SENSORS
        return found

    streaming = means(ps.StreamEnvironment(parallelism=2, runtime="local"), "streaming")
    assert means(spark(), "batch") == pytest.approx(streaming)
