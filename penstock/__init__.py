"""Penstock: a stream processor with Flink's semantics for Python.

The front door: users import public names from here; the packages below hold the engine, the Ray shells, the
connectors and the savepoints.
"""

from __future__ import annotations

from penstock.connectors.datagen import Choice, DataGenSource, EventTime, RandomFloat, RandomInt, Sequence, Zipf
from penstock.connectors.files.buckets import by_time
from penstock.connectors.files.rolling import Rolling
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
from penstock.engine.api.connected import BroadcastConnectedStream, BroadcastStream, ConnectedStreams
from penstock.engine.api.keyed import KeyedStream
from penstock.engine.api.sinks import StreamSink
from penstock.engine.api.streams import DataStream
from penstock.engine.api.windowed import WindowedStream
from penstock.engine.connectors import LookupTable
from penstock.engine.errors import PenstockError, StateError
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
from penstock.engine.functions import (
    AsyncFunction,
    BroadcastProcessFunction,
    CoProcessFunction,
    KeyedBatch,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
)
from penstock.engine.job import CollectResult, JobHandle, JobStatus
from penstock.engine.metrics import JobMetrics
from penstock.engine.operators.async_function import AsyncRetry
from penstock.engine.operators.iteration import Asynchronous, BulkSynchronous, StaleSynchronous
from penstock.engine.operators.joins.lookup_cache import LookupCache
from penstock.engine.operators.joins.lookup_tables import ArrowTable, DictTable
from penstock.engine.state.descriptors import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    PickleSerializer,
    ReducingStateDescriptor,
    TtlUpdate,
    TtlVisibility,
    ValueStateDescriptor,
    ttl,
)
from penstock.engine.windows.assigners import cumulative, session, sliding, tumbling
from penstock.engine.windows.base import WindowAssigner
from penstock.engine.windows.evictors import CountEvictor, DeltaEvictor, Evictor, TimeEvictor, TimestampedRow
from penstock.engine.windows.general import global_windows
from penstock.engine.windows.trigger_base import OnMergeContext, Trigger, TriggerContext, TriggerResult
from penstock.engine.windows.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EndOfTimeTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from penstock.engine.windows.watermarks import WatermarkGenerator, WatermarkOutput, WatermarkStrategy
from penstock.engine.windows.windows import TimeWindow
from penstock.environment import StreamEnvironment
from penstock.recovery import checkpoints, exponential_delay, failure_rate, fixed_delay, no_restart

__version__ = "0.1.0"

__all__ = [
    "AggregateFunction",
    "AggregatingStateDescriptor",
    "ArrowTable",
    "AsyncFunction",
    "AsyncRetry",
    "Asynchronous",
    "BroadcastConnectedStream",
    "BroadcastProcessFunction",
    "BroadcastStream",
    "BulkSynchronous",
    "Choice",
    "CoProcessFunction",
    "CollectResult",
    "ConnectedStreams",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountEvictor",
    "CountTrigger",
    "DataGenSource",
    "DataStream",
    "DeltaEvictor",
    "DeltaTrigger",
    "DictTable",
    "EndOfTimeTrigger",
    "EventTime",
    "EventTimeTrigger",
    "Evictor",
    "FileSink",
    "FileSource",
    "JobHandle",
    "JobMetrics",
    "JobStatus",
    "KeyedBatch",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStream",
    "ListStateDescriptor",
    "LookupCache",
    "LookupTable",
    "MapStateDescriptor",
    "NeverTrigger",
    "OnMergeContext",
    "OutputTag",
    "PenstockError",
    "PickleSerializer",
    "ProcessFunction",
    "ProcessWindowFunction",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "RandomFloat",
    "RandomInt",
    "ReducingStateDescriptor",
    "Rolling",
    "Sequence",
    "StaleSynchronous",
    "StateError",
    "StreamEnvironment",
    "StreamSink",
    "TimeEvictor",
    "TimeWindow",
    "TimestampedRow",
    "Trigger",
    "TriggerContext",
    "TriggerResult",
    "TtlUpdate",
    "TtlVisibility",
    "ValueStateDescriptor",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
    "WindowAssigner",
    "WindowedStream",
    "Zipf",
    "all_horizontal",
    "any_horizontal",
    "by_time",
    "checkpoints",
    "coalesce",
    "col",
    "collect_list",
    "concat_str",
    "count",
    "count_distinct",
    "cumulative",
    "exponential_delay",
    "failure_rate",
    "first",
    "fixed_delay",
    "global_windows",
    "last",
    "lit",
    "max",
    "max_horizontal",
    "mean",
    "mean_horizontal",
    "min",
    "min_horizontal",
    "no_restart",
    "session",
    "sliding",
    "stddev",
    "sum",
    "sum_horizontal",
    "ttl",
    "tumbling",
    "when",
]
