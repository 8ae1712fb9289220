"""Keeps what Spark and Ray note beside a batch job from the screen, where the user has not asked for it.

The session calls it as it starts and as it ends. Settings of log4j and of Ray's log lines that the user has made
himself stay.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from penstock.engine.errors import wants_everything

LOG4J_FILE: Final = "spark.log4j.config.file.name"
"""The setting with which RayDP names the configuration of log4j to the driver."""
_OURS: Final = Path(__file__).with_name("log4j2.properties")
_NAMED: Final = re.compile(r"-Dlog4j2?\.configurationFile=(\S+)")
_NOTES: Final = r"^\[\d{4}-\d\d-\d\d [\d:,]+ I \d+ \d+\] "
"""How Ray's C++ begins what it notes for information, which the JVMs write to where their output goes."""


def log4j_file(configuration: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> str:
    """The configuration of log4j in Spark's driver: the user's, which is named as RayDP or as Java has it, or ours."""
    named = _NAMED.search(configuration.get("spark.driver.extraJavaOptions", ""))
    users = configuration.get(LOG4J_FILE) or (named and named[1]) or environment.get("SPARK_LOG4J_CONFIG_FILE_NAME")
    return users or _OURS.as_uri()


def skip_notes() -> None:
    """Let this process not show what Ray's C++ in other processes notes for information.

    As `RAY_DEDUP_LOGS_SKIP_REGEX` would, which Ray reads when it is imported; the user's own expression stays.
    """
    from ray._private import ray_logging as untyped

    ray_logging: Any = untyped
    # It is no public part of Ray: where it has another form, the notes are shown.
    shown: Any = getattr(ray_logging, "stderr_deduplicator", None)
    if getattr(shown, "skip_re", _NOTES) is None:
        shown.skip_re = re.compile(_NOTES)


def skip_lost_calls() -> None:
    """Let py4j not log its tracebacks where the JVM goes while it is asked, as by a signal to all of a job's processes.

    What it raises as well is the error of the job. `PENSTOCK_TRACEBACK=full` lets it log them.
    """
    # Once, however often it is added.
    logging.getLogger().addFilter(_is_no_lost_call)


def _is_no_lost_call(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway" or record.name != "root" or wants_everything()


def hush() -> None:
    """Let the JVM behind Spark say no more on standard error, for it is about to end.

    Threads of it that find others gone print a page each, behind the error of the job. `PENSTOCK_TRACEBACK=full` lets
    them.
    """
    if wants_everything():
        return
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    # Without a process it is that of a program which has started this one (spark-submit).
    if gateway is None or gateway.proc is None or gateway.proc.poll() is not None:
        return
    # It may die as it is asked.
    with contextlib.suppress(Exception):
        java = gateway.jvm.java
        java.lang.System.setErr(java.io.PrintStream(java.io.OutputStream.nullOutputStream()))
