"""Reads configurations: keys and values of several places become the settings of a job, or one error with all problems.

`StreamEnvironment.configure` and the command line call it. Whatever is wrong (keys, values, values that do not go
together) is reported at once, each with the place that it comes from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from penstock.actors.spark.options import SparkOptions
from penstock.configuration_keys import (
    KEYS,
    OPERATOR_STORAGE,
    OPERATOR_STORAGE_KEY,
    Settings,
)
from penstock.configuration_kinds import shown, spelled
from penstock.engine.autoscaler_config import AutoscalerConfig
from penstock.engine.checkpoint_config import (
    CheckpointConfig,
    ExponentialDelay,
    FailoverConfig,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartStrategy,
)
from penstock.engine.config import SPELLED_AS_IN_FLINK, JobConfig
from penstock.engine.durations import format_duration
from penstock.engine.elements import CheckpointMode
from penstock.engine.errors import ConfigurationError, nearest


def flattened(values: Mapping[Any, Any], prefix: str = "") -> list[tuple[str, object]]:
    """Keys and values of nested mappings; null means that nothing was given."""
    flat: list[tuple[str, object]] = []
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            flat += flattened(value, f"{key}.")
        elif value is not None:
            flat.append((key, value))
    return flat


@dataclass(frozen=True, slots=True)
class Given:
    """A value, and what to call the place that it comes from (empty: a mapping of the program)."""

    value: object
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Configuration:
    """Values of keys, later ones in place of earlier ones, and what was wrong with the places that they come from.

    Args:
        values: by key.
        problems: what could not be read.
    """

    values: Mapping[str, Given] = dataclasses.field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def over(self, values: Mapping[Any, Any], origin: str) -> Configuration:
        """This configuration with other values (nested or not) over its own."""
        flat = flattened(values)
        names = [name for name, _ in flat]
        twice = sorted({name for name in names if names.count(name) > 1})
        problems = [f"{_place(name, origin)}: is given twice, nested and flat; leave one out" for name in twice]
        given = {name: Given(value, origin) for name, value in flat}
        return Configuration({**self.values, **given}, (*self.problems, *problems))

    def but(self, *problems: str) -> Configuration:
        """This configuration, and something that could not be read."""
        return dataclasses.replace(self, problems=(*self.problems, *problems))

    def settings(self) -> Settings:
        """The values of all keys.

        Raises:
            ConfigurationError: names everything that is wrong.
        """
        settings, problems = self.checked()
        raise_problems(problems)
        assert settings is not None
        return settings

    def checked(self) -> tuple[Settings | None, list[str]]:
        """The values of all keys, where they can be used, and everything that is wrong."""
        settings, problems = self._read()
        return settings, [*self.problems, *problems]

    def _read(self) -> tuple[Settings | None, list[str]]:
        known = {
            name: given.value for name, given in self.values.items() if name in KEYS and name != OPERATOR_STORAGE_KEY
        }
        storage = {
            name.removeprefix(OPERATOR_STORAGE): given.value
            for name, given in self.values.items()
            if name.startswith(OPERATOR_STORAGE)
        }
        unknown = [name for name in self.values if name not in known and not name.startswith(OPERATOR_STORAGE)]
        problems = [f"{self._where(name)}: there is no such key{nearest(name, KEYS)}" for name in unknown]
        if storage:
            known[OPERATOR_STORAGE_KEY] = storage
        try:
            settings = Settings.model_validate(known)
        except ValidationError as error:
            problems += [self._problem(dict(one)) for one in error.errors()]
            bad = {str(one["loc"][0]) for one in error.errors()}
            rest = Settings.model_validate({name: value for name, value in known.items() if name not in bad})
            # Whether a bad value would have gone with the others is not known.
            return None, [*problems, *(one for one in conflicts(rest) if not any(name in one for name in bad))]
        return settings, [*problems, *conflicts(settings)]

    def _problem(self, error: dict[str, Any]) -> str:
        name = str(error["loc"][0])
        if name == OPERATOR_STORAGE_KEY and len(error["loc"]) > 1:
            name = f"{OPERATOR_STORAGE}{error['loc'][1]}"
        return f"{self._where(name)}: {_refusal(error, KEYS[name].kind if name in KEYS else '')}"

    def _where(self, name: str) -> str:
        return _place(name, self.values[name].origin if name in self.values else "")


def _refusal(error: Mapping[str, Any], kind: str) -> str:
    """What pydantic says of a value, in our words."""
    value, context = error["input"], error.get("ctx", {})
    match error["type"]:
        case "value_error":
            return str(context["error"])
        case "greater_than_equal":
            return f"must be {shown(kind, context['ge'])} or more, not {shown(kind, value)}"
        case "less_than_equal":
            return f"must be {shown(kind, context['le'])} or less, not {shown(kind, value)}"
        case "literal_error":
            choices = str(context["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
            return f"must be one of {', '.join(choices)}, not {value!r}{nearest(str(spelled(value)), choices)}"
        case _:
            message = str(error["msg"]).replace("Input should be", "must be").split(", unable")[0]
            return f"{message}, not {value!r}"


def _place(name: str, origin: str) -> str:
    return f"{name} ({origin})" if origin else name


def conflicts(settings: Settings) -> list[str]:
    """Values that are good in themselves, but not together."""
    problems = []
    if settings.interval_ms > settings.timeout_ms:
        problems.append(
            f"execution.checkpointing.interval: {format_duration(settings.interval_ms)} is over "
            f"execution.checkpointing.timeout, {format_duration(settings.timeout_ms)}; raise the timeout to it or more"
        )
    if settings.unaligned and settings.mode == "at-least-once":
        problems.append(
            "execution.checkpointing.unaligned.enabled: goes with mode exactly-once only; leave it out, or set "
            "execution.checkpointing.mode to exactly-once"
        )
    if settings.unaligned and settings.max_concurrent > 1:
        problems.append(
            f"execution.checkpointing.max-concurrent-checkpoints: {settings.max_concurrent} is more than the 1 that "
            "unaligned checkpoints allow, whose barriers would overtake each other"
        )
    if settings.exponential_delay_initial_ms > settings.exponential_delay_largest_ms:
        problems.append(
            "restart-strategy.exponential-delay.initial-backoff: is over restart-strategy.exponential-delay.max-backoff"
        )
    given = settings.model_fields_set
    if {"local_backup", "from_local"} <= given and settings.local_backup is not settings.from_local:
        problems.append(
            "execution.state-recovery.from-local: contradicts execution.checkpointing.local-backup.enabled; set one of "
            "the two, or both alike"
        )
    if settings.parallelism is not None and settings.parallelism > settings.max_parallelism:
        problems.append(
            f"parallelism.default: {settings.parallelism} is over pipeline.max-parallelism, {settings.max_parallelism}"
        )
    if "restart" not in given:
        for strategy in ("fixed-delay", "failure-rate", "exponential-delay"):
            of_strategy = [key for key in KEYS.values() if key.name.startswith(f"restart-strategy.{strategy}.")]
            if any(key.field in given for key in of_strategy):
                problems.append(f"restart-strategy.type: set it to {strategy}, whose settings are given")
    return problems


def raise_problems(problems: Sequence[str]) -> None:
    """Report all of them.

    Raises:
        ConfigurationError: if there are any.
    """
    if len(problems) == 1:
        raise ConfigurationError(problems[0])
    if problems:
        lines = "".join(f"\n  {problem}" for problem in problems)
        raise ConfigurationError(f"{len(problems)} settings cannot be used:{lines}")


def configured(settings: Settings, config: JobConfig) -> JobConfig:
    """The settings of a job, changed by the values that were given.

    Raises:
        ConfigurationError: they do not go with those that the job has otherwise.
    """
    given = settings.model_fields_set
    changes = _given(settings, JobConfig)
    if "backend" in given:
        changes["state_backend"] = SPELLED_AS_IN_FLINK.get(settings.backend, settings.backend)
    return dataclasses.replace(
        config,
        **{
            **changes,
            "checkpoints": _checkpoints(settings, config.checkpoints),
            "failover": _failover(settings, config.failover),
            "autoscaler": dataclasses.replace(config.autoscaler, **_given(settings, AutoscalerConfig, "autoscaler_")),
        },
    )


def configured_spark(settings: Settings, options: SparkOptions) -> SparkOptions:
    """The executors of batch jobs, changed by the values that were given.

    Raises:
        ConfigurationError: they cannot be used.
    """
    return dataclasses.replace(options, **_given(settings, SparkOptions, "spark_"))


def _checkpoints(settings: Settings, current: CheckpointConfig) -> CheckpointConfig:
    given = settings.model_fields_set
    changes = _given(settings, CheckpointConfig)
    changes.pop("mode", None)
    if given & {"mode", "unaligned", "aligned_timeout_ms"}:
        changes |= _alignment(settings, current)
    if "retention" in given:
        changes["retain_on_cancel"] = settings.retention == "retain-on-cancellation"
    if settings.operator_storage:
        changes["storage_overrides"] = tuple(sorted(settings.operator_storage.items()))
    return dataclasses.replace(current, **changes)


def _alignment(settings: Settings, current: CheckpointConfig) -> dict[str, Any]:
    given = settings.model_fields_set
    was_unaligned = current.mode is CheckpointMode.UNALIGNED or current.alignment_timeout_ms is not None
    at_least_once = (
        settings.mode == "at-least-once" if "mode" in given else current.mode is CheckpointMode.AT_LEAST_ONCE
    )
    unaligned = settings.unaligned if "unaligned" in given else was_unaligned
    timeout = settings.aligned_timeout_ms if "aligned_timeout_ms" in given else current.alignment_timeout_ms
    if at_least_once and not ("unaligned" in given and unaligned):
        return {"mode": CheckpointMode.AT_LEAST_ONCE, "alignment_timeout_ms": None}
    if unaligned:
        return {"mode": CheckpointMode.UNALIGNED, "alignment_timeout_ms": timeout or None}
    return {"mode": CheckpointMode.ALIGNED, "alignment_timeout_ms": None}


def _failover(settings: Settings, current: FailoverConfig) -> FailoverConfig:
    given = settings.model_fields_set
    changes = _given(settings, FailoverConfig)
    changes.pop("restart", None)
    if settings.restart is not None:
        changes["restart"] = _restart(settings, settings.restart)
    if "failover" in given:
        changes["regions"] = settings.failover == "region"
    if given & {"local_backup", "from_local"}:
        changes["local_recovery"] = settings.local_backup or settings.from_local
    return dataclasses.replace(current, **changes)


def _restart(settings: Settings, strategy: str) -> RestartStrategy:
    match strategy:
        case "fixed-delay":
            return FixedDelay(**_given(settings, FixedDelay, "fixed_delay_"))
        case "failure-rate":
            return FailureRate(**_given(settings, FailureRate, "failure_rate_"))
        case "exponential-delay":
            return ExponentialDelay(**_given(settings, ExponentialDelay, "exponential_delay_"))
        case _:
            return NoRestart()


def _given(settings: Settings, target: type, prefix: str = "") -> dict[str, Any]:
    """The values that were given for fields of a dataclass, by their names there."""
    names = [field.name for field in dataclasses.fields(target)]
    given = settings.model_fields_set
    return {name: getattr(settings, prefix + name) for name in names if prefix + name in given}
