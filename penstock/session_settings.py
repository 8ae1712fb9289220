"""The settings of an environment: those that it began with, those of `configure`, and over them those of SET.

`StreamEnvironment` holds them. What SET gives can be listed, and taken back by RESET.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from penstock.actors.spark.options import SparkOptions
from penstock.batch import Mode
from penstock.engine.cached_files import CachedFile
from penstock.engine.config import JobConfig
from penstock.engine.errors import ConfigurationError, nearest
from penstock.engine.graph.logical import LogicalGraph
from penstock.engine.job.handle import DEFAULT_NAME
from penstock.job_folders import FRESH, Start

Runtime = Literal["ray", "local"]
_OF_BATCH: Final = ("execution.runtime-mode", "penstock.runtime")
_STATE: Final = "execution.state-recovery.path"


@dataclass(frozen=True, slots=True)
class JobSettings:
    """What the jobs of an environment are run with.

    Args:
        config: their settings.
        parallelism: of operators that set none; None: the system's.
        runtime, address, spark: where they run.
        mode, name, start_from: for those that say nothing else.
    """

    config: JobConfig
    parallelism: int | None
    runtime: Runtime
    address: str | None
    spark: SparkOptions
    mode: Mode = "streaming"
    name: str = DEFAULT_NAME
    start_from: Start = FRESH

    def over(self, values: Mapping[str, object]) -> JobSettings:
        """These settings, changed by what configuration keys say.

        Raises:
            ConfigurationError: names every key and value that cannot be used.
        """
        # pydantic takes 0.2 s to import, and most environments do without it.
        from penstock.configuration import Configuration, configured, configured_spark

        settings = Configuration().over(values, "").settings()
        given = settings.model_fields_set
        start = Start.of(settings.savepoint, settings.allow_non_restored_state)
        return JobSettings(
            configured(settings, self.config),
            settings.parallelism if "parallelism" in given else self.parallelism,
            settings.runtime if "runtime" in given else self.runtime,
            settings.address if "address" in given else self.address,
            configured_spark(settings, self.spark),
            settings.mode_of_execution if "mode_of_execution" in given else self.mode,
            settings.name if settings.name is not None else self.name,
            start if settings.savepoint is not None else self.start_from,
        )


class SessionSettings:
    """The settings of an environment as they change.

    Args:
        base: those that it begins with.

    Attributes:
        now: those that count.
    """

    def __init__(self, base: JobSettings) -> None:
        self.now = base
        self._base = base
        self._given: Mapping[str, str] = {}

    @property
    def given(self) -> Mapping[str, str]:
        """What SET has given, by key."""
        return self._given

    def configure(self, values: Mapping[str, object]) -> None:
        """Set what keys say, for good; also over what SET has given for them. Errors as of `JobSettings.over`."""
        from penstock.configuration import flattened

        base = self._base.over(values)
        keys = {key for key, _ in flattened(values)}
        self._take(base, {key: value for key, value in self._given.items() if key not in keys})

    def cache(self, file: CachedFile) -> None:
        """Have jobs bring a file to their nodes."""
        config = self._base.config
        base = replace(self._base, config=replace(config, cached_files=(*config.cached_files, file)))
        self._take(base, self._given)

    def set(self, key: str, value: str) -> None:
        """Give a key a value, until `reset`.

        Raises:
            ConfigurationError: there is no such key, it does not take the value, or batch mode cannot run here.
        """
        given = {**self._given, key: value}
        now = self._base.over(given)
        if key in _OF_BATCH and now.mode == "batch" and now.runtime == "local":
            raise ConfigurationError(
                "batch mode runs on a Ray cluster, and this session runs in its own process: begin it by "
                "`penstock sql --runtime ray` (in Python runtime='ray'), or leave 'streaming', which gives the same "
                "rows of tables that end"
            )
        self.now, self._given = now, given

    def reset(self, key: str | None = None) -> None:
        """Take back what SET has given for a key, or for all.

        Raises:
            ConfigurationError: there is no such key, or others that were given need it.
        """
        if key is not None:
            self.check_key(key)
        self._take(self._base, {} if key is None else {one: v for one, v in self._given.items() if one != key})

    def check_key(self, key: str) -> None:
        """Make sure that there is such a key.

        Raises:
            ConfigurationError: there is not.
        """
        from penstock.configuration_keys import KEYS, OPERATOR_STORAGE

        if key not in KEYS and not key.startswith(OPERATOR_STORAGE):
            raise ConfigurationError(f"there is no option {key!r}{nearest(key, KEYS)}")

    def start_of(self, program: LogicalGraph) -> Start:
        """What a job begins with whose user does not say: the savepoint of SET is for programs that write."""
        writes = any(node.traits is not None and node.traits.sink is not None for node in program)
        return self._base.start_from if _STATE in self._given and not writes else self.now.start_from

    def _take(self, base: JobSettings, given: Mapping[str, str]) -> None:
        self.now = base.over(given) if given else base
        self._base, self._given = base, given
