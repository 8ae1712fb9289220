"""Does a job that scales itself follow a sine of load, 1:8, on a cluster that scales itself? What does it reserve?

locust (`perf/locust_sine.py`) sends events to Kafka; a job counts them in windows by key, and writes to Kafka, exactly
once. Each event keeps a subtask busy for 20 ms, asleep, as no machine of two cores has eight of them at work. The nodes
are fake ones (`perf/autoscaled_cluster.py`). In the end an outside reader, who knows nothing of the job, compares what
is in both topics: each event is in its window once, in order. Run by `perf/run.py sine`.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from penstock import (
    AggregateFunction,
    DataStream,
    ProcessWindowFunction,
    StreamEnvironment,
    WatermarkStrategy,
    tumbling,
)
from penstock.actors.client import RayJob
from penstock.connectors.kafka import KafkaSink, KafkaSource
from penstock.connectors.records import JsonFormat
from penstock.engine.autoscaler.report import ScalingRecord
from penstock.engine.errors import JobError
from penstock.engine.job.info import JobInfo
from penstock.engine.metrics import JobMetrics
from penstock.recovery import checkpoints
from penstock.testing.services import Kafka
from perf.autoscaled_cluster import ClusterStartError, autoscaled_cluster
from perf.following import Second, Seen, Work, costs, seconds_down, seconds_up
from perf.harness import BenchmarkError, Options, Reading, Result, shut_down
from perf.keyed_state import DetailedResult, submitted, until

_NAME: Final = "sine"
_LOWEST, _HIGHEST = 25, 200
"""Events a second."""
_EVENT_SECONDS: Final = 0.02
_PERIODS: Final = 2
_PERIOD_SECONDS: Final = {"period 300 s": 300, "period 100 s": 100}
"""By variant."""
_LONGEST: Final = 300
_KEYS: Final = 2_000
_PARTITIONS: Final = 8
_WINDOW_MS: Final = 5_000
_EVENTS, _WINDOWS = "events", "windows"
_WORK: Final = "window"
_NODE_CPUS: Final = 2
_MOST_NODES: Final = 5
_IDLE_SECONDS: Final = 10.0
_AVERAGE_SECONDS: Final = 10
"""The load of a second is the mean of those around it: users come and go one by one."""
_START_SECONDS, _END_SECONDS = 180.0, 180.0
_LAST_SECONDS: Final = 5.0
"""Each partition has events that are younger than this, and the watermark waits for a second."""
_EVENT: Final = JsonFormat({"key": "int64", "number": "int64", "due": "int64"})
_RESULT: Final = JsonFormat({"key": "int64", "start": "int64", "numbers": "list<int64>"})


def settings(period: float) -> dict[str, Any]:
    """The autoscaler's, by the length of a period: what it takes of 5 minutes here, it takes of a day elsewhere."""
    share = period / _LONGEST
    return {
        "job.autoscaler.enabled": True,
        "job.autoscaler.control-loop.interval": "2s",
        "job.autoscaler.metrics.window": f"{max(5, 10 * share):g}s",
        "job.autoscaler.stabilization.interval": "3s",
        "job.autoscaler.scale-down.interval": f"{60 * share:g}s",
        "job.autoscaler.catch-up.duration": f"{60 * share:g}s",
        "job.autoscaler.vertex.max-parallelism": _NODE_CPUS * _MOST_NODES,
        "job.autoscaler.history.max.count": 200,
    }


class Numbers(AggregateFunction):
    """The numbers of a window's events, in the order in which they came; each takes its time.

    A sleep ends late, and by more where two cores have eight subtasks: the next one is so much shorter.
    """

    def __init__(self) -> None:
        self._late = 0.0

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Mapping[str, Any], accumulator: list[int]) -> list[int]:
        began = time.monotonic()
        time.sleep(max(0.0, _EVENT_SECONDS - self._late))
        self._late = min(_EVENT_SECONDS, self._late + time.monotonic() - began - _EVENT_SECONDS)
        return [*accumulator, value["number"]]

    def get_result(self, accumulator: list[int]) -> dict[str, list[int]]:
        return {"numbers": accumulator}


class WithWindow(ProcessWindowFunction):
    """Says of which key and window they are."""

    def process(self, key: Any, context: Any, elements: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        yield {"key": key, "start": context.window.start, "numbers": elements[0]["numbers"]}


@dataclass(frozen=True, slots=True)
class SineResult(DetailedResult):
    """The result of a run.

    Args:
        seconds: of the first run, as they went; only `--save` keeps them.
    """

    seconds: Sequence[Second]

    def raw(self, machine: Mapping[str, Any]) -> dict[str, Any]:
        work = asdict(_work())
        return {**DetailedResult.raw(self, machine), "work": work, "seconds": [asdict(one) for one in self.seconds]}


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Run each variant whose name contains `wanted` once, whatever the other options are."""
    if options.runtime != "ray":
        raise BenchmarkError(f"{_NAME}: only a job on Ray scales itself; leave out --runtime")
    for variant, period in _PERIOD_SECONDS.items():
        if wanted in variant:
            figures, seconds = _measure(period)
            yield SineResult(_NAME, variant, Reading(), None, [], figures, seconds)


def program(env: StreamEnvironment, bootstrap: str) -> DataStream:
    """Kafka -> window -> Kafka."""
    # By partition: behind a pause, one may be read seconds before another.
    in_order = WatermarkStrategy.for_bounded_out_of_orderness("1s").with_timestamp_assigner("due")
    source = KafkaSource(bootstrap, _EVENTS, format=_EVENT, start="earliest")
    events = env.from_source(source, "events", in_order).uid("events")
    windows = events.key_by("key").window(tumbling(f"{_WINDOW_MS}ms"))
    return (
        windows.aggregate(Numbers(), accumulator="list<int64>", process=WithWindow, returns=_RESULT.schema)
        .uid(_WORK)
        .name(_WORK)
    )


def _measure(period: float) -> tuple[dict[str, Any], Sequence[Second]]:
    shut_down()
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="penstock-perf-")))
        kafka = running.enter_context(Kafka())
        kafka.create_topic(_EVENTS, partitions=_PARTITIONS)
        kafka.create_topic(_WINDOWS, partitions=_PARTITIONS)
        try:
            address = running.enter_context(autoscaled_cluster(_NODE_CPUS, _MOST_NODES, _IDLE_SECONDS))
        except ClusterStartError as error:
            raise BenchmarkError(f"{_NAME}: {error}") from error
        env = StreamEnvironment(
            address=address, parallelism=1, checkpoints=checkpoints("10s", str(folder / "checkpoints"))
        )
        env.configure(settings(period))
        program(env, kafka.bootstrap_servers).sink_to(
            KafkaSink(kafka.bootstrap_servers, _WINDOWS, format=_RESULT)
        ).name("windows")
        job = running.enter_context(submitted(env, _NAME))
        # Known to be nothing, as soon as the brokers have answered.
        until(job, lambda info: _waiting(job.metrics()) == 0, "source that reads", _START_SECONDS)
        report = folder / "sent.json"
        load = running.enter_context(_locust(kafka.bootstrap_servers, period, report))
        looks = _watch(job, load, period)
        said, _ = load.communicate()
        if load.returncode or not report.exists():
            raise BenchmarkError(f"{_NAME}: locust ended with {load.returncode}:\n{said}")
        sent = json.loads(report.read_text())
        info = until(job, lambda info: _has_seen(job.metrics(), sent["last"]), "end of the backlog", _END_SECONDS)
        job.drain(str(folder / "savepoint"))
        events, windows = (_records(kafka.bootstrap_servers, topic) for topic in (_EVENTS, _WINDOWS))
    found = compared(events, windows, sent)
    seconds = in_seconds(looks, [event["due"] for event in events], round(period * _PERIODS))
    return {**_figures(seconds, info, min(event["due"] for event in events)), **found}, seconds


def _work() -> Work:
    from penstock.engine.autoscaler_config import AutoscalerConfig

    config = AutoscalerConfig()
    return Work(1 / _EVENT_SECONDS, config.utilization_target, config.utilization_min, config.utilization_max)


def _figures(seconds: Sequence[Second], info: JobInfo, began_ms: int) -> dict[str, Any]:
    work = _work()
    nodes = [one.nodes for one in seconds]
    assert info.autoscaler is not None
    return {
        "seconds_up": seconds_up(seconds, work),
        "seconds_down": seconds_down(seconds, work),
        **costs(seconds, work),
        "most_subtasks": max(one.parallelism for one in seconds),
        "nodes": f"{min(nodes)} to {max(nodes)}, of which {nodes_left(nodes)} left",
        "most_events_waiting": max(one.waiting or 0 for one in seconds),
        "most_seconds_behind": round(max(one.behind or 0 for one in seconds), 1),
        "restarts": info.restarts,
        "layout_changes": _counted(one.kind for one in info.restart_history),
        "decisions": _counted(one.outcome for one in info.autoscaler.history),
        "history": [_told(one, began_ms) for one in info.autoscaler.history],
    }


def _told(record: ScalingRecord, began_ms: int) -> str:
    """When something was decided, from which figures, and how long the job stood still for it."""
    took = "" if record.seconds is None else f", {record.seconds:.1f} s"
    reasons = "; ".join(record.reasons)
    return f"{(record.at_ms - began_ms) / 1000:.0f} s: {record.outcome} ({reasons}){took} {record.message}".rstrip()


def _counted(kinds: Iterable[str]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in Counter(kinds).items()) or "none"


def nodes_left(nodes: Sequence[int]) -> int:
    """How many nodes have left, by how many there were each second."""
    return sum(max(0, before - after) for before, after in pairwise(nodes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Look(Seen):
    """What was seen, and when (ms UTC)."""

    at_ms: int


def _locust(bootstrap: str, period: float, report: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "locust", "-f", str(Path(__file__).with_name("locust_sine.py")), "--headless"]
    command += [
        "--only-summary",
        "--loglevel",
        "ERROR",
        "--kafka",
        bootstrap,
        "--topic",
        _EVENTS,
        "--report",
        str(report),
    ]
    command += ["--lowest", str(_LOWEST), "--highest", str(_HIGHEST), "--keys", str(_KEYS)]
    command += ["--period", str(period), "--periods", str(_PERIODS)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _watch(job: RayJob, load: subprocess.Popen[str], period: float) -> Sequence[Look]:
    """Look once a second while there is load."""
    looks: list[Look] = []
    give_up = time.monotonic() + period * _PERIODS + _END_SECONDS
    while load.poll() is None:
        if time.monotonic() > give_up:
            load.kill()
        began = time.monotonic()
        if not job.pump(0.01):
            raise BenchmarkError(f"{_NAME}: the job ended while there was load")
        looks.append(_look(job, looks[-1] if looks else None))
        time.sleep(max(0.0, began + 1 - time.monotonic()))
    return looks


def _look(job: RayJob, before: Look | None) -> Look:
    import ray

    nodes = [node["Resources"]["CPU"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]  # type: ignore[no-untyped-call]
    groups = ray.util.placement_group_table().values()  # type: ignore[no-untyped-call]
    slots = sum(
        sum(one.get("CPU", 0) for one in group["bundles"].values()) for group in groups if group["state"] == "CREATED"
    )
    try:
        info, metrics = job.info(), job.metrics()
        parallelism = next(task.parallelism for task in info.tasks if _WORK in task.uids)
        waiting, behind = _waiting(metrics), _seconds_behind(metrics)
    except JobError:
        # Its manager is busy, or is being restarted.
        parallelism, waiting, behind = (1 if before is None else before.parallelism), None, None
    return Look(
        at_ms=time.time_ns() // 1_000_000,
        parallelism=parallelism,
        slot_cpus=slots,
        nodes=len(nodes),
        node_cpus=sum(nodes),
        waiting=waiting,
        behind=behind,
    )


def _waiting(metrics: JobMetrics) -> float | None:
    """Events in Kafka that the job has not read."""
    for report in metrics.operators:
        for metric in report.metrics:
            if metric.name == "pending_records" and not math.isnan(metric.value):
                return metric.value * report.parallelism
    return None


def _has_seen(metrics: JobMetrics, last_ms: int) -> bool:
    """Whether the windows know of events of all partitions that were due at the end."""
    behind = _seconds_behind(metrics)
    return _waiting(metrics) == 0 and behind is not None and behind < time.time() - last_ms / 1000 + _LAST_SECONDS


def _seconds_behind(metrics: JobMetrics) -> float | None:
    watermarks = [report.current_watermark for report in metrics.operators if report.name == _WORK]
    known = [one for one in watermarks if one is not None]
    return time.time() - min(known) / 1000 if known else None


def _records(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    """All that a plain consumer reads of a topic, partition by partition, in order; only what is committed."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "outside", "isolation.level": "read_committed",
         "enable.auto.commit": False, "enable.partition.eof": True}
    )  # fmt: skip
    found: list[dict[str, Any]] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(_PARTITIONS)])
        ended: set[int] = set()
        deadline = time.monotonic() + _END_SECONDS
        while len(ended) < _PARTITIONS:
            for message in consumer.consume(1000, 0.5):
                if message.error() is None:
                    found.append(json.loads(message.value()))
                else:
                    ended.add(message.partition())
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{_NAME}: topic {topic} has not been read within {_END_SECONDS:.0f} s")
    finally:
        consumer.close()
    return found


def compared(
    events: Sequence[Mapping[str, int]], windows: Sequence[Mapping[str, Any]], sent: Mapping[str, int]
) -> dict[str, int]:
    """Compare what came out with what was sent: each event is in its window once, in the order of its key.

    Args:
        events, windows: the records of the topics.
        sent: by locust: how many events were `sent`, and how many of these `taken` by the brokers.

    Raises:
        BenchmarkError: something is missing, comes twice, or is in another order.
    """
    if sorted(event["number"] for event in events) != list(range(sent["sent"])) or sent["taken"] != sent["sent"]:
        raise BenchmarkError(f"{_NAME}: locust sent {sent}, and {len(events)} events are in Kafka")
    wanted: dict[tuple[int, int], list[int]] = {}
    for event in sorted(events, key=lambda event: event["number"]):
        wanted.setdefault((event["key"], event["due"] // _WINDOW_MS * _WINDOW_MS), []).append(event["number"])
    got: dict[tuple[int, int], list[int]] = {}
    repeated = 0
    for window in windows:
        place = window["key"], window["start"]
        repeated += place in got
        got[place] = window["numbers"]
    counted = Counter(number for numbers in got.values() for number in numbers)
    missing = sent["sent"] - len(counted)
    repeated += sum(count - 1 for count in counted.values())
    if repeated or missing or got != wanted:
        wrong = sum(got.get(place) != numbers for place, numbers in wanted.items())
        raise BenchmarkError(
            f"{_NAME}: of {sent['sent']} events {missing} are in no window; {repeated} windows or events came twice; "
            f"{wrong} of {len(wanted)} windows have others, or another order"
        )
    return {"events": sent["sent"], "windows": len(windows), "lost": missing, "repeated": repeated}


def in_seconds(looks: Sequence[Look], due_ms: Sequence[int], seconds: int) -> Sequence[Second]:
    """What was seen, second by second since the first event; a look that took long stands for those behind it too.

    Args:
        looks: in order.
        due_ms: when the events were sent.
        seconds: how many there are.
    """
    began = min(due_ms)
    sent = Counter((due - began) // 1000 for due in due_ms)
    found, number = [], 0
    for at in range(seconds):
        while number + 1 < len(looks) and looks[number + 1].at_ms <= began + 1000 * at:
            number += 1
        seen = asdict(looks[number])
        del seen["at_ms"]
        around = range(max(0, at - _AVERAGE_SECONDS // 2), min(seconds, at + _AVERAGE_SECONDS // 2 + 1))
        load = sum(sent[one] for one in around) / len(around)
        found.append(Second(at=at, load=round(load, 1), **seen))
    return found
