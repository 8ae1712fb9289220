"""What sources and sinks say that they read and write, in OpenLineage's names, without secrets."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import FileSink, FileSource
from penstock.connectors.elasticsearch import ElasticsearchSink
from penstock.connectors.files.object_store import dataset_of
from penstock.connectors.kafka import KafkaSink, KafkaSource
from penstock.connectors.lakes import DeltaSink, IcebergSink
from penstock.connectors.postgres import PostgresSink
from penstock.connectors.records import JsonFormat
from penstock.connectors.redis import RedisSink
from penstock.engine.connectors import Dataset
from tests.engine.helpers import local_environment

SERVERS = ["broker1:9092", "broker2:9092"]
FORMAT = JsonFormat({"n": "int64"})


def test_a_topic_is_named_by_the_first_broker() -> None:
    source = KafkaSource(SERVERS, topics=["orders", "returns"], format=FORMAT)
    assert source.datasets == [Dataset("kafka://broker1:9092", name) for name in ("orders", "returns")]
    some = KafkaSource(SERVERS, partitions={"orders": [0, 3]}, format=FORMAT)
    assert some.datasets == [Dataset("kafka://broker1:9092", "orders")]
    matching = KafkaSource(SERVERS, topic_pattern="order.*", format=FORMAT)
    assert matching.datasets == [Dataset("kafka://broker1:9092", "order.*")]
    assert KafkaSink(SERVERS, "totals", format=FORMAT).datasets == (Dataset("kafka://broker1:9092", "totals"),)


def test_a_table_is_named_by_its_database_and_the_password_is_not() -> None:
    sink = PostgresSink("postgresql://me:secret@db:5433/shop", "totals", keys="k")
    assert sink.datasets == (Dataset("postgres://db:5433", "shop.public.totals"),)
    local = PostgresSink("host=/run/postgresql dbname=shop", "totals", keys=["id"])
    assert local.datasets == (Dataset("postgres:///run/postgresql:5432", "shop.public.totals"),)


def test_stores_and_lakes_are_named_without_what_opens_them() -> None:
    (redis,) = RedisSink("redis://me:secret@cache/2", keys="k", prefix="clicks:").datasets
    assert redis == Dataset("redis://cache:6379", "2/clicks:*")
    (index,) = ElasticsearchSink("https://me:secret@search", "clicks", id="k").datasets
    assert index == Dataset("elasticsearch://search:443", "clicks")
    assert DeltaSink("s3://lake/orders").datasets == (Dataset("s3://lake", "orders"),)
    assert IcebergSink("sales.visits", "prod").datasets == (Dataset("iceberg://prod", "sales.visits"),)


@pytest.mark.parametrize("url", ["s3://lake/orders/2024", "s3://key:secret@lake/orders/2024?region=eu"])
def test_a_folder_in_a_bucket_is_named_without_what_opens_it(url: str) -> None:
    assert dataset_of(url) == Dataset("s3://lake", "orders/2024")


def test_a_running_job_tells_what_its_tasks_read_and_write(tmp_path: Path) -> None:
    for name in ("a", "b"):
        pq.write_table(pa.table({"n": [1, 2]}), tmp_path / f"{name}.parquet")
    env = local_environment()
    env.from_source(FileSource.of(str(tmp_path / "*.parquet"))).sink_to(FileSink(tmp_path / "out", "json"))
    operators = [operator for task in env.execute().info().tasks for operator in task.operators]
    assert [dataset for one in operators for dataset in one.reads] == [Dataset("file", str(tmp_path))]
    assert [dataset for one in operators for dataset in one.writes] == [Dataset("file", str(tmp_path / "out"))]
