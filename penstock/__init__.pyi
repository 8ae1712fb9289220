"""The public names of Penstock, and where they are: `__init__.py` loads each when it is first used."""

from .actors.cluster_start import start_cluster
from .actors.spark.options import SparkOptions
from .actors.spark.session import stop_spark
from .connectors.datagen import Choice, DataGenSource, EventTime, RandomFloat, RandomInt, Sequence, Zipf
from .connectors.files.buckets import by_time
from .connectors.files.rolling import Rolling
from .connectors.files.sink import FileSink
from .connectors.files.source import FileSource
from .detached import attach
from .engine.aggregates.functions import (
    collect_list,
    count,
    count_distinct,
    first,
    last,
    max,  # noqa: A004 - read as penstock.max
    mean,
    min,  # noqa: A004 - read as penstock.min
    stddev,
    sum,  # noqa: A004 - read as penstock.sum
)
from .engine.api.connected import BroadcastStream
from .engine.api.sinks import StreamSink
from .engine.api.streams import (
    BroadcastConnectedStream,
    ConnectedStreams,
    DataStream,
    GroupedStream,
    KeyedStream,
    PatternStream,
    WindowedStream,
)
from .engine.compiled.functions import compiled
from .engine.connectors import LookupTable
from .engine.errors import PatternError, PenstockError, StateError
from .engine.expressions import (
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
from .engine.functions import (
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
from .engine.job.handle import CollectResult, JobHandle
from .engine.job.status import JobStatus
from .engine.metrics import JobMetrics
from .engine.operators.async_function import AsyncRetry
from .engine.operators.iteration import Asynchronous, BulkSynchronous, StaleSynchronous
from .engine.operators.joins.lookup_cache import LookupCache
from .engine.operators.joins.lookup_tables import ArrowTable, DictTable
from .engine.patterns.functions import PatternProcessFunction
from .engine.patterns.pattern import Pattern
from .engine.patterns.skip import AfterMatchSkipStrategy
from .engine.state.descriptors import (
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
from .engine.windows.assigners import cumulative, session, sliding, tumbling
from .engine.windows.base import WindowAssigner
from .engine.windows.evictors import CountEvictor, DeltaEvictor, Evictor, TimeEvictor, TimestampedRow
from .engine.windows.general import global_windows
from .engine.windows.trigger_base import OnMergeContext, Trigger, TriggerContext, TriggerResult
from .engine.windows.triggers import (
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
from .engine.windows.watermarks import WatermarkGenerator, WatermarkOutput, WatermarkStrategy
from .engine.windows.windows import TimeWindow
from .environment import StreamEnvironment
from .queryable_state import checkpointed_state, state
from .recovery import checkpoints, exponential_delay, failure_rate, fixed_delay, no_restart
from .tables.udf import arrow_udf, udaf, udf, udtf

__version__: str

__all__ = [
    "AfterMatchSkipStrategy",
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
    "GroupedStream",
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
    "Pattern",
    "PatternError",
    "PatternProcessFunction",
    "PatternStream",
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
    "SparkOptions",
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
    "arrow_udf",
    "attach",
    "by_time",
    "checkpointed_state",
    "checkpoints",
    "coalesce",
    "col",
    "collect_list",
    "compiled",
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
    "start_cluster",
    "state",
    "stddev",
    "stop_spark",
    "sum",
    "sum_horizontal",
    "ttl",
    "tumbling",
    "udaf",
    "udf",
    "udtf",
    "when",
]
