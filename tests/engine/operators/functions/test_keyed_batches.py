"""Batch-wise keyed functions: which timestamps their results have, and timers for many keys at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.engine.errors import RecordError, StateError
from penstock.engine.functions import Context, KeyedBatch, KeyedProcessFunction, OnTimerContext, Row, Rows
from penstock.engine.operators.functions.keyed_process import KeyedProcessSpec
from tests.engine.operators.functions.functions import Running, at


def batchwise(process: Callable[..., Any], on_timer: Callable[..., Any] | None = None) -> KeyedProcessSpec:
    class Given(KeyedProcessFunction):
        def process_batch(self, batch: KeyedBatch, ctx: Context) -> Any:
            return process(self, batch, ctx)

        def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Rows:
            return None if on_timer is None else on_timer(self, timestamp, ctx)

    return KeyedProcessSpec(Given, ("key",), timed=True)


def results_of(result: Callable[[KeyedBatch], Any]) -> tuple[list[Row], list[int | None]]:
    job = Running(batchwise(lambda self, batch, ctx: result(batch)))
    batch = at([{"key": key, "at": t} for key, t in [("b", 3), ("a", 9), ("b", 7), ("a", 1)]])
    return job.process(batch), job.times


@pytest.mark.parametrize(
    "result",
    [
        lambda batch: batch.data.slice(1, 2),
        lambda batch: {"n": [1, 2]},
        lambda batch: {"key": [1, 2]},
        lambda batch: {"key": pa.array([None, "a"])},
    ],
)
def test_as_many_results_as_keys_that_are_not_those_of_the_keys_have_no_timestamps(result: Any) -> None:
    with pytest.raises(RecordError, match=r"2 rows for a batch of 4 rows with 2 keys.* with the columns key; filter"):
        results_of(result)


def test_results_of_keys_may_have_another_encoding_and_further_columns() -> None:
    for kind in (pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        rows, times = results_of(lambda batch, kind=kind: {"n": [1, 2], "key": batch.keys["key"].cast(kind)})  # type: ignore[misc]
        assert ([row["key"] for row in rows], times) == (["b", "a"], [7, 9])


@pytest.mark.parametrize("given_times", [5, object(), np.zeros((2, 2)), ["a", 1], [0.5, 1.5], (t for t in [5])])
def test_what_is_no_array_of_times_is_refused(given_times: Any) -> None:
    job = Running(batchwise(lambda self, batch, ctx: ctx.timer_service.register_event_time_timers(given_times)))
    with pytest.raises(StateError, match=r"(?s)'tested', .*(null where a key gets none|whole number of milli)"):
        job.process(at([{"key": key, "at": 0} for key in "abba"]))


def test_times_may_come_in_chunks() -> None:
    def register(self: Any, batch: KeyedBatch, ctx: Context) -> None:
        ctx.timer_service.register_event_time_timers(pa.chunked_array([[5], [None]], pa.int64()))

    job = Running(batchwise(register, lambda self, timestamp, ctx: [{"key": ctx.current_key}]))
    job.process(at([{"key": key, "at": 0} for key in "ab"]))
    assert job.advance(9) == [{"key": "a"}]
