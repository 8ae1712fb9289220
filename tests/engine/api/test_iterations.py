"""Loops, as a user sees them: what goes round, when a loop ends, and what cannot be a loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import DataStream, KeyedStream, StreamEnvironment, col
from penstock.connectors.datagen import DataGenSource, Sequence
from penstock.engine.elements import Batch
from penstock.engine.errors import ConfigurationError, GraphError, JobFailedError
from penstock.engine.functions import Context, KeyedProcessFunction, RuntimeContext
from penstock.engine.operators.base import Collector, Operator
from penstock.engine.operators.iteration import Asynchronous, BulkSynchronous, IterationMode, StaleSynchronous
from penstock.engine.operators.spec import OperatorSpec
from penstock.engine.state.descriptors import ValueStateDescriptor
from tests.draws import drawn
from tests.engine.helpers import Row, local_environment, numbers

MODES: list[IterationMode] = [Asynchronous(), BulkSynchronous(), *map(StaleSynchronous, range(4))]
SYNCHRONOUS = MODES[1:]
Streams = tuple[DataStream | KeyedStream, DataStream]

modes = st.sampled_from(MODES)
environments = st.builds(
    local_environment,
    parallelism=st.integers(1, 3),
    seed=st.integers(0, 2**32),
    max_batch_rows=st.sampled_from([1, 3, 1000]),
    channel_credits=st.sampled_from([1, 4]),
)
EXAMPLES = settings(max_examples=drawn(20))


def collatz(loop: DataStream) -> Streams:
    """One step a round, until 1; the rows go through another task, and back to any subtask."""
    step = ps.when(col("n") % 2 == 0).then(col("n") // 2).otherwise(3 * col("n") + 1)
    stepped = loop.filter(col("n") > 1).rebalance().with_columns(n=step, steps=col("steps") + 1)
    return stepped, loop.filter(col("n") == 1).select("id", "steps")


def collatz_steps(n: int) -> int:
    return 0 if n == 1 else 1 + collatz_steps(n // 2 if n % 2 == 0 else 3 * n + 1)


@EXAMPLES
@given(environments, modes, st.lists(st.integers(1, 17), max_size=6))
def test_each_row_goes_round_until_it_is_done(env: StreamEnvironment, mode: IterationMode, values: list[int]) -> None:
    rows = [{"id": i, "n": n, "steps": 0} for i, n in enumerate(values)]
    types = {"id": "int64", "n": "int64", "steps": "int64"}
    out = env.from_collection(rows, schema=types).rebalance().iterate(collatz, mode).collect()
    assert sorted((row["id"], row["steps"]) for row in out) == [(i, collatz_steps(n)) for i, n in enumerate(values)]


class Relax(KeyedProcessFunction):
    """Keeps the shortest distance of each vertex, and tells the neighbours of each that has a shorter one now."""

    def __init__(self, edges: Iterable[tuple[int, int, int]]) -> None:
        self._edges = list(edges)

    def open(self, context: RuntimeContext) -> None:
        self._best = context.get_state(ValueStateDescriptor("best", "int64", default=10**9))

    def process_element(self, row: Row, ctx: Context) -> Iterable[Row]:
        vertex, distance = row["vertex"], row["distance"]
        if distance >= self._best.value():
            return
        self._best.update(distance)
        yield {"vertex": vertex, "distance": distance, "found": True}
        for start, to, length in self._edges:
            if start == vertex:
                yield {"vertex": to, "distance": distance + length, "found": False}


PATH = {"vertex": "int64", "distance": "int64", "found": "bool"}


def shortest_paths(edges: Iterable[tuple[int, int, int]], keyed_feedback: bool) -> Callable[[DataStream], Streams]:
    def body(loop: DataStream) -> Streams:
        relaxed = loop.key_by("vertex").process(Relax(edges), returns=PATH)
        told = relaxed.filter(~col("found"))
        return (told.key_by("vertex") if keyed_feedback else told), relaxed.filter(col("found"))

    return body


def bellman_ford(edges: list[tuple[int, int, int]], start: int) -> dict[int, int]:
    best = {start: 0}
    for _ in range(10):
        for one, other, length in edges:
            if one in best:
                best[other] = min(best.get(other, 10**9), best[one] + length)
    return best


@EXAMPLES
@given(
    environments,
    modes,
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(1, 9)), max_size=20),
    st.booleans(),
)
def test_shortest_paths(
    env: StreamEnvironment, mode: IterationMode, edges: list[tuple[int, int, int]], keyed_feedback: bool
) -> None:
    start = env.from_collection([{"vertex": 0, "distance": 0, "found": False}], schema=PATH)
    found: dict[int, int] = {}
    for row in start.iterate(shortest_paths(edges, keyed_feedback), mode).collect():
        found[row["vertex"]] = min(found.get(row["vertex"], 10**9), row["distance"])
    assert found == bellman_ford(edges, 0)


def rounds(log: list[int], left: int) -> Callable[[DataStream], Streams]:
    """Every row goes round `left` times; `log` has the rounds in the order in which the body saw them."""

    def seen(row: Row) -> Row:
        log.append(row["round"])
        return {"id": row["id"], "round": row["round"] + 1}

    def body(loop: DataStream) -> Streams:
        counted = loop.rebalance().map(seen, returns={"id": "int64", "round": "int64"})
        return counted.filter(col("round") < left), counted

    return body


@EXAMPLES
@given(environments, st.sampled_from([BulkSynchronous(), StaleSynchronous(0)]), st.integers(0, 9), st.integers(1, 5))
def test_no_row_of_a_superstep_is_handled_before_the_one_before_is_over(
    env: StreamEnvironment, mode: IterationMode, rows: int, left: int
) -> None:
    log: list[int] = []
    stream = env.from_collection([{"id": i, "round": 0} for i in range(rows)], schema={"id": "int64", "round": "int64"})
    list(stream.rebalance().iterate(rounds(log, left), mode).collect())
    assert log == [number for number in range(left) for _ in range(rows)]


@EXAMPLES
@given(environments, st.integers(1, 6))
def test_the_last_superstep_feeds_nothing_back(env: StreamEnvironment, most: int) -> None:
    log: list[int] = []
    stream = env.from_collection([{"id": i, "round": 0} for i in range(3)]).rebalance()
    out = stream.iterate(rounds(log, 1000), BulkSynchronous(), max_supersteps=most).collect()
    assert Counter(row["round"] for row in out) == dict.fromkeys(range(1, most + 1), 3)


@EXAMPLES
@given(environments, st.sampled_from(SYNCHRONOUS), st.integers(1, 6))
def test_the_number_of_supersteps_bounds_any_loop(env: StreamEnvironment, mode: IterationMode, most: int) -> None:
    stream = env.from_collection([{"id": i, "round": 0} for i in range(3)]).rebalance()
    out = Counter(row["round"] for row in stream.iterate(rounds([], 1000), mode, max_supersteps=most).collect())
    assert out[1] == 3
    assert 3 <= sum(out.values()) <= 3 * most * 3


@pytest.mark.parametrize("mode", MODES)
def test_rows_that_never_come_back_and_no_rows_at_all(mode: IterationMode) -> None:
    for rows in ([], [{"n": 3}]):
        env = local_environment(2)
        stream = env.from_collection(rows, schema={"n": "int64"})
        out = stream.iterate(lambda loop: (loop.filter(col("n") < 0), loop), mode).collect()
        assert list(out) == rows


@pytest.mark.parametrize("mode", MODES)
def test_all_rows_may_enter_in_one_subtask_and_go_through_another(mode: IterationMode) -> None:
    env = local_environment(3, seed=5)

    def body(loop: DataStream) -> Streams:
        halved = loop.set_parallelism(2).global_().with_columns(n=col("n") // 2)
        return halved.filter(col("n") > 0), halved.filter(col("n") == 0)

    stream = env.from_collection([{"id": i, "n": 1 << i} for i in range(6)])
    assert sorted(row["id"] for row in stream.global_().iterate(body, mode).collect()) == list(range(6))


@pytest.mark.parametrize("mode", SYNCHRONOUS)
def test_feedback_may_be_broadcast(mode: IterationMode) -> None:
    env = local_environment(3)

    def body(loop: DataStream) -> Streams:
        less = loop.with_columns(n=col("n") - 1)
        return less.filter(col("n") > 0).broadcast(), loop

    out = Counter(row["n"] for row in env.from_collection([{"n": 3}]).iterate(body, mode).collect())
    assert out == {3: 1, 2: 3, 1: 9}


@pytest.mark.parametrize("mode", MODES)
def test_windows_in_a_loop_fire_before_it_ends(mode: IterationMode) -> None:
    env = local_environment(2, seed=3)
    rows = [{"at": at, "n": 1, "stage": 0} for at in range(0, 40, 4)]

    def body(loop: DataStream) -> Streams:
        windows = loop.filter(col("stage") < 2).key_by("stage").window(ps.tumbling("10ms"))
        totals = windows.aggregate(n=ps.sum("n"), first=ps.min("at"), begun=ps.count())
        back = totals.select("n", at=col("first"), stage=col("stage") + 1).select("at", "n", "stage")
        return back, loop.filter(col("stage") > 0)

    out = list(env.from_collection(rows).assign_timestamps("at").iterate(body, mode).collect())
    first = sorted((row["at"], row["n"]) for row in out if row["stage"] == 1)
    assert first == [(0, 3), (12, 2), (20, 3), (32, 2)]


def windowed_body(windows: ps.WindowAssigner, trigger: ps.Trigger | None = None) -> Callable[[DataStream], Streams]:
    """What was counted in windows goes round."""

    def body(loop: DataStream) -> Streams:
        windowed = loop.key_by("n").window(windows)
        counted = (windowed if trigger is None else windowed.trigger(trigger)).aggregate(rows=ps.count())
        return counted.select(n=col("n") - 1).filter(col("n") > 0), loop

    return body


@pytest.mark.parametrize(
    ("windows", "trigger"),
    [
        (ps.tumbling("1s", time="processing"), None),
        (ps.session("1s", time="processing"), None),
        (ps.global_windows(), ps.PurgingTrigger(ps.ContinuousProcessingTimeTrigger("1s"))),
    ],
)
def test_windows_that_the_end_of_a_loop_would_not_wait_for_are_refused(
    windows: ps.WindowAssigner, trigger: ps.Trigger | None
) -> None:
    body = windowed_body(windows, trigger)
    with pytest.raises(GraphError, match=r"iterate: .* has windows that fire by the clock.*use windows of event time"):
        stream_of_numbers().iterate(body)
    # An endless loop, and rows that do not go round, lose nothing by it.
    local_environment().from_source(DataGenSource({"n": Sequence()})).iterate(body)
    stream_of_numbers().iterate(lambda loop: (loop.filter(col("n") > 1), body(loop)[0]))


@pytest.mark.parametrize("mode", MODES)
def test_loops_behind_each_other_and_beside_each_other(mode: IterationMode) -> None:
    env = local_environment(2, seed=7)

    def times_two(limit: int) -> Callable[[DataStream], Streams]:
        def body(loop: DataStream) -> Streams:
            doubled = loop.with_columns(n=col("n") * 2)
            return doubled.filter(col("n") < limit), doubled.filter(col("n") >= limit)

        return body

    stream = env.from_collection([{"n": 1}, {"n": 3}]).rebalance()
    behind = stream.iterate(times_two(100), mode).iterate(times_two(1000), mode).collect()
    beside = stream.iterate(times_two(10), mode).collect()
    env.execute()
    assert sorted(row["n"] for row in behind) == [1024, 1536]
    assert sorted(row["n"] for row in beside) == [12, 16]


@pytest.mark.parametrize("mode", MODES)
def test_what_leaves_one_loop_may_enter_another_by_the_side(mode: IterationMode) -> None:
    env = local_environment(2, seed=11)
    first = env.from_collection([{"n": 5}]).iterate(less_by_one, mode)

    def body(loop: DataStream) -> Streams:
        both = loop.union(first).rebalance()
        less = both.with_columns(n=col("n") - 1)
        return less.filter(col("n") > 0), less

    out = env.from_collection([{"n": 2}]).iterate(body, mode).collect()
    expected = [1, 0, *(n for start in (4, 3, 2, 1) for n in range(start - 1, -1, -1))]
    assert sorted(row["n"] for row in out) == sorted([*expected, -1])


@EXAMPLES
@given(environments, modes, st.lists(st.integers(1, 4), max_size=6))
def test_rows_from_the_side_may_end_before_the_loop_does(
    env: StreamEnvironment, mode: IterationMode, values: list[int]
) -> None:
    side = env.from_collection([{"n": n} for n in values], schema={"n": "int64"}).rebalance()

    def body(loop: DataStream) -> Streams:
        # All subtasks but the first are fed from the side only.
        return less_by_one(loop.global_().union(side))

    out = env.from_collection([{"n": 3}]).iterate(body, mode).collect()
    assert sorted(row["n"] for row in out) == sorted(n for start in (3, *values) for n in range(start))


def less_by_one(loop: DataStream) -> Streams:
    less = loop.with_columns(n=col("n") - 1)
    return less.filter(col("n") > 0), less


def test_a_loop_over_endless_input_gives_rows_while_it_runs() -> None:
    env = local_environment(2)
    endless = env.from_source(DataGenSource({"n": Sequence()}))
    rows = iter(endless.iterate(less_by_one).collect())
    seen = {next(rows)["n"] for _ in range(5000)}
    rows.close()  # type: ignore[attr-defined]
    assert len(seen) > 10


def test_event_time_passes_through_the_loop() -> None:
    env = local_environment(2)
    rows = [{"at": at, "n": 2} for at in range(100)]
    out = env.from_collection(rows).assign_timestamps("at").iterate(less_by_one)
    counts = out.key_by("n").window(ps.tumbling("50ms")).aggregate(rows=ps.count()).collect()
    assert sorted((row["n"], row["rows"]) for row in counts) == [(0, 50), (0, 50), (1, 50), (1, 50)]


class LastWords(Operator):
    """Emits a row when its input ends."""

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        out.collect(batch)

    def finish(self, out: Collector) -> None:
        out.collect(numbers([1]))


class LastWordsSpec(OperatorSpec):
    def create(self) -> Operator:
        return LastWords()

    def describe(self) -> str:
        return "last words"


def final_controls(loop: DataStream) -> Streams:
    spoken = loop._add(LastWordsSpec(), loop.schema)
    return spoken.filter(col("n") == 1), spoken


@pytest.mark.parametrize("mode", MODES)
def test_rows_that_come_back_when_the_loop_has_ended_are_not_lost_in_silence(mode: IterationMode) -> None:
    env = local_environment(1)
    env.from_collection([{"n": 0}]).iterate(final_controls, mode).collect()
    with pytest.raises(JobFailedError, match="1 rows were fed back when the loop had ended"):
        env.execute()


def test_rows_that_come_back_behind_the_last_superstep_are_dropped() -> None:
    env = local_environment(1)
    out = env.from_collection([{"n": 0}]).iterate(final_controls, BulkSynchronous(), max_supersteps=2).collect()
    assert [row["n"] for row in out] == [0, 1]


def test_columns_that_are_not_known_before_must_be_equal_when_they_meet() -> None:
    env = local_environment(1)
    stream = env.from_collection([{"n": 2}])
    stream.iterate(lambda loop: (loop.map(lambda row: {"m": row["n"]}), loop), BulkSynchronous(), 3).collect()
    with pytest.raises(JobFailedError, match=r"operator 'iterate\(.*column 'n' is not in the same place"):
        env.execute()


# What cannot be a loop


def stream_of_numbers() -> DataStream:
    return local_environment().from_collection([{"n": 1}], schema={"n": "int64"})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (None, "the body must be a function .* not None"),
        (lambda loop: loop, "must return two streams"),
        (lambda loop: (loop, None), "must return two streams"),
        (lambda loop: (loop, stream_of_numbers()), "must return two streams made of the one"),
        (lambda loop: (loop.select(n=col("n") / 2), loop), "n: double.*n: int64.*make them equal"),
        (lambda loop: (loop.assign_timestamps("n"), loop), "one has timestamps and the other not"),
        (lambda loop: (loop.forward(), loop), "cannot be partitioned by forward"),
        (lambda loop: (loop.global_(), loop), "cannot be partitioned by global"),
        (lambda loop: (loop.iterate(less_by_one), loop), "is a loop within a loop"),
        (
            lambda loop: (loop.group_by("n").aggregate(m=ps.count()).select("n"), loop),
            r"operator 'group_by\(n, m=count\(\*\)\)' in the body gives its rows when its input has ended",
        ),
    ],
)
def test_a_body_that_makes_no_loop_is_refused(body: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        stream_of_numbers().iterate(body)


@pytest.mark.parametrize("which", ["what is fed back", "what leaves the loop"])
def test_both_streams_must_come_from_the_loop(which: str) -> None:
    stream = stream_of_numbers()
    other = stream.filter(col("n") > 3)
    with pytest.raises(GraphError, match=f"{which} does not come from the stream"):
        stream.iterate(lambda loop: (other, loop) if which == "what is fed back" else (loop, other))


def test_supersteps_need_input_that_ends() -> None:
    env = local_environment()
    endless = env.from_source(DataGenSource({"n": Sequence()}))
    bounded = env.from_collection([{"n": 1}])
    with pytest.raises(GraphError, match="bulk synchronous loop needs bounded input"):
        endless.iterate(less_by_one, BulkSynchronous())
    with pytest.raises(GraphError, match="stale synchronous, bound 1 loop needs bounded input"):
        bounded.iterate(lambda loop: (loop.union(endless), loop), StaleSynchronous())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "bulk"}, "mode is Asynchronous"),
        ({"max_supersteps": 3}, "an asynchronous loop has no supersteps"),
        ({"mode": BulkSynchronous(), "max_supersteps": 0}, "whole number of 1 or more"),
        ({"mode": BulkSynchronous(), "max_supersteps": True}, "whole number of 1 or more"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        stream_of_numbers().iterate(less_by_one, **options)


@pytest.mark.parametrize("bound", [-1, 1.5, True])
def test_the_bound_of_staleness_is_a_whole_number(bound: Any) -> None:
    with pytest.raises(ConfigurationError, match="bound must be a whole number"):
        StaleSynchronous(bound)


def test_the_plan_shows_the_way_back() -> None:
    env = local_environment(2)

    def body(loop: DataStream) -> Streams:
        less = loop.name("pagerank").with_columns(n=col("n") - 1)
        return less.key_by("n"), less

    env.from_collection([{"n": 1}]).iterate(body, BulkSynchronous(), max_supersteps=2).collect()
    plan = env.explain()
    assert "[4] <- 3 feedback to 2 (n: int64)" in plan
    assert "  feedback to 2\n    -> task 2 (hash(n))" in plan
    assert "] <- 1 pagerank" in plan


def test_a_loop_whose_rows_go_nowhere_does_not_run() -> None:
    env = local_environment()
    stream = env.from_collection([{"n": 3}])
    stream.iterate(less_by_one)
    assert list(stream.collect()) == [{"n": 3}]


def test_a_sink_in_the_body_is_enough_for_the_loop_to_run() -> None:
    env = local_environment()
    collected = []

    def body(loop: DataStream) -> Streams:
        less = loop.with_columns(n=col("n") - 1)
        collected.append(less.collect())
        return less.filter(col("n") > 0), less

    env.from_collection([{"n": 3}]).iterate(body)
    env.execute()
    assert [row["n"] for row in collected[0]] == [2, 1, 0]
