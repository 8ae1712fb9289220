"""What the Spark of batch jobs looks like: how many executors, how large, and settings of Spark's own.

The environment holds these options, and `session.py` starts Spark by them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.engine.errors import ConfigurationError

_MEMORY: Final = re.compile(r"(\d+)\s*([kmgt])i?b?", re.IGNORECASE)
_UNITS: Final = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_LEAST_MEMORY: Final = 471_859_200
"""Spark starts no executor with less than 450 MiB."""
_OURS: Final = {
    "spark.executor.instances": "executors",
    "spark.executor.cores": "cores",
    "spark.executor.memory": "memory",
}
_FIXED: Final = {
    "spark.sql.adaptive.enabled": "Spark must not join or split partitions, which are subtasks (queries of your own: "
    "env.spark_session() has it)",
    "spark.speculation": "a subtask that runs twice at the same time would write to its sinks twice",
    "spark.executorEnv.PYTHONPATH": "executors import from where this process does; extend sys.path before the start",
}
"""Settings that batch jobs depend on, each with the reason."""


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """The executors of batch jobs.

    Args:
        executors: how many.
        cores: CPUs of each, which is how many subtasks run in it at once.
        memory: heap of each, such as `"4g"`. The Python processes beside it need memory of their own.
        configuration: settings of Spark, by key; they go over those that Penstock makes, but for the sizes above and
            what batch jobs depend on.

    Raises:
        ConfigurationError: names every option that cannot be used.

    Example:
        >>> SparkOptions(executors=2, cores=4, memory="8g").memory_bytes
        8589934592
    """

    executors: int = 1
    cores: int = 2
    memory: str = "1g"
    configuration: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Not shown: there may be secrets in it."""

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be a whole number of 1 or more, not {value!r}"
            for name, value in (("executors", self.executors), ("cores", self.cores))
            if not isinstance(value, int) or isinstance(value, bool) or value < 1
        ]
        size = parsed_memory(self.memory)
        if size is None:
            problems.append(f"memory must be a size such as '4g' or '512m', not {self.memory!r}")
        elif size < _LEAST_MEMORY:
            problems.append(f"memory {self.memory!r} is less than the 450m that Spark needs for an executor")
        problems += [
            f"configuration: {key} is set by {option}={getattr(self, option)!r}; change that instead"
            for key, option in _OURS.items()
            if key in self.configuration
        ]
        problems += [
            f"configuration: {key} cannot be set: {reason}"
            for key, reason in _FIXED.items()
            if key in self.configuration
        ]
        problems += [
            f"configuration: {key!r} must have a text as its value, not {value!r}"
            for key, value in self.configuration.items()
            if not isinstance(value, str)
        ]
        if problems:
            raise ConfigurationError(f"SparkOptions: {'; '.join(problems)}")

    @property
    def memory_bytes(self) -> int:
        """The heap of each executor."""
        size = parsed_memory(self.memory)
        assert size is not None, "checked when it was made"
        return size


def parsed_memory(text: object) -> int | None:
    """Bytes of a size as Spark spells it; None for what is none.

    Example:
        >>> parsed_memory("512m"), parsed_memory("2 GiB"), parsed_memory("much")
        (536870912, 2147483648, None)
    """
    match = _MEMORY.fullmatch(text.strip()) if isinstance(text, str) else None
    return int(match[1]) * _UNITS[match[2].lower()] if match else None
