"""Configuration keys: what they set, and that everything wrong with them is reported together, by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock import StreamEnvironment
from penstock.configuration import Configuration, configured
from penstock.configuration_keys import KEYS, variable_of
from penstock.engine.checkpoint_config import ExponentialDelay, FailureRate, FixedDelay, NoRestart
from penstock.engine.config import DEFAULTS, JobConfig
from penstock.engine.durations import parse_duration
from penstock.engine.elements import CheckpointMode
from penstock.engine.errors import ConfigurationError

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"
INTERVAL = "execution.checkpointing.interval"


def config_by(values: Mapping[str, object]) -> JobConfig:
    return StreamEnvironment.from_configuration(values).config


def problems(values: Mapping[str, Any]) -> str:
    with pytest.raises(ConfigurationError) as raised:
        StreamEnvironment.from_configuration(values)
    return str(raised.value)


# What keys set


def test_without_keys_there_are_the_defaults() -> None:
    assert configured(Configuration().settings(), DEFAULTS) == DEFAULTS == StreamEnvironment().config


def test_keys_set_what_they_say() -> None:
    config = config_by(
        {
            INTERVAL: "10 s",
            "execution.checkpointing.timeout": "5min",
            "execution.checkpointing.min-pause": "500ms",
            "execution.checkpointing.tolerable-failed-checkpoints": "2",
            "execution.checkpointing.num-retained": 3,
            "execution.checkpointing.dir": "s3://bucket/checkpoints",
            "execution.checkpointing.savepoint-dir": "s3://bucket/savepoints",
            "execution.checkpointing.incremental": "false",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "penstock.operator-storage.totals": "s3://fast/state",
            "pipeline.max-parallelism": "256",
            "pipeline.auto-watermark-interval": "1s",
            "execution.buffer-timeout.interval": "0",
            "slot.request.timeout": "5m",
            "state.backend.rocksdb.localdir": "state",
            "penstock.slot-cpus": "0.5",
            "penstock.log.levels": "INFO;fraud=debug",
            "penstock.slot-labels": "ray.io/market-type=on-demand; zone = !b",
            "penstock.max-batch-rows": "1000",
            "penstock.standbys": 2,
            "heartbeat.timeout": "20s",
        }
    )
    checkpoints = config.checkpoints
    assert (checkpoints.interval_ms, checkpoints.timeout_ms, checkpoints.min_pause_ms) == (10_000, 300_000, 500)
    assert (checkpoints.tolerable_failures, checkpoints.retained) == (2, 3)
    assert (checkpoints.storage, checkpoints.savepoint_storage) == ("s3://bucket/checkpoints", "s3://bucket/savepoints")
    assert (checkpoints.incremental, checkpoints.retain_on_cancel) == (False, True)
    assert checkpoints.storage_overrides == (("totals", "s3://fast/state"),)
    assert (config.max_parallelism, config.slot_cpus, config.max_batch_rows) == (256, 0.5, 1000)
    assert (config.auto_watermark_interval_ms, config.buffer_timeout_ms, config.slot_timeout_ms) == (1000, 0, 300_000)
    assert config.state_directory == "state"
    assert config.log_levels == (("", "INFO"), ("fraud", "DEBUG"))
    assert config.slot_labels == (("ray.io/market-type", "on-demand"), ("zone", "!b"))
    assert (config.failover.standbys, config.failover.heartbeat_timeout_ms) == (2, 20_000)


@pytest.mark.parametrize(
    ("values", "mode", "timeout"),
    [
        ({}, CheckpointMode.ALIGNED, None),
        ({"mode": "EXACTLY_ONCE"}, CheckpointMode.ALIGNED, None),
        ({"mode": "at-least-once"}, CheckpointMode.AT_LEAST_ONCE, None),
        ({"unaligned.enabled": "true"}, CheckpointMode.UNALIGNED, None),
        ({"unaligned.enabled": True, "aligned-checkpoint-timeout": "30s"}, CheckpointMode.UNALIGNED, 30_000),
        ({"aligned-checkpoint-timeout": "30s"}, CheckpointMode.ALIGNED, None),
    ],
)
def test_modes_of_checkpoints(values: dict[str, object], mode: CheckpointMode, timeout: int | None) -> None:
    checkpoints = config_by({f"execution.checkpointing.{name}": value for name, value in values.items()}).checkpoints
    assert (checkpoints.mode, checkpoints.alignment_timeout_ms) == (mode, timeout)


@pytest.mark.parametrize(
    ("values", "strategy"),
    [
        ({"type": "none"}, NoRestart()),
        ({"type": False}, NoRestart()),  # YAML's reading of `off`
        ({"type": "disable"}, NoRestart()),
        ({"type": "fixed-delay"}, FixedDelay()),
        ({"type": "fixed-delay", "fixed-delay.attempts": 7, "fixed-delay.delay": "5s"}, FixedDelay(7, 5000)),
        (
            {"type": "failure-rate", "failure-rate.max-failures-per-interval": 5, "failure-rate.delay": "0"},
            FailureRate(5, delay_ms=0),
        ),
        (
            {"type": "exponential-delay", "exponential-delay.max-backoff": "10s", "exponential-delay.jitter-factor": 0},
            ExponentialDelay(largest_ms=10_000, jitter=0.0),
        ),
    ],
)
def test_restart_strategies(values: dict[str, object], strategy: object) -> None:
    config = config_by({f"restart-strategy.{name}": value for name, value in values.items()})
    assert config.failover.restart == strategy


def test_one_of_the_two_keys_of_local_recovery_is_enough() -> None:
    assert config_by({"execution.state-recovery.from-local": True}).failover.local_recovery
    assert config_by({"execution.checkpointing.local-backup.enabled": True}).failover.local_recovery
    assert not config_by({"execution.state-recovery.from-local": False}).failover.local_recovery


def test_heap_and_hashmap_are_the_same_backend() -> None:
    assert StreamEnvironment(runtime="local", state_backend="hashmap").config.state_backend == "heap"
    for name, backend in (("hashmap", "heap"), ("heap", "heap"), ("ROCKSDB", "rocksdb")):
        assert config_by({"state.backend.type": name}).state_backend == backend


def test_regions_restart_alone_unless_the_strategy_is_full() -> None:
    assert config_by({"jobmanager.execution.failover-strategy": "region"}).failover.regions
    assert not config_by({"jobmanager.execution.failover-strategy": "full"}).failover.regions


def test_nested_mappings_are_flattened_and_null_means_nothing() -> None:
    nested = {"execution": {"checkpointing": {"interval": "10s", "dir": None}}, "pipeline.max-parallelism": 64}
    config = config_by(nested)
    assert (config.checkpoints.interval_ms, config.checkpoints.storage, config.max_parallelism) == (10_000, None, 64)


def test_configure_keeps_what_it_does_not_name() -> None:
    env = StreamEnvironment(max_batch_rows=7, runtime="local")
    env.configure({"execution.checkpointing.unaligned.enabled": True, INTERVAL: "1s"})
    env.configure({"execution.checkpointing.mode": "exactly-once"})
    assert (env.runtime, env.config.max_batch_rows, env.config.checkpoints.interval_ms) == ("local", 7, 1000)
    assert env.config.checkpoints.mode is CheckpointMode.UNALIGNED


def test_a_configuration_that_cannot_be_used_changes_nothing() -> None:
    env = StreamEnvironment(runtime="local")
    with pytest.raises(ConfigurationError):
        env.configure({"penstock.runtime": "ray", "parallelism.default": 0})
    assert env.runtime == "local"


# What is wrong


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("execution.checkpointing.intervall", "10s", f"there is no such key (did you mean '{INTERVAL}'?)"),
        ("nonsense", "1", "nonsense: there is no such key"),
        (INTERVAL, "10", "'10' is no duration; write a number with a unit"),
        (INTERVAL, "10 parsecs", "'10 parsecs' is no duration"),
        (INTERVAL, "-1s", "-1s is negative; give a time forward"),
        (INTERVAL, True, "'True' is no duration; write a number with a unit"),
        ("execution.checkpointing.timeout", "0", "must be 1ms or more, not 0ms"),
        (
            "execution.checkpointing.mode",
            "exactly-one",
            "must be one of exactly-once, at-least-once, not 'exactly-one'",
        ),
        ("execution.checkpointing.num-retained", "many", "must be a valid integer, not 'many'"),
        ("execution.checkpointing.num-retained", True, "must be a whole number, not True"),
        ("execution.checkpointing.incremental", "maybe", "must be a valid boolean, not 'maybe'"),
        ("execution.checkpointing.dir", "s4://bucket", "no storage is called 's4'"),
        (
            "execution.checkpointing.dir",
            "s3://me:secret@bucket/x",
            "credentials and options do not belong into the URL",
        ),
        ("penstock.operator-storage.totals", "s4://x", "penstock.operator-storage.totals: s4://x: no storage"),
        ("parallelism.default", 0, "must be 1 or more, not 0"),
        ("state.backend.type", "rocks", "must be one of hashmap, rocksdb, not 'rocks' (did you mean 'rocksdb'?)"),
        ("penstock.slot-cpus", "two", "must be a valid number, not 'two'"),
    ],
)
def test_a_key_or_value_that_cannot_be_used_is_named(key: str, value: object, message: str) -> None:
    said = problems({key: value})
    assert message in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({INTERVAL: "20m"}, "20m is over execution.checkpointing.timeout, 10m"),
        (
            {"execution.checkpointing.mode": "at-least-once", "execution.checkpointing.unaligned.enabled": True},
            "goes with mode exactly-once only",
        ),
        (
            {
                "execution.checkpointing.unaligned.enabled": True,
                "execution.checkpointing.max-concurrent-checkpoints": 2,
            },
            "2 is more than the 1 that unaligned checkpoints allow",
        ),
        ({"restart-strategy.fixed-delay.attempts": 3}, "restart-strategy.type: set it to fixed-delay"),
        ({"restart-strategy.exponential-delay.initial-backoff": "2m"}, "initial-backoff: is over"),
        ({"parallelism.default": 200}, "200 is over pipeline.max-parallelism, 128"),
        (
            {"execution.checkpointing.local-backup.enabled": True, "execution.state-recovery.from-local": False},
            "contradicts",
        ),
    ],
)
def test_values_that_do_not_go_together_are_refused(values: dict[str, object], message: str) -> None:
    assert message in problems(values)


def test_everything_that_is_wrong_is_reported_together() -> None:
    said = problems(
        {
            INTERVAL: "20m",
            "heartbeat.timeuot": "5s",
            "parallelism.default": "zero",
            "execution.checkpointing.mode": "twice",
            "penstock.standbys": -1,
        }
    ).splitlines()
    assert said[0] == "5 settings cannot be used:"
    assert [line.strip().split(":")[0] for line in said[1:]] == [
        "heartbeat.timeuot",
        "execution.checkpointing.mode",
        "parallelism.default",
        "penstock.standbys",
        INTERVAL,
    ]


def test_a_key_that_is_given_nested_and_flat_is_refused() -> None:
    said = problems({"parallelism": {"default": 2}, "parallelism.default": 3})
    assert said == "parallelism.default: is given twice, nested and flat; leave one out"


def test_a_bad_value_is_not_blamed_on_another_key() -> None:
    assert "is over" not in problems({INTERVAL: "20m", "execution.checkpointing.timeout": "soon"})


def test_settings_that_contradict_those_of_the_program_are_refused() -> None:
    env = StreamEnvironment()
    env.configure({"execution.checkpointing.max-concurrent-checkpoints": 2})
    with pytest.raises(ConfigurationError, match="max_concurrent 2 is more than the 1"):
        env.configure({"execution.checkpointing.unaligned.enabled": True})


# The table


def test_every_variable_belongs_to_one_key() -> None:
    variables = [key.variable for key in KEYS.values() if key.variable]
    assert len(set(variables)) == len(variables) == len(KEYS) - 1
    assert variable_of(INTERVAL) == "PENSTOCK_EXECUTION_CHECKPOINTING_INTERVAL"


def test_the_default_of_each_key_is_a_value_that_it_takes() -> None:
    defaults = {key.name: key.default for key in KEYS.values() if key.default and not key.name.endswith("UID")}
    given = {name: value for name, value in defaults.items() if not name.startswith("restart-strategy.")}
    config = config_by(given)
    assert config == DEFAULTS


@pytest.mark.parametrize("page", ["configuration.md", "guide.md"])
def test_the_pages_list_the_units_of_durations_as_the_error_does(page: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_duration("soon", "gap")
    (units,) = re.findall(r"with a unit \((.+?)\)", str(raised.value))
    listed = ", ".join(f"`{unit}`" for unit in units.split(", "))
    assert listed in (PAGE.parent / page).read_text()
    assert units in problems({INTERVAL: True})


def test_the_reference_page_has_every_key_as_it_is() -> None:
    lines = [
        f"| `{key.name}` | {key.kind} | {f'`{key.default}`' if key.default else ''} | {key.meaning} |"
        for key in KEYS.values()
    ]
    table = "\n".join(["| key | values | default | meaning |", "|---|---|---|---|", *lines])
    assert table in PAGE.read_text(), f"docs/configuration.md must have this table:\n{table}"
