"""Penstock: a stream processor with Flink's semantics for Python.

The front door: users import public names from here; the packages below hold the engine, the Ray shells, the
connectors and the savepoints.
"""

from __future__ import annotations

from penstock.connectors.datagen import Choice, DataGenSource, EventTime, RandomFloat, RandomInt, Sequence, Zipf
from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.source import FileSource
from penstock.engine.aggregates import (
    collect_list,
    count,
    count_distinct,
    first,
    last,
    max,  # noqa: A004 - read as penstock.max
    mean,
    min,  # noqa: A004
    stddev,
    sum,  # noqa: A004
)
from penstock.engine.api.keyed import KeyedStream
from penstock.engine.api.streams import DataStream, StreamSink
from penstock.engine.api.windowed import WindowedStream
from penstock.engine.errors import PenstockError
from penstock.engine.expressions import (
    all_horizontal,
    any_horizontal,
    coalesce,
    col,
    concat_str,
    lit,
    max_horizontal,
    mean_horizontal,
    min_horizontal,
    sum_horizontal,
    when,
)
from penstock.engine.job import CollectResult, JobHandle, JobStatus
from penstock.engine.metrics import JobMetrics
from penstock.engine.windows.assigners import session, sliding, tumbling
from penstock.engine.windows.watermarks import WatermarkStrategy
from penstock.environment import StreamEnvironment

__version__ = "0.1.0"

__all__ = [
    "Choice",
    "CollectResult",
    "DataGenSource",
    "DataStream",
    "EventTime",
    "FileSink",
    "FileSource",
    "JobHandle",
    "JobMetrics",
    "JobStatus",
    "KeyedStream",
    "PenstockError",
    "RandomFloat",
    "RandomInt",
    "Sequence",
    "StreamEnvironment",
    "StreamSink",
    "WatermarkStrategy",
    "WindowedStream",
    "Zipf",
    "all_horizontal",
    "any_horizontal",
    "coalesce",
    "col",
    "collect_list",
    "concat_str",
    "count",
    "count_distinct",
    "first",
    "last",
    "lit",
    "max",
    "max_horizontal",
    "mean",
    "mean_horizontal",
    "min",
    "min_horizontal",
    "session",
    "sliding",
    "stddev",
    "sum",
    "sum_horizontal",
    "tumbling",
    "when",
]
