"""The settings of a job, with their defaults and their limits.

Built by the environment, read by the planner and the runtimes. All values are checked here, together, before anything
starts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from penstock.engine.autoscaler_config import AutoscalerConfig
from penstock.engine.cached_files import CachedFile
from penstock.engine.checkpoint_config import CheckpointConfig, FailoverConfig
from penstock.engine.errors import ConfigurationError, nearest

LARGEST_MAX_PARALLELISM: Final = 32_768
STATE_BACKENDS: Final = ("heap", "rocksdb")
SPELLED_AS_IN_FLINK: Final = {"hashmap": "heap"}
"""State backends that Flink's configuration has another word for."""


@dataclass(frozen=True, slots=True)
class JobConfig:
    """How a job runs; never what it computes.

    Args:
        max_parallelism: number of key groups, and so the largest parallelism that a keyed operator can ever have.
        buffer_timeout_ms: the longest that rows wait for their batch to fill, and that a task rests behind few rows;
            0 sends as soon as there is credit.
        buffer_debloat_target_ms: what waits before a task, under way or in the outputs of its senders, should be worth
            so much of its time; rows are read, sent and processed in batches of that size. 0: batches are bounded by
            their size alone.
        max_batch_rows: the most rows that a source reads, or a channel sends, at once.
        max_batch_bytes: the most bytes that a channel sends at once (one row may be larger).
        channel_credits: how many batches may be under way on one channel.
        slot_cpus: CPUs that one slot reserves on the cluster (a slot holds one subtask of each task).
        slot_labels: by name, what the labels of a node must be that slots come to; `ray.io/market-type`, `on-demand`.
        slot_timeout_ms: how long the job waits for its slots before that is a failure.
        warm_processes: for the next job, as many as this one has made are kept warm on each node, and no more than so
            many (Ray).
        auto_watermark_interval_ms: how often watermark generators are asked while no row comes; 0 for never. Watermarks
            that no row takes along travel this far apart, unless `buffer_timeout_ms` is 0.
        latency_interval_ms: how often sources send latency markers; 0 for never.
        metrics_log_interval_ms: how often the job manager logs a line of rates; 0 for never.
        log_levels: by name of a logger ("" for all others), the lowest level (as `logging` has it) that functions log.
        log_format: of the lines that the processes of functions write to standard error, and of the times in them, as
            `logging.Formatter` has them; None: the message alone.
        state_backend: where the state of process functions and general windows lives: `"heap"` (Python objects) or
            `"rocksdb"` (local disk, for state larger than memory).
        state_directory: folder for `"rocksdb"`, and copies of cached files; None means the system's temporary folder.
        checkpoints: when and how checkpoints are taken.
        failover: how the job gets over failures.
        autoscaler: when and how the job is rescaled by itself.
        cached_files: what functions may ask for by name.

    Raises:
        ConfigurationError: names every setting that cannot be used.
    """

    max_parallelism: int = 128
    buffer_timeout_ms: int = 100
    buffer_debloat_target_ms: int = 100
    max_batch_rows: int = 131_072
    max_batch_bytes: int = 8 * 1024 * 1024
    channel_credits: int = 4
    slot_cpus: float = 1.0
    slot_labels: tuple[tuple[str, str], ...] = ()
    slot_timeout_ms: int = 60_000
    warm_processes: int = 8
    auto_watermark_interval_ms: int = 200
    latency_interval_ms: int = 0
    metrics_log_interval_ms: int = 0
    log_levels: tuple[tuple[str, str], ...] = ()
    log_format: tuple[str, str] | None = None
    state_backend: str = "heap"
    state_directory: str | None = None
    checkpoints: CheckpointConfig = field(default_factory=CheckpointConfig)
    failover: FailoverConfig = field(default_factory=FailoverConfig)
    autoscaler: AutoscalerConfig = field(default_factory=AutoscalerConfig)
    cached_files: tuple[CachedFile, ...] = ()

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be a whole number from {low} to {high}, not {value!r}"
            for name, value, low, high in (
                ("max_parallelism", self.max_parallelism, 1, LARGEST_MAX_PARALLELISM),
                ("buffer_timeout_ms", self.buffer_timeout_ms, 0, 2**31),
                ("buffer_debloat_target_ms", self.buffer_debloat_target_ms, 0, 2**31),
                ("max_batch_rows", self.max_batch_rows, 1, 2**30),
                ("max_batch_bytes", self.max_batch_bytes, 1, 2**31),
                ("channel_credits", self.channel_credits, 1, 1000),
                ("slot_timeout_ms", self.slot_timeout_ms, 1, 2**31),
                ("warm_processes", self.warm_processes, 0, 10_000),
                ("auto_watermark_interval_ms", self.auto_watermark_interval_ms, 0, 2**31),
                ("latency_interval_ms", self.latency_interval_ms, 0, 2**31),
                ("metrics_log_interval_ms", self.metrics_log_interval_ms, 0, 2**31),
            )
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high
        ]
        cpus = self.slot_cpus
        if not isinstance(cpus, int | float) or isinstance(cpus, bool) or not 0.001 <= cpus <= 1024:
            problems.append(f"slot_cpus must be a number from 0.001 to 1024, not {cpus!r}")
        if self.state_backend not in STATE_BACKENDS:
            problems.append(
                f"state_backend must be one of {', '.join(STATE_BACKENDS)}, not {self.state_backend!r}"
                f"{nearest(str(self.state_backend), STATE_BACKENDS)}"
            )
        if problems:
            raise ConfigurationError("; ".join(problems))


DEFAULTS: Final = JobConfig()


def check_text(given: str, where: str) -> str:
    """A name that a program gives.

    Raises:
        ConfigurationError: it is no text, or an empty one.
    """
    if not isinstance(given, str) or not given:
        raise ConfigurationError(f"{where} takes a text that is not empty, such as 'orders', not {given!r:.200}")
    return given


def check_parallelism(value: int, max_parallelism: int, where: str) -> int:
    """The parallelism itself, if it can be used.

    Raises:
        ConfigurationError: not a whole number from 1 to `max_parallelism`.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"{where}: parallelism must be a whole number of 1 or more, not {value!r}")
    if value > max_parallelism:
        raise ConfigurationError(
            f"{where}: parallelism {value} is over the maximum of {max_parallelism}; raise max_parallelism"
        )
    return value
