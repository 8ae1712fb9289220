"""Jobs that are slow, each for another reason, which `test_slow_jobs.py` names. Their processes load this module."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import pyarrow as pa

import penstock as ps
from penstock.engine.connectors import ConnectorContext, Position, Sink, SinkWriter, Source, SourceReader, Split, Wait
from penstock.engine.elements import Batch
from penstock.engine.functions import Context, Row, RuntimeContext

_SPIN_SECONDS = 0.002
_PAUSE_SECONDS = 0.02
_AHEAD_MS = 600_000
_KEPT = 200_000


def _spin(row: Row) -> Row:
    until = time.monotonic() + _SPIN_SECONDS
    while time.monotonic() < until:
        pass
    return row


class Spin(ps.KeyedProcessFunction):
    """Computes for long at each row."""

    def process_element(self, row: Row, ctx: Context) -> Iterator[Row]:
        yield _spin(row)


class Collect(ps.KeyedProcessFunction):
    """Keeps many objects, and has all of them looked through again and again, as allocating ever more would."""

    def open(self, context: RuntimeContext) -> None:
        self.kept = [{"n": [n]} for n in range(_KEPT)]

    def process_element(self, row: Row, ctx: Context) -> Iterator[Row]:
        gc.collect()
        yield row


class Dawdle(ps.KeyedProcessFunction):
    """Takes long over each checkpoint."""

    def process_element(self, row: Row, ctx: Context) -> Iterator[Row]:
        yield row

    def snapshot_state(self) -> None:
        time.sleep(1.5)


@dataclass(frozen=True)
class Forget(Sink):
    """Takes so many seconds for each batch, and keeps nothing."""

    seconds: float = 0.0

    def open(self, context: ConnectorContext) -> SinkWriter:
        return _Forgetting(self.seconds)

    def describe(self) -> str:
        return "forget"


@dataclass
class _Forgetting(SinkWriter):
    seconds: float

    def write(self, batch: Batch) -> None:
        time.sleep(self.seconds)


@dataclass(frozen=True)
class Half:
    """One of the two splits of `Apart`."""

    split_id: str
    first_ms: int


@dataclass(frozen=True)
class Apart(Source):
    """Some rows a second with event times `at`, those of one split ten minutes behind those of the other."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema({"at": pa.int64()})

    @property
    def bounded(self) -> bool:
        return False

    def splits(self, parallelism: int) -> SequenceOf[Split]:
        return [Half("ahead", _AHEAD_MS), Half("behind", 0)]

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        assert isinstance(split, Half)
        return _HalfReader(split.first_ms, context)

    def describe(self) -> str:
        return "apart"


class _HalfReader(SourceReader):
    def __init__(self, first_ms: int, context: ConnectorContext) -> None:
        self._next_ms, self._context, self._has_given = first_ms, context, False

    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
        self._has_given = not self._has_given
        if not self._has_given:
            return Wait(self._context.clock.monotonic() + _PAUSE_SECONDS)
        self._next_ms += 10
        return pa.record_batch({"at": [self._next_ms]})

    def position(self) -> Position:
        return {"next_ms": self._next_ms}


NUMBERS = {"n": "int64", "k": "int64"}


def _numbers(env: ps.StreamEnvironment, rate: float = 5_000) -> ps.DataStream:
    numbers = env.from_source(ps.DataGenSource({"n": ps.Sequence()}, rate=rate)).name("numbers")
    return numbers.with_columns(k=ps.col("n") % 7)


def _counted(stream: ps.DataStream, key: str = "k", sink: Sink | None = None) -> object:
    return stream.key_by(key).aggregate(seen=ps.count()).name("count").sink_to(sink or Forget()).name("sink")


def busy(env: ps.StreamEnvironment) -> object:
    """An operator between the others has no time left."""
    return _counted(_numbers(env).key_by("k").process(Spin(), returns=NUMBERS).name("spin"), "n")


def skew(env: ps.StreamEnvironment) -> object:
    """All rows have one key, and one of two subtasks gets them."""
    of_one_key = _numbers(env).with_columns(k=ps.col("n") * 0)
    return _counted(of_one_key.key_by("k").process(Spin(), returns=NUMBERS).name("spin"), "n")


def slow_sink(env: ps.StreamEnvironment) -> object:
    """What takes the rows takes long."""
    return _counted(_numbers(env), sink=Forget(0.2))


def source(env: ps.StreamEnvironment) -> object:
    """Reading a row takes long, as it is parsed where it is read."""
    return _counted(_numbers(env).map(_spin, returns=NUMBERS))


def garbage(env: ps.StreamEnvironment) -> object:
    """A function has Python's collector work."""
    return _counted(_numbers(env).key_by("k").process(Collect(), returns=NUMBERS).name("collect"), "n")


def lagging_split(env: ps.StreamEnvironment) -> object:
    """One of two splits is behind the other, and windows wait for it."""
    in_order = ps.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("at")
    apart = env.from_source(Apart(), watermarks=in_order).name("apart").with_columns(k=ps.col("at") % 7)
    return apart.key_by("k").window(ps.tumbling("10s")).aggregate(seen=ps.count()).sink_to(Forget())


def checkpoint(env: ps.StreamEnvironment) -> object:
    """Checkpoints take longer than what is between them."""
    slowly = _numbers(env, rate=20).key_by("k").process(Dawdle(), returns=NUMBERS).name("dawdle")
    return _counted(slowly, "n")
