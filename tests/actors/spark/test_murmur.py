"""Numbers that Spark sends to the partition that we chose."""

from __future__ import annotations

import pytest

from penstock.actors.spark.murmur import routes, spark_hash
from penstock.actors.spark.session import spark_session
from penstock.live_view import tell
from tests.actors.spark.conftest import OPTIONS, Environment


def test_hashes_are_those_that_spark_documents() -> None:
    # SELECT hash(0), hash(1), hash(42), hash(2147483647) in Spark 3.5.
    assert [spark_hash(number) for number in (0, 1)] == [933211791, -559580957]


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 128, 1000])
def test_each_partition_has_a_number_of_its_own(partitions: int) -> None:
    assert [spark_hash(number) % partitions for number in routes(partitions)] == list(range(partitions))


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_spark_hashes_alike(spark: Environment) -> None:
    session = spark_session(OPTIONS, None, 60, tell)
    numbers = [*range(300), 2**31 - 1, 123_456_789]
    rows = session.createDataFrame([(number,) for number in numbers], "number int").selectExpr("number", "hash(number)")
    assert dict(map(tuple, rows.collect())) == {one: spark_hash(one) for one in numbers}
