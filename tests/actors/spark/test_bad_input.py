"""Spark that cannot be started says why, leaves nothing running, and does not keep the process from trying again."""

from __future__ import annotations

from pathlib import Path

import pytest
import ray

from penstock import SparkOptions, StreamEnvironment, stop_spark
from penstock.actors.spark.java import JVM_OPTIONS
from penstock.engine.errors import ClusterError
from tests.actors.spark.conftest import Environment, on_spark
from tests.actors.spark.leftovers import nothing_left

pytestmark = on_spark


@ray.remote(num_cpus=7)
class Holder:
    """Leaves Spark's master room on the cluster of the tests, and no executor."""

    def holds(self) -> bool:
        return True


def run(env: StreamEnvironment) -> list[int]:
    result = env.from_collection([{"n": n} for n in range(5)]).rebalance().filter(lambda row: row["n"] < 3).collect()
    env.execute("tried", mode="batch")
    return sorted(row["n"] for row in result)


def with_options(folder: Path, memory: str = "512m", **configuration: str) -> StreamEnvironment:
    settings = {"spark.local.dir": str(folder), **{key.replace("__", "."): one for key, one in configuration.items()}}
    return StreamEnvironment(parallelism=2, spark=SparkOptions(1, 2, memory, settings))


def test_spark_that_no_node_has_room_for_leaves_nothing_and_may_be_tried_again(
    ray_cluster: None, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    stop_spark()
    with nothing_left(), pytest.raises(ClusterError, match=r"no node .* has the memory of an executor, 9000g: .*lower"):
        run(with_options(tmp_path, memory="9000g"))
    assert not list(tmp_path.iterdir())
    # The first of this folder's tests: only now Spark is started, once for all of them.
    spark: Environment = request.getfixturevalue("spark")
    assert run(spark()) == [0, 1, 2]


@pytest.mark.long("the test above")
def test_spark_that_does_not_start_leaves_nothing_and_may_be_tried_again(spark: Environment, tmp_path: Path) -> None:
    stop_spark()
    wrong = f"{JVM_OPTIONS} -XX:+NoSuchOption"
    with nothing_left(), pytest.raises(ClusterError, match=r"could not be started .*gateway .*`java` on the path"):
        run(with_options(tmp_path, spark__ray__raydp_app_master__extraJavaOptions=wrong))
    holder = Holder.remote()
    assert ray.get(holder.holds.remote())
    env = with_options(tmp_path)
    env.configure({"slot.request.timeout": "1s"})
    with nothing_left(), pytest.raises(ClusterError, match=r"no executor of 2 CPUs and 512m .*other jobs hold"):
        run(env)
    ray.kill(holder)
    assert not list(tmp_path.iterdir())
    assert run(spark()) == [0, 1, 2]


@pytest.mark.long("test_spark_that_no_node_has_room_for_leaves_nothing_and_may_be_tried_again")
def test_spark_that_has_died_is_told_and_may_be_started_again(spark: Environment) -> None:
    from pyspark import SparkContext

    assert run(spark()) == [0, 1, 2]
    jvm = SparkContext._gateway.proc
    jvm.kill()
    jvm.wait()
    with pytest.raises(ClusterError, match=r"has ended: its JVM .* died.*stop_spark"):
        run(spark())
    stop_spark()
    assert run(spark()) == [0, 1, 2]
