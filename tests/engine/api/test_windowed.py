"""Windows as users write them: which operator does the work, what explain() shows, what is refused, whole jobs."""

from __future__ import annotations

import re
from typing import Any

import pytest

import penstock as ps
from penstock import (
    AggregateFunction,
    CountEvictor,
    CountTrigger,
    DeltaTrigger,
    EventTimeTrigger,
    OutputTag,
    ProcessWindowFunction,
    Trigger,
    TriggerResult,
    WatermarkStrategy,
    cumulative,
    global_windows,
    session,
    sliding,
    tumbling,
)
from penstock.engine.errors import ConfigurationError, GraphError
from penstock.engine.operators.windows.session_aggregate import SessionAggregateSpec
from penstock.engine.operators.windows.window import WindowOperatorSpec
from penstock.engine.operators.windows.window_aggregate import WindowAggregateSpec
from tests.engine.helpers import local_environment
from tests.engine.window_driver import SCHEMA, spec_of

LATE = OutputTag("late")
ROWS = [{"k": k, "at": at, "v": v} for k, at, v in (("a", 1, 1), ("b", 2, 2), ("a", 3, 4), ("a", 12, 8), ("b", 25, 16))]


class Sum(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        return [{"k": key, "n": sum(row["v"] for row in elements)}]


class Total(AggregateFunction):
    def create_accumulator(self) -> Any:
        return 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator + value["v"]

    def get_result(self, accumulator: Any) -> Any:
        return {"total": accumulator}


def rise(last: Any, new: Any) -> float:
    return float(new["v"] - last["v"])


def add(one: Any, other: Any) -> Any:
    return {**one, "v": one["v"] + other["v"]}


def stream(timed: bool = True, rows: list[Any] | None = None, **settings: Any) -> Any:
    source = local_environment(**settings).from_collection(ROWS if rows is None else rows, schema=SCHEMA)
    return source.assign_timestamps("at", WatermarkStrategy.for_monotonous_timestamps()) if timed else source


@pytest.mark.parametrize(
    ("windows", "spec"),
    [
        (tumbling("1m"), WindowAggregateSpec),
        (sliding("1m", "7s"), WindowAggregateSpec),
        (cumulative("1h", "1m"), WindowAggregateSpec),
        (session("1m"), SessionAggregateSpec),
        (tumbling("1m", time="processing"), WindowOperatorSpec),
        (session("1m", time="processing"), WindowOperatorSpec),
        (cumulative("1h", "1m", time="processing"), WindowOperatorSpec),
        (session(lambda row: "1m"), WindowOperatorSpec),
        (global_windows(), WindowOperatorSpec),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else value.describe(),
)
def test_named_aggregates_run_on_whole_batches_where_they_can(windows: Any, spec: type) -> None:
    assert isinstance(spec_of(lambda k: k.window(windows).aggregate(n=ps.count())), spec)


@pytest.mark.parametrize(
    ("change", "spec"),
    [
        (lambda w: w, WindowAggregateSpec),
        (lambda w: w.allowed_lateness("5s").side_output_late_data(LATE), WindowAggregateSpec),
        (lambda w: w.trigger(EventTimeTrigger()), WindowAggregateSpec),
        (lambda w: w.trigger(EventTimeTrigger(early_count=5)), WindowOperatorSpec),
        (lambda w: w.trigger(CountTrigger(5)), WindowOperatorSpec),
        (lambda w: w.evictor(CountEvictor(5)), WindowOperatorSpec),
    ],
)
def test_a_trigger_or_evictor_of_ones_own_needs_the_general_operator(change: Any, spec: type) -> None:
    assert isinstance(spec_of(lambda k: change(k.window(tumbling("1m"))).aggregate(n=ps.count())), spec)


def test_lateness_and_the_late_output_reach_the_operators() -> None:
    for windows in (tumbling("1m"), session("1m")):
        spec: Any = spec_of(
            lambda k, w=windows: k.window(w).allowed_lateness("5s").side_output_late_data(LATE).aggregate(n=ps.count())
        )
        assert (spec.allowed_lateness_ms, spec.late_tag) == (5_000, "late")


def operator_name(results: Any) -> str:
    return str(results._program.graph[results._node].name)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda s: s.key_by("k").window(tumbling("1m")).aggregate(n=ps.count()), "window(tumbling 1m, n=count(*))"),
        (
            lambda s: (
                s.key_by("k")
                .window(session("1m"))
                .trigger(EventTimeTrigger(early_every="10s"))
                .allowed_lateness("5s")
                .side_output_late_data(LATE)
                .reduce(add)
            ),
            "window(session gap 1m, trigger event time, early every 10s, allowed lateness 5s, late rows to 'late', "
            "reduce(add))",
        ),
        (
            lambda s: s.key_by("k").count_window(10, 5).process(Sum),
            "count_window(global, trigger count 5, evictor count 10, process(Sum))",
        ),
        (
            lambda s: s.count_window_all(10).aggregate(Total(), accumulator="int64", process=Sum()),
            "count_window_all(global, trigger purging count 10, aggregate(Total), process(Sum))",
        ),
        (
            lambda s: s.window_all(tumbling("1m", offset="5s", time="processing")).aggregate(n=ps.count()),
            "window_all(tumbling 1m, offset 5s, processing time, n=count(*))",
        ),
        (
            lambda s: s.key_by("k").window(session(rise)).aggregate(n=ps.count(), process=Sum),
            "window(session gap by rise, n=count(*), process(Sum))",
        ),
    ],
)
def test_explain_shows_what_windows_do(make: Any, name: str) -> None:
    assert operator_name(make(stream())) == name


def test_columns_are_known_before_the_job_runs() -> None:
    keyed = stream().key_by("k")
    bounded = keyed.window(tumbling("1m")).trigger(CountTrigger(5)).aggregate(n=ps.sum("v"))
    assert bounded.schema.names == ["k", "window_start", "window_end", "n"]
    assert keyed.count_window(4).aggregate(window_start=ps.sum("v")).schema.names == ["k", "window_start"]
    assert keyed.window(tumbling("1m")).reduce(add).schema == SCHEMA
    assert keyed.window(tumbling("1m")).process(Sum).schema is None
    assert keyed.window(tumbling("1m")).process(Sum, {"k": "string", "n": "int64"}).schema.names == ["k", "n"]


def test_results_of_event_time_windows_have_timestamps_and_others_as_the_stream() -> None:
    untimed = stream(timed=False).key_by("k")
    assert not untimed.window(tumbling("1m", time="processing")).reduce(add)._timed
    assert not untimed.count_window(3).reduce(add)._timed
    assert stream().key_by("k").count_window(3).reduce(add)._timed


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda s: s.window(tumbling("1m")), r"no keys; call key_by\(...\).window\(...\).* or window_all\(...\)"),
        (lambda s: s.count_window(5), r"no keys; call key_by\(...\).count_window\(...\).* or count_window_all\(...\)"),
        (lambda s: s.key_by("k").window("1m"), r"window takes a WindowAssigner, such as tumbling\(...\).*, not '1m'"),
        (lambda s: s.key_by("k").count_window(2.5), "size must be a number of rows, 1 or more, not 2.5"),
        (lambda s: s.key_by("k").count_window(0), "size must be a number of rows, 1 or more, not 0"),
        (lambda s: s.key_by("k").count_window(True), "not True"),
        (lambda s: s.count_window_all(4, 0), "count_window_all: slide must be a number of rows"),
        (lambda s: s.key_by("k").count_window("4"), "not '4'"),
        (
            lambda s: s.key_by("k").window(tumbling("1m")).trigger(CountTrigger),
            r"window: trigger takes a Trigger, such as CountTrigger\(100\).*CountTrigger is a class: call it",
        ),
        (lambda s: s.key_by("k").window(tumbling("1m")).evictor(CountTrigger(1)), "evictor takes an Evictor"),
        (
            lambda s: s.key_by("k").window(session("1m")).trigger(DeltaTrigger(1, rise)),
            "the trigger 'delta over 1' cannot be used on windows that merge",
        ),
        (
            lambda s: s.key_by("k").window(tumbling("1m", time="processing")).allowed_lateness("1s"),
            "allowed_lateness: no row is ever late in tumbling 1m, processing time windows",
        ),
        (
            lambda s: s.key_by("k").window(global_windows()).side_output_late_data(LATE),
            "side_output_late_data: no row is ever late in global windows",
        ),
        (
            lambda s: s.key_by("k").window(tumbling("1m")).side_output_late_data("late"),
            "side_output_late_data takes an OutputTag",
        ),
        (lambda s: s.key_by("k").window(tumbling("1m")).aggregate(), "give at least one aggregate"),
        (lambda s: s.key_by("k").window(tumbling("1m")).aggregate(n=5), "n=5 is no aggregate"),
        (
            lambda s: s.key_by("k").window(tumbling("1m")).aggregate(window_end=ps.count()),
            "window_end is the name of a window column",
        ),
        (
            lambda s: s.key_by("k").window(tumbling("1m")).aggregate(returns=ps.count()),
            r"returns=... is an option; give the result count\(\*\) another name",
        ),
        (
            lambda s: s.key_by("k").window(tumbling("1m")).aggregate(n=ps.count(), returns={"n": "int64"}),
            "named aggregates have types already",
        ),
        (
            lambda s: s.key_by("k").window(tumbling("1m")).aggregate(accumulator="int64", n=ps.count()),
            "accumulator=... belongs to an AggregateFunction",
        ),
        (
            lambda s: s.key_by("k").window(tumbling("1m")).aggregate(Total()),
            "accumulator of Total: say in aggregate",
        ),
        (
            lambda s: s.key_by("k").window(tumbling("1m")).aggregate(Total(), accumulator="int64", n=ps.count()),
            r"give an AggregateFunction or named aggregates \(n\), not both",
        ),
        (
            lambda s: s.key_by("k").window(session("1m")).aggregate(Total(), accumulator="int64"),
            r"windows merge, and Total does not implement merge\(one, other\)",
        ),
        (
            lambda s: s.key_by("k").window(tumbling("1m")).aggregate(Total, accumulator="int64"),
            "aggregate takes an AggregateFunction.*Total is a class: call it",
        ),
        (lambda s: s.key_by("k").window(tumbling("1m")).reduce("v"), "reduce: needs a function of two rows"),
        (
            lambda s: s.key_by("k").window(tumbling("1m")).process(add),
            r"process: takes a ProcessWindowFunction \(an object or its class\)",
        ),
        (
            lambda s: s.key_by("k").window(tumbling("1m")).process(ProcessWindowFunction()),
            "ProcessWindowFunction does not implement process",
        ),
        (
            lambda s: s.key_by("k").window(tumbling("1m")).reduce(add, process=add),
            "process=: takes a ProcessWindowFunction",
        ),
        (lambda s: s.window_all(tumbling("1m")).reduce(add).set_parallelism(2), "are computed by one subtask"),
        (lambda s: s.key_by("k").window(tumbling("1m")).aggregate(n=ps.sum("w")), "no column 'w'"),
    ],
)
def test_what_makes_no_window_is_refused_while_the_program_is_written(make: Any, message: str) -> None:
    with pytest.raises((GraphError, ConfigurationError), match=message):
        make(stream())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda k: k.window(tumbling("1m")), "window: the stream has no timestamps; call assign_timestamps before"),
        (lambda k: k.window(session(rise)), "time='processing'"),
        (
            lambda k: k.window(global_windows()).trigger(ps.ContinuousEventTimeTrigger("1s")),
            "the trigger 'continuous event time 1s' needs event time",
        ),
    ],
)
def test_event_time_needs_timestamps(make: Any, message: str) -> None:
    with pytest.raises(GraphError, match=re.escape(message)):
        make(stream(timed=False).key_by("k"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tumbling("0s"), "window size must be more than 0"),
        (lambda: sliding("1m", "0s"), "window slide must be more than 0"),
        (lambda: session("0ms"), "session gap must be more than 0"),
        (lambda: cumulative("1m", "7s"), "must be a multiple of their step"),
        (lambda: tumbling("1m", time="wall"), "time is 'event' or 'processing', not 'wall'"),  # type: ignore[arg-type]
        (lambda: session("1m", time="wall"), "time is 'event' or 'processing'"),  # type: ignore[arg-type]
        (lambda: session(rise, time="wall"), "time is 'event' or 'processing'"),  # type: ignore[arg-type]
    ],
)
def test_windows_of_no_length_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_lateness_must_be_a_duration() -> None:
    with pytest.raises(ConfigurationError, match="allowed_lateness: 'soon' is no duration"):
        stream().key_by("k").window(tumbling("1m")).allowed_lateness("soon")


# --- whole jobs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_job_with_window_functions(parallelism: int) -> None:
    results = stream(parallelism=parallelism).key_by("k").window(tumbling("10ms")).process(Sum).collect()
    assert sorted((row["k"], row["n"]) for row in results) == [("a", 5), ("a", 8), ("b", 2), ("b", 16)]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_job_with_windows_over_all_rows(parallelism: int) -> None:
    env = stream(parallelism=parallelism)
    by_batch = env.window_all(tumbling("10ms")).aggregate(n=ps.sum("v")).collect()
    by_row = env.window_all(tumbling("10ms")).reduce(add, process=Sum, returns={"k": "string", "n": "int64"}).collect()
    by_count = env.count_window_all(2).aggregate(n=ps.count()).collect()
    assert [row["n"] for row in by_batch] == [7, 8, 16]
    assert [(row["k"], row["n"]) for row in by_row] == [(None, 7), (None, 8), (None, 16)]
    assert [row["n"] for row in by_count] == [2, 2]


@pytest.mark.parametrize("early", [False, True])
def test_late_rows_go_to_the_side_output_and_are_counted(early: bool) -> None:
    rows = [{"k": "a", "at": at, "v": at} for at in (5, 35, 6, 36)]
    env = stream(rows=rows, max_batch_rows=1)
    windowed = env.key_by("k").window(tumbling("10ms")).side_output_late_data(LATE)
    windowed = windowed.trigger(EventTimeTrigger(early_count=100)) if early else windowed
    results = windowed.aggregate(n=ps.count())
    late = results.get_side_output(LATE).collect()
    counts = results.collect()
    assert [row["n"] for row in counts] == [1, 2]
    assert list(late) == [{"k": "a", "at": 6, "v": 6}]


def test_results_of_windows_are_windowed_again() -> None:
    minutes = stream().key_by("k").window(tumbling("10ms")).trigger(EventTimeTrigger(early_count=100))
    totals = minutes.aggregate(n=ps.sum("v")).window_all(tumbling("20ms")).aggregate(n=ps.sum("n"))
    assert [row["n"] for row in totals.collect()] == [15, 16]


def test_a_trigger_of_the_user_needs_no_more_than_one_method() -> None:
    class Large(Trigger):
        def on_element(self, row: Any, timestamp: Any, window: Any, context: Any) -> TriggerResult:
            return TriggerResult.FIRE_AND_PURGE if row["v"] >= 4 else TriggerResult.CONTINUE

    results = stream().key_by("k").window(global_windows()).trigger(Large()).process(Sum).collect()
    assert sorted((row["k"], row["n"]) for row in results) == [("a", 5), ("a", 8), ("b", 18)]


def test_rows_whose_columns_are_not_declared() -> None:
    results = (
        stream()
        .map(lambda row: {"k": row["k"], "v": row["v"] * 1.5})
        .key_by("k")
        .count_window(2)
        .aggregate(n=ps.sum("v"))
    )
    assert sorted((row["k"], row["n"]) for row in results.collect()) == [("a", 7.5), ("b", 27.0)]
