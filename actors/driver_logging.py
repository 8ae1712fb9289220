"""How the process that submits a job has set up `logging`, for the processes that run it: they log in the same way.

The client puts it into the job's settings when it submits; each subtask's process follows them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from penstock.engine.config import JobConfig

_OWN_WAYS: Final = ("ray", "penstock")
"""Loggers of libraries that set up their own levels in each process."""


def with_driver_logging(config: JobConfig) -> JobConfig:
    """The settings with the levels of this process's loggers and the format of its root logger.

    What the configuration names itself (`penstock.log.levels`) stays as it is.
    """
    levels = {**_levels(), **dict(config.log_levels)}
    return replace(config, log_levels=tuple(sorted(levels.items())), log_format=config.log_format or _format())


def _levels() -> Mapping[str, str]:
    """By name, the levels that somebody has chosen; "" is the root logger."""
    # A copy is made at once: other threads load modules meanwhile, which make loggers.
    loggers = logging.Logger.manager.loggerDict.copy()
    chosen = {
        name: logging.getLevelName(logger.level)
        for name, logger in loggers.items()
        if isinstance(logger, logging.Logger) and logger.level and name.partition(".")[0] not in _OWN_WAYS
    }
    root = logging.getLogger()
    if root.level not in (logging.NOTSET, logging.WARNING):
        # Python's default is nobody's choice.
        chosen[""] = logging.getLevelName(root.level)
    return {name: level for name, level in chosen.items() if not level.startswith("Level ")}


def _format() -> tuple[str, str] | None:
    """The format of lines and that of their times, of the root logger's first handler that has one."""
    formatters = (handler.formatter for handler in logging.getLogger().handlers)
    for formatter in formatters:
        if formatter is not None and formatter._fmt is not None and "%(" in formatter._fmt:
            return formatter._fmt, formatter.datefmt or ""
    return None
