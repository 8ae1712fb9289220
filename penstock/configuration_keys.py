"""The table of configuration keys, spelled as Flink 2 spells them: type, limits, default and meaning of each.

`configuration` reads values by it, and the reference page (docs/configuration.md) is held to it by a test. Defaults are
those of the settings that the keys stand for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from penstock.actors.spark.options import SparkOptions
from penstock.configuration_kinds import (
    Backend,
    Count,
    Failover,
    Labels,
    Levels,
    Memory,
    Milliseconds,
    Mode,
    Names,
    Number,
    Periods,
    Retention,
    Runtime,
    RuntimeMode,
    Strategy,
    Url,
    kind_of,
    shown,
)
from penstock.engine.autoscaler_config import AutoscalerConfig
from penstock.engine.checkpoint_config import (
    LONGEST_MS,
    MOST,
    CheckpointConfig,
    ExponentialDelay,
    FailoverConfig,
    FailureRate,
    FixedDelay,
)
from penstock.engine.config import DEFAULTS, LARGEST_MAX_PARALLELISM

OPERATOR_STORAGE: Final = "penstock.operator-storage."
"""Followed by the uid of an operator: the one family of keys."""
OPERATOR_STORAGE_KEY: Final = f"{OPERATOR_STORAGE}UID"
VARIABLES: Final = "PENSTOCK_"
"""How the variables of the environment begin that give keys."""
_OWN: Final = "penstock."
_CHECKPOINTS: Final = CheckpointConfig()
_FAILOVER: Final = FailoverConfig()
_FIXED: Final = FixedDelay()
_RATE: Final = FailureRate()
_EXPONENTIAL: Final = ExponentialDelay()
_SPARK: Final = SparkOptions()
_SCALING: Final = AutoscalerConfig()


def _key(key: str, default: object, meaning: str, low: float | None = None, high: float | None = None) -> Any:
    return Field(default, alias=key, description=meaning, ge=low, le=high)


def _time(key: str, default: int | None, meaning: str, low: int = 0) -> Any:
    return _key(key, default, meaning, low, LONGEST_MS)


class Settings(BaseModel):
    """The values of all keys. `model_fields_set` tells those that were given from those that have their default.

    A field is called as the setting of `JobConfig`, `CheckpointConfig` or `FailoverConfig` that it gives as it is.
    """

    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True, hide_input_in_errors=True)

    interval_ms: Milliseconds = _time(
        "execution.checkpointing.interval", 0, "From one checkpoint to the next; 0 takes none but those asked for."
    )
    mode: Mode = _key("execution.checkpointing.mode", "exactly-once", "What state is worth after a failure.")
    timeout_ms: Milliseconds = _time(
        "execution.checkpointing.timeout", _CHECKPOINTS.timeout_ms, "A checkpoint that takes longer is given up.", 1
    )
    min_pause_ms: Milliseconds = _time(
        "execution.checkpointing.min-pause", _CHECKPOINTS.min_pause_ms, "From the end of one to the next."
    )
    max_concurrent: Count = _key(
        "execution.checkpointing.max-concurrent-checkpoints",
        _CHECKPOINTS.max_concurrent,
        "How many may be under way; 1 where they can become unaligned.",
        1,
        MOST,
    )
    tolerable_failures: Count = _key(
        "execution.checkpointing.tolerable-failed-checkpoints",
        _CHECKPOINTS.tolerable_failures,
        "How many may fail in a row; one more fails the job.",
        0,
        MOST,
    )
    retained: Count = _key(
        "execution.checkpointing.num-retained",
        _CHECKPOINTS.retained,
        "How many completed checkpoints are kept.",
        1,
        MOST,
    )
    storage: Url | None = _key(
        "execution.checkpointing.dir",
        None,
        "Folder for the checkpoints of all jobs: a path, `file://`, `s3://`, `gs://`, `az://`, `ray://`. With an "
        "interval and without this: `~/.penstock/checkpoints`.",
    )
    savepoint_storage: Url | None = _key(
        "execution.checkpointing.savepoint-dir",
        None,
        "Folder for savepoints that name none. Beside the default checkpoints: `~/.penstock/savepoints`.",
    )
    unaligned: bool = _key(
        "execution.checkpointing.unaligned.enabled",
        False,
        "Take rows on their way into the checkpoint instead of waiting for barriers to align.",
    )
    aligned_timeout_ms: Milliseconds = _time(
        "execution.checkpointing.aligned-checkpoint-timeout",
        0,
        "With unaligned checkpoints: how long each first tries to align; 0 does not.",
    )
    incremental: bool = _key(
        "execution.checkpointing.incremental", _CHECKPOINTS.incremental, "Write only what has changed."
    )
    retention: Retention = _key(
        "execution.checkpointing.externalized-checkpoint-retention",
        "no-externalized-checkpoints",
        "Whether the newest checkpoint stays when the job is cancelled; that of a failed job always does.",
    )
    local_backup: bool = _key(
        "execution.checkpointing.local-backup.enabled",
        _FAILOVER.local_recovery,
        "Each process keeps what it wrote last on its own disk; goes with `execution.state-recovery.from-local`.",
    )
    from_local: bool = _key(
        "execution.state-recovery.from-local",
        _FAILOVER.local_recovery,
        "Restore from these copies after a failure. Set one of the two: the other one follows.",
    )
    savepoint: Url | None = _key(
        "execution.state-recovery.path", None, "Savepoint or retained checkpoint that the job starts from."
    )
    allow_non_restored_state: bool = _key(
        "execution.state-recovery.ignore-unclaimed-state",
        False,
        "Drop state there of operators that the program does not have.",
    )
    restart: Strategy | None = _key(
        "restart-strategy.type",
        None,
        "`none`, `fixed-delay`, `failure-rate` or `exponential-delay`, which is the default with an interval; without "
        "one the first failure ends the job.",
    )
    fixed_delay_attempts: Count = _key(
        "restart-strategy.fixed-delay.attempts", _FIXED.attempts, "How many restarts in all.", 0, MOST
    )
    fixed_delay_delay_ms: Milliseconds = _time(
        "restart-strategy.fixed-delay.delay", _FIXED.delay_ms, "Before each restart."
    )
    failure_rate_failures: Count = _key(
        "restart-strategy.failure-rate.max-failures-per-interval",
        _RATE.failures,
        "How many failures the job gets over within the interval.",
        1,
        MOST,
    )
    failure_rate_interval_ms: Milliseconds = _time(
        "restart-strategy.failure-rate.failure-rate-interval", _RATE.interval_ms, "In which they are counted.", 1
    )
    failure_rate_delay_ms: Milliseconds = _time(
        "restart-strategy.failure-rate.delay", _RATE.delay_ms, "Before each restart."
    )
    exponential_delay_initial_ms: Milliseconds = _time(
        "restart-strategy.exponential-delay.initial-backoff",
        _EXPONENTIAL.initial_ms,
        "Before the first restart.",
        1,
    )
    exponential_delay_largest_ms: Milliseconds = _time(
        "restart-strategy.exponential-delay.max-backoff", _EXPONENTIAL.largest_ms, "Before any restart.", 1
    )
    exponential_delay_factor: Number = _key(
        "restart-strategy.exponential-delay.backoff-multiplier",
        _EXPONENTIAL.factor,
        "By which the delay grows with each failure.",
        1,
        1000,
    )
    exponential_delay_reset_after_ms: Milliseconds = _time(
        "restart-strategy.exponential-delay.reset-backoff-threshold",
        _EXPONENTIAL.reset_after_ms,
        "How long the job must run well for the delay to begin anew.",
        1,
    )
    exponential_delay_jitter: Number = _key(
        "restart-strategy.exponential-delay.jitter-factor",
        _EXPONENTIAL.jitter,
        "Share of the delay by which it is longer or shorter at random.",
        0,
        1,
    )
    exponential_delay_attempts: Count | None = _key(
        "restart-strategy.exponential-delay.attempts-before-reset-backoff",
        None,
        "How many restarts there may be without such a time; unset: any number.",
        0,
        MOST,
    )
    failover: Failover = _key(
        "jobmanager.execution.failover-strategy",
        "region",
        "`region` restarts the part of the job that is connected to the failure, `full` all of it.",
    )
    heartbeat_timeout_ms: Milliseconds = _time(
        "heartbeat.timeout",
        _FAILOVER.heartbeat_timeout_ms,
        "A process that lives and has not answered for so long is replaced.",
        100,
    )
    backend: Backend = _key(
        "state.backend.type", "hashmap", "Where keyed state lives: `hashmap` (memory) or `rocksdb` (local disk)."
    )
    state_directory: str | None = _key(
        "state.backend.rocksdb.localdir",
        None,
        "Its folder, and that of cached files; unset: the system's temporary folder.",
    )
    parallelism: Count | None = _key(
        "parallelism.default",
        None,
        "Subtasks of each operator that sets no number; unset: the number of CPUs.",
        1,
        LARGEST_MAX_PARALLELISM,
    )
    max_parallelism: Count = _key(
        "pipeline.max-parallelism",
        DEFAULTS.max_parallelism,
        "Number of key groups: the largest parallelism there can ever be.",
        1,
        LARGEST_MAX_PARALLELISM,
    )
    name: str | None = _key("pipeline.name", None, "The job's name; unset: the name of the flow.")
    auto_watermark_interval_ms: Milliseconds = _time(
        "pipeline.auto-watermark-interval",
        DEFAULTS.auto_watermark_interval_ms,
        "How often watermark generators are asked while no row comes (0: never), and how far apart watermarks travel "
        "that no row takes along (as they come where rows do not wait either).",
    )
    buffer_timeout_ms: Milliseconds = _time(
        "execution.buffer-timeout.interval",
        DEFAULTS.buffer_timeout_ms,
        "The longest that rows wait for a batch to fill, and that a task rests behind few rows; 0 is fastest for a "
        "single row.",
    )
    buffer_debloat_target_ms: Milliseconds = _time(
        "taskmanager.network.memory.buffer-debloat.target",
        DEFAULTS.buffer_debloat_target_ms,
        "What waits before a task should be worth so much of its time, by what it does in a second: reads, messages "
        "and batches are bounded by it. 0: by their size alone.",
    )
    slot_timeout_ms: Milliseconds = _time(
        "slot.request.timeout", DEFAULTS.slot_timeout_ms, "How long a job waits for room on the cluster.", 1
    )
    runtime: Runtime = _key("penstock.runtime", "ray", "`ray` (one actor a subtask) or `local` (one process).")
    address: str | None = _key(
        "penstock.address",
        None,
        "Of the Ray cluster: `host:port`, `ray://...`, or `auto` for the one on this machine.",
    )
    standbys: Count = _key("penstock.standbys", _FAILOVER.standbys, "Kept warm to replace those that die.", 0, 10_000)
    warm_processes: Count = _key(
        "penstock.warm-processes", DEFAULTS.warm_processes, "Kept for the next job on each node, at most.", 0, 10_000
    )
    min_parallelism: Count | None = _key(
        "penstock.restart.min-parallelism",
        None,
        "With how few subtasks of each operator a job may restart where the cluster has no room for all; it gets them "
        "back once there is. Unset: it waits for room.",
        1,
        LARGEST_MAX_PARALLELISM,
    )
    latency_interval_ms: Milliseconds = _time(
        "metrics.latency.interval",
        DEFAULTS.latency_interval_ms,
        "How often sources send latency markers, of which each operator keeps a histogram by source; 0: never.",
    )
    metrics_log_interval_ms: Milliseconds = _time(
        "penstock.metrics.log-interval",
        DEFAULTS.metrics_log_interval_ms,
        "How often the job manager logs a line of rates; 0: never.",
    )
    log_levels: Levels = _key(
        "penstock.log.levels",
        (),
        "The lowest levels that functions log: `INFO;fraud=DEBUG` names one for all, and one logger.",
    )
    slot_cpus: Number = _key("penstock.slot-cpus", DEFAULTS.slot_cpus, "CPUs that each slot reserves.", 0.001, 1024)
    slot_labels: Labels = _key(
        "penstock.slot-labels", (), "Labels of the nodes that slots come to: `ray.io/market-type=on-demand`, `zone=!b`."
    )
    max_batch_rows: Count = _key("penstock.max-batch-rows", DEFAULTS.max_batch_rows, "Rows of a batch.", 1, 2**30)
    max_batch_bytes: Count = _key(
        "penstock.max-batch-bytes", DEFAULTS.max_batch_bytes, "The most bytes of a batch.", 1, 2**31
    )
    channel_credits: Count = _key(
        "penstock.channel-credits", DEFAULTS.channel_credits, "Batches under way between two subtasks.", 1, 1000
    )
    mode_of_execution: RuntimeMode = _key(
        "execution.runtime-mode",
        "streaming",
        "`batch` runs on Spark, where all sources end; `automatic`: batch where they do.",
    )
    spark_executors: Count = _key("penstock.spark.executors", _SPARK.executors, "Executors of batch jobs.", 1, 10_000)
    spark_cores: Count = _key("penstock.spark.cores", _SPARK.cores, "CPUs of each executor.", 1, 1024)
    spark_memory: Memory = _key("penstock.spark.memory", _SPARK.memory, "Heap of each executor, such as `4g`.")
    autoscaler_enabled: bool = _key("job.autoscaler.enabled", _SCALING.enabled, "Watch the job, and rescale it.")
    autoscaler_scaling_enabled: bool = _key(
        "job.autoscaler.scaling.enabled",
        _SCALING.scaling_enabled,
        "Without it, a dry run: `penstock autoscaler` says what would be done.",
    )
    autoscaler_interval_ms: Milliseconds = _time(
        "job.autoscaler.control-loop.interval", _SCALING.interval_ms, "Between two looks at the job.", 100
    )
    autoscaler_metrics_window_ms: Milliseconds = _time(
        "job.autoscaler.metrics.window", _SCALING.metrics_window_ms, "Over which rates are taken.", 1000
    )
    autoscaler_stabilization_ms: Milliseconds = _time(
        "job.autoscaler.stabilization.interval",
        _SCALING.stabilization_ms,
        "Behind each start of the job, for which its figures mean nothing.",
    )
    autoscaler_utilization_target: Number = _key(
        "job.autoscaler.utilization.target", _SCALING.utilization_target, "How busy a task is to be.", 0.01, 1
    )
    autoscaler_utilization_max: Number = _key(
        "job.autoscaler.utilization.max", _SCALING.utilization_max, "A busier task gets more subtasks.", 0.01, 1
    )
    autoscaler_utilization_min: Number = _key(
        "job.autoscaler.utilization.min", _SCALING.utilization_min, "An idler task gives some back.", 0.01, 1
    )
    autoscaler_scale_down_interval_ms: Milliseconds = _time(
        "job.autoscaler.scale-down.interval",
        _SCALING.scale_down_interval_ms,
        "For how long fewer subtasks must have been enough; then as many stay as were needed at its worst.",
    )
    autoscaler_scale_down_max_factor: Number = _key(
        "job.autoscaler.scale-down.max-factor",
        _SCALING.scale_down_max_factor,
        "The largest share of the subtasks that is given back at once.",
        0.01,
        1,
    )
    autoscaler_scale_up_max_factor: Number = _key(
        "job.autoscaler.scale-up.max-factor",
        _SCALING.scale_up_max_factor,
        "How many times its subtasks a task may get more at once.",
        0.01,
        1_000_000,
    )
    autoscaler_catch_up_duration_ms: Milliseconds = _time(
        "job.autoscaler.catch-up.duration",
        _SCALING.catch_up_duration_ms,
        "Within which a backlog is to be worked off.",
        1000,
    )
    autoscaler_restart_time_ms: Milliseconds = _time(
        "job.autoscaler.restart.time", _SCALING.restart_time_ms, "What a rescale takes, until one has been measured."
    )
    autoscaler_backlog_lag_threshold_ms: Milliseconds = _time(
        "job.autoscaler.backlog-processing.lag-threshold",
        _SCALING.backlog_lag_threshold_ms,
        "A job so far behind its sources only catches up: nothing is given back.",
    )
    autoscaler_observed_rate_lag_threshold_ms: Milliseconds = _time(
        "job.autoscaler.observed-true-processing-rate.lag-threshold",
        _SCALING.observed_rate_lag_threshold_ms,
        "A source so far behind is known to read as fast as it can.",
    )
    autoscaler_observed_rate_switch_threshold: Number = _key(
        "job.autoscaler.observed-true-processing-rate.switch-threshold",
        _SCALING.observed_rate_switch_threshold,
        "By how much busy time must promise more than that for it not to be believed.",
        0,
        100,
    )
    autoscaler_effectiveness_detection: bool = _key(
        "job.autoscaler.scaling.effectiveness.detection.enabled",
        _SCALING.effectiveness_detection,
        "Leave a task alone that more subtasks have not made faster.",
    )
    autoscaler_effectiveness_threshold: Number = _key(
        "job.autoscaler.scaling.effectiveness.threshold",
        _SCALING.effectiveness_threshold,
        "The least share of the hoped-for gain that counts as faster.",
        0.001,
        1,
    )
    autoscaler_min_parallelism: Count = _key(
        "job.autoscaler.vertex.min-parallelism", _SCALING.min_parallelism, "Of each task.", 1, LARGEST_MAX_PARALLELISM
    )
    autoscaler_max_parallelism: Count = _key(
        "job.autoscaler.vertex.max-parallelism", _SCALING.max_parallelism, "Of each task.", 1, LARGEST_MAX_PARALLELISM
    )
    autoscaler_excluded: Names = _key(
        "job.autoscaler.vertex.exclude.ids", (), "Tasks that are left alone: uids or names of operators."
    )
    autoscaler_excluded_periods: Periods = _key(
        "job.autoscaler.excluded.periods",
        (),
        "When nothing is changed, in UTC: `9:30-12:00`, as cron `* * 9-11 ? * MON-FRI`, or both by `&&`.",
    )
    autoscaler_quota_cpu: Number | None = _key(
        "job.autoscaler.quota.cpu", None, "The most CPUs that the job's slots may reserve; unset: any.", 0.001, 2**31
    )
    autoscaler_history: Count = _key(
        "job.autoscaler.history.max.count", _SCALING.history, "How many decisions are kept.", 1, 10_000
    )
    operator_storage: dict[str, Url] = _key(OPERATOR_STORAGE_KEY, {}, "Checkpoint storage of one operator, by its uid.")


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the configuration.

    Args:
        name: as files and `-D` have it.
        variable: of the environment.
        field: of `Settings`.
        kind: what its values are, such as "duration".
        default: as text, empty where there is none.
        meaning: for people.
    """

    name: str
    variable: str
    field: str
    kind: str
    default: str
    meaning: str


def variable_of(key: str) -> str:
    """The variable of the environment for a key.

    Example:
        >>> variable_of("execution.checkpointing.min-pause")
        'PENSTOCK_EXECUTION_CHECKPOINTING_MIN_PAUSE'
        >>> variable_of("penstock.runtime")
        'PENSTOCK_RUNTIME'
    """
    return VARIABLES + key.removeprefix(_OWN).replace(".", "_").replace("-", "_").upper()


def _described(field: str, info: FieldInfo) -> Key:
    assert info.alias is not None
    assert info.description is not None
    kind = kind_of(info.annotation, info.metadata)
    variable = "" if info.alias == OPERATOR_STORAGE_KEY else variable_of(info.alias)
    return Key(info.alias, variable, field, kind, shown(kind, info.default), info.description)


KEYS: Final[Mapping[str, Key]] = {
    key.name: key for key in (_described(field, info) for field, info in Settings.model_fields.items())
}
"""Every key, in the order of the reference page."""
