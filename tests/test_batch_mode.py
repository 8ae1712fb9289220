"""Which programs run in batch mode, and what is refused before anything is started."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

import penstock as ps
from penstock import DataGenSource, Sequence, SparkOptions, StreamEnvironment
from penstock.actors.spark import session
from penstock.batch import Mode
from penstock.engine.errors import CheckpointError, ClusterError, ConfigurationError, GraphError
from tests.actors.spark.leftovers import nothing_left
from tests.actors.spark.test_java import fake_java


def bounded(env: StreamEnvironment) -> None:
    env.from_collection([{"k": "a", "n": 1}]).key_by("k").aggregate(total=ps.sum("n")).collect()


def endless(env: StreamEnvironment) -> None:
    env.from_source(DataGenSource({"n": Sequence()}), "for ever").collect()


def test_a_source_without_end_is_named() -> None:
    env = StreamEnvironment()
    bounded(env)
    endless(env)
    with nothing_left(), pytest.raises(GraphError, match=r"cannot run in batch mode: source 'for ever' has no end"):
        env.execute("endless", mode="batch")


def test_automatic_is_streaming_where_a_source_has_no_end_or_the_job_is_local() -> None:
    env = StreamEnvironment()
    endless(env)
    assert "== Spark ==" not in env.explain(mode="automatic")
    local = StreamEnvironment(runtime="local")
    bounded(local)
    assert "== Spark ==" not in local.explain(mode="automatic")
    local.execute("local", mode="automatic")


def test_explain_shows_both_plans() -> None:
    env = StreamEnvironment(parallelism=2)
    bounded(env)
    assert "== Spark ==" not in env.explain()
    assert env.explain(mode="automatic") == env.explain(mode="batch")
    assert env.explain(mode="batch").endswith(
        """\
== Spark ==
stage 1: collection(1 rows) (partitions 1)
stage 2: aggregate(total=sum(n)) (partitions 2)
  <- stage 1 (shuffle by hash(k), partial aggregates, in order of time)
"""
    )


def test_the_mode_may_be_configured() -> None:
    env = StreamEnvironment.from_configuration({"execution.runtime-mode": "BATCH", "parallelism.default": 1})
    bounded(env)
    assert "== Spark ==" in env.explain()
    assert "== Spark ==" not in env.explain(mode="streaming")


def test_a_mode_that_there_is_not() -> None:
    env = StreamEnvironment()
    bounded(env)
    with pytest.raises(
        ConfigurationError, match=r"mode must be one of streaming, batch, automatic, not 'bach'.*'batch'"
    ):
        env.execute(mode="bach")  # type: ignore[arg-type]


def test_a_loop_is_named() -> None:
    env = StreamEnvironment()
    stream = env.from_collection([{"n": 1}])
    stream.iterate(lambda loop: (loop.filter(ps.col("n") > 1), loop)).name("round").collect()
    assert "== Spark ==" not in env.explain(mode="automatic")
    with nothing_left(), pytest.raises(GraphError, match=r"operator 'round' is the head of a loop.*unroll it"):
        env.execute(mode="batch")


def test_resources_of_an_operator_are_refused_by_name() -> None:
    env = StreamEnvironment()
    stream = env.from_collection([{"n": 1}])
    stream.map_batches(lambda batch: batch, returns={"n": "int64"}, num_cpus=1).name("model").collect()
    with pytest.raises(GraphError, match=r"task '.*model.*' has CPUs or GPUs of its own"):
        env.execute(mode="batch")


def test_a_local_environment_has_no_batch_mode() -> None:
    env = StreamEnvironment(runtime="local")
    bounded(env)
    with pytest.raises(ConfigurationError, match="batch mode runs Spark on Ray, and this environment is local"):
        env.execute(mode="batch")


def test_savepoints_and_detached_jobs_are_refused() -> None:
    env = StreamEnvironment()
    bounded(env)
    with pytest.raises(ConfigurationError, match="cannot resume from a savepoint"):
        env.submit(mode="batch", savepoint="nowhere")
    with pytest.raises(ConfigurationError, match="cannot be detached"):
        env.submit(mode="batch", detached=True)


@pytest.mark.parametrize(
    ("target", "mode", "reason"),
    [
        ("memory://here", "batch", "cannot write to the memory of this process"),
        ("chk-00000001", "batch", "folders named chk-... belong to jobs"),
        ("nowhere://here", "batch", "no storage is called 'nowhere'"),
        ("history", "streaming", "savepoint_to='history' is for batch jobs.*set mode='batch'"),
    ],
)
def test_a_savepoint_to_end_with_that_there_cannot_be(target: str, mode: Mode, reason: str) -> None:
    env = StreamEnvironment()
    bounded(env)
    with pytest.raises(ConfigurationError, match=reason):
        env.submit(mode=mode, savepoint_to=target)


def test_a_savepoint_takes_no_folder_in_which_something_is(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("already")
    env = StreamEnvironment()
    bounded(env)
    with pytest.raises(CheckpointError, match="is not empty; a savepoint is written to a new folder"):
        env.submit(mode="batch", savepoint_to=str(tmp_path))


def test_missing_java_is_told_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    env = StreamEnvironment()
    bounded(env)
    with nothing_left(), pytest.raises(ConfigurationError, match=r"JAVA_HOME is /nowhere.*no bin/java; install JDK 17"):
        env.execute(mode="batch")


def test_another_java_is_told_before_anything_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, "21.0.1")))
    env = StreamEnvironment()
    bounded(env)
    with nothing_left(), pytest.raises(ConfigurationError, match=r"Spark in Java 11 or 17, and .* is Java 21; install"):
        env.execute(mode="batch")


@pytest.mark.parametrize("was_connected", [False, True])
def test_a_ray_cluster_that_was_started_for_spark_ends_where_that_does_not_start(
    monkeypatch: pytest.MonkeyPatch, was_connected: bool
) -> None:
    calls: list[str] = []
    cluster = SimpleNamespace(
        is_initialized=lambda: was_connected, nodes=list, shutdown=lambda: calls.append("shutdown")
    )
    monkeypatch.setattr(session, "ray", cluster)
    monkeypatch.setattr(session, "connect", lambda address, cpus: calls.append("connect"))
    monkeypatch.setattr(session, "_HOLDER", session._Holder())
    with pytest.raises(ClusterError, match="no node of the Ray cluster has the memory of an executor"):
        session.spark_session(SparkOptions(), None, 0.0, print)
    assert calls == ["connect", *([] if was_connected else ["shutdown"])]


def test_a_session_that_somebody_has_stopped_is_replaced_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def context(jsc: object) -> SimpleNamespace:
        return SimpleNamespace(sparkContext=SimpleNamespace(uiWebUrl=None, _jsc=jsc))

    new = context(object())
    holder = session._Holder()
    holder.running = session._Running(context(None), SparkOptions(), session._cluster())  # type: ignore[arg-type]
    monkeypatch.setattr(session, "_HOLDER", holder)
    monkeypatch.setattr(session, "_stop", lambda: None)
    monkeypatch.setattr(session, "_started", lambda *arguments: new)
    assert session.spark_session(SparkOptions(), None, 0.0, print) is new  # type: ignore[comparison-overlap]
    assert "Another one is started; DataFrames and tables of the old one are lost" in caplog.text


def test_missing_packages_are_told_with_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    env = StreamEnvironment()
    bounded(env)
    with pytest.raises(ConfigurationError, match=r"needs pyspark and raydp.*pip install 'penstock\[spark\]'"):
        env.execute(mode="batch")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (SparkOptions(memory="8g"), "has the memory of an executor, 8g: the largest has 4.0 GiB"),
        (SparkOptions(cores=5), "has the 5 CPUs of an executor: the largest has 4"),
    ],
)
def test_an_executor_that_no_node_has_room_for(options: SparkOptions, reason: str) -> None:
    nodes = [
        {"Alive": True, "Resources": {"CPU": 4.0, "memory": 4.0 * 2**30}},
        {"Alive": False, "Resources": {"CPU": 64.0, "memory": 64.0 * 2**30}},
    ]
    with pytest.raises(ClusterError, match=reason):
        session._check_room(options, nodes)


def test_where_the_pages_of_spark_are_is_told_when_it_starts_and_not_again(monkeypatch: pytest.MonkeyPatch) -> None:
    alive = SimpleNamespace(isStopped=lambda: False)
    context = SimpleNamespace(uiWebUrl="http://here:4040", _jsc=SimpleNamespace(sc=lambda: alive))
    monkeypatch.setattr(session, "_HOLDER", session._Holder())
    monkeypatch.setattr(session, "_started", lambda *arguments: SimpleNamespace(sparkContext=context))
    told: list[str] = []
    monkeypatch.setattr(session, "connect", lambda address, cpus: None)
    for _ in range(2):
        session.spark_session(SparkOptions(), None, 0.0, told.append)
    assert told == ["Spark's pages: http://here:4040"]


def test_another_cluster_is_refused_while_spark_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    here = SimpleNamespace(gcs_address="here:6379")
    connected = SimpleNamespace(is_initialized=lambda: True, get_runtime_context=lambda: here)
    monkeypatch.setattr(session, "ray", connected)
    monkeypatch.setattr("penstock.actors.cluster.ray", connected)
    monkeypatch.setattr("penstock.actors.cluster._check_size", lambda cpus: None)
    alive = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))
    found = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=alive))
    holder = session._Holder()
    holder.running = session._Running(found, SparkOptions(), "here:6379")  # type: ignore[arg-type]
    monkeypatch.setattr(session, "_HOLDER", holder)
    for same in (None, "auto", "here:6379"):
        assert session.spark_session(SparkOptions(), same, 0.0, print) is found  # type: ignore[comparison-overlap]
    with pytest.raises(ClusterError, match="connected to the Ray cluster at here:6379, not to 'elsewhere:6379'"):
        session.spark_session(SparkOptions(), "elsewhere:6379", 0.0, print)


def test_a_spark_of_others_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", SimpleNamespace(appName="mine", master="local"))
    monkeypatch.setattr(session, "_HOLDER", session._Holder())
    monkeypatch.setattr(session, "check_installed", lambda: None)
    with pytest.raises(ConfigurationError, match="Spark runs in this process already, as 'mine' on local"):
        session.spark_session(SparkOptions(), None, 0.0, print)


@pytest.mark.parametrize("key", ["spark.sql.adaptive.enabled", "spark.speculation", "spark.executorEnv.PYTHONPATH"])
def test_settings_that_batch_jobs_depend_on_are_refused(key: str) -> None:
    with pytest.raises(ConfigurationError, match=f"configuration: {key} cannot be set: "):
        SparkOptions(configuration={key: "true"})


def test_keys_set_the_options_of_spark() -> None:
    env = StreamEnvironment.from_configuration(
        {"penstock.spark.executors": 3, "penstock.spark.cores": "4", "penstock.spark.memory": "8g"}
    )
    assert env._now.spark == SparkOptions(3, 4, "8g")
    with pytest.raises(
        ConfigurationError, match=r"penstock.spark.memory: must be a size such as 4g or 512m, not 'much'"
    ):
        StreamEnvironment.from_configuration({"penstock.spark.memory": "much"})


def test_a_session_that_has_died_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: True))
    found = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=dead))
    holder = session._Holder()
    holder.running = session._Running(found, SparkOptions(), session._cluster())  # type: ignore[arg-type]
    monkeypatch.setattr(session, "_HOLDER", holder)
    with pytest.raises(ClusterError, match="has ended: its JVM or its application master died"):
        session.spark_session(SparkOptions(), None, 0.0, print)
