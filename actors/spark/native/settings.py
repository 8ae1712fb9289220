"""How Spark runs a job that it runs in part by itself: its settings in the session of that job alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

from penstock.actors.spark.native.border import BORDER_ROWS
from penstock.actors.spark.native.prefixes import Prefix
from penstock.engine.graph.physical import PhysicalGraph

_ROWS_AT_ONCE: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_SETTINGS: Final = {
    # Spark has many rows to work on here, for which it is worth to compile code.
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    # What does not fit is an error, and then judged by the engine's operators.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
}


def native_session(session: SparkSession, graph: PhysicalGraph, prefixes: Mapping[int, Prefix]) -> SparkSession:
    """A session on the same executors, for a job with these prefixes."""
    own = session.newSession()
    widest = max(graph.task(number).parallelism for number in prefixes)
    for key, value in {**_SETTINGS, "spark.sql.shuffle.partitions": str(widest)}.items():
        own.conf.set(key, value)
    return own


def expect_rows(session: SparkSession) -> None:
    """Say that what is planned next, in the session of a job with prefixes, hands Spark's own rows over to Python."""
    session.conf.set(_ROWS_AT_ONCE, str(BORDER_ROWS))


def expect_parcels(session: SparkSession) -> None:
    """Say that what is planned next, in the session of a job with prefixes, hands parcels over to Python."""
    session.conf.set(_ROWS_AT_ONCE, session.sparkContext.getConf().get(_ROWS_AT_ONCE, str(BORDER_ROWS)))
