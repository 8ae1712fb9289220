"""Rows that a source could not decode have no event time: they pass, and hold nothing up nor on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from penstock import StreamEnvironment, WatermarkStrategy, col, count, tumbling
from penstock.connectors.collection import CollectionSource
from penstock.engine.clock import ManualClock
from penstock.engine.connectors import ConnectorContext, Position, Source, SourceReader, Split
from penstock.engine.elements import NO_TIMESTAMP, Batch, WatermarkStatus
from penstock.engine.errors import RecordError
from penstock.engine.operators.base import OperatorContext
from penstock.engine.operators.watermark_generators import TimedInput
from tests.engine.helpers import RecordingCollector

IN_ORDER = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("at")
BY_ROW = WatermarkStrategy.for_punctuated(lambda row, at: at - 1).with_timestamp_assigner(lambda row: row["at"])


def rows(*times: int | None) -> pa.RecordBatch:
    """A row for each time; None: it could not be decoded."""
    errors = [None if time is not None else "no JSON" for time in times]
    return pa.RecordBatch.from_arrays(
        [pa.array(times, pa.int64()), pa.array(errors, pa.string())], names=["at", "error"]
    )


def emitted(strategy: WatermarkStrategy, *batches: pa.RecordBatch) -> RecordingCollector:
    out = RecordingCollector()
    timed = TimedInput(strategy, OperatorContext("source", 0, 1, ManualClock()), "error")
    for batch in batches:
        timed.process(Batch(batch), out)
    return out


@pytest.mark.parametrize("strategy", [IN_ORDER, BY_ROW])
def test_bad_rows_pass_in_order_and_watermarks_do_not_heed_them(strategy: WatermarkStrategy) -> None:
    times = [5, None, 7, None, None, 9, None]
    for size in (1, 2, 3, 7):
        out = emitted(strategy, *(rows(*times[at : at + size]) for at in range(0, len(times), size)))
        assert [row["at"] for row in out.rows] == times
        assert out.timestamps == [NO_TIMESTAMP if time is None else time for time in times]
        assert out.watermarks[-1] == 8
        assert set(out.watermarks) <= {4, 6, 8}


def test_bad_rows_alone_do_not_end_idleness() -> None:
    out = RecordingCollector()
    timed = TimedInput(IN_ORDER, OperatorContext("source", 0, 1, ManualClock()), "error")
    timed.time_out(out)
    timed.process(Batch(rows(None, None)), out)
    assert timed.idle
    timed.process(Batch(rows(None, 5)), out)
    assert not timed.idle
    assert [one for one in out.elements if isinstance(one, WatermarkStatus)] == [
        WatermarkStatus(True),
        WatermarkStatus(False),
    ]


def test_ingestion_time_is_of_bad_rows_too() -> None:
    assert NO_TIMESTAMP not in emitted(WatermarkStrategy.for_ingestion_time(), rows(5, None)).timestamps


def test_a_good_row_without_time_says_what_to_do() -> None:
    null = pa.RecordBatch.from_pydict({"at": pa.array([None], pa.int64()), "error": pa.array([None], pa.string())})
    with pytest.raises(RecordError, match="have with_timestamp_assigner give such rows an early time"):
        emitted(IN_ORDER, null)


@dataclass(frozen=True)
class Keeping(Source):
    """A source that keeps bad records as rows."""

    inner: CollectionSource

    @property
    def schema(self) -> pa.Schema:
        return self.inner.schema

    @property
    def error_column(self) -> str:
        return "error"

    def splits(self, parallelism: int) -> Sequence[Split]:
        return self.inner.splits(parallelism)

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        return self.inner.open(split, context)

    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        return self.inner.open_at(split, position, context)

    def describe(self) -> str:
        return "keeping"


@pytest.mark.parametrize("batch_rows", [1, 3, 100])
def test_a_job_windows_the_good_rows_and_sends_the_bad_ones_elsewhere(tmp_path: Path, batch_rows: int) -> None:
    times = [None, 100, 900, None, 1200, None, 2500, 2600, None]
    env = StreamEnvironment(runtime="local", parallelism=2, max_batch_rows=batch_rows)
    source = Keeping(CollectionSource.of(pa.Table.from_batches([rows(*times)]), None))
    stream = env.from_source(source, watermarks=IN_ORDER)
    good = stream.filter(col("error").is_null()).with_columns(k=col("at") * 0)
    counted = good.key_by("k").window(tumbling("1s")).aggregate(n=count()).collect()
    bad = stream.filter(~col("error").is_null()).select("error").collect()
    env.execute()
    assert sorted(row["n"] for row in counted.to_arrow().to_pylist()) == [1, 2, 2]
    assert bad.to_arrow().num_rows == 4
