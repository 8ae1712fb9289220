"""The unit harness: rows in, time by hand, and what a checkpoint would hold, of the engine's own operators."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.engine.errors import ConfigurationError, GraphError, RecordError, RestoreError, StateError, UserCodeError
from penstock.testing.harness import Harness, HarnessSnapshot, Input, Timer
from tests.draws import drawn

CLICKS = Input({"user": "string", "at": "int64"}, event_time="at")
SEEN = ps.OutputTag("seen", {"user": "string"})


class Remember(ps.KeyedProcessFunction):
    """Counts, lists and maps; reminds after 100 ms of event time and after 5 s of the clock."""

    def open(self, context: Any) -> None:
        self.count = context.get_state(ps.ValueStateDescriptor("count", "int64"))
        self.times = context.get_list_state(ps.ListStateDescriptor("times", "int64"))
        self.by_time = context.get_map_state(ps.MapStateDescriptor("by time", "string", key_type="int64"))
        self.calls = context.get_operator_list_state(ps.ListStateDescriptor("calls", "string"))

    def process_element(self, row: Any, ctx: Any) -> None:
        self.count.update((self.count.value() or 0) + 1)
        self.times.add(row["at"])
        self.by_time.put(row["at"], row["user"])
        self.calls.add(row["user"])
        ctx.timer_service.register_event_time_timer(row["at"] + 100)
        ctx.timer_service.register_processing_time_timer(ctx.timer_service.current_processing_time() + 5_000)
        ctx.output(SEEN, {"user": row["user"]})
        if row["user"] == "bad":
            raise ValueError("no such user")

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield {"user": ctx.current_key, "at": timestamp, "by_clock": not ctx.is_event_time}


def remembered(stream: ps.DataStream) -> ps.DataStream:
    return stream.key_by("user").process(Remember()).uid("remember")


def per_minute(stream: ps.DataStream) -> ps.DataStream:
    return stream.key_by("user").window(ps.tumbling("1min")).aggregate(n=ps.count())


def test_state_timers_and_side_outputs_of_a_function_can_be_read() -> None:
    with Harness(remembered, CLICKS, start_ms=1_000) as harness:
        harness.push({"user": "ann", "at": 5}, {"user": "bob", "at": 7}, {"user": "ann", "at": 9})
        assert harness.take() == []
        assert harness.take_side(SEEN) == [{"user": "ann"}, {"user": "bob"}, {"user": "ann"}]
        assert harness.state("count") == {"ann": 2, "bob": 1}
        assert harness.state("times") == {"ann": [5, 9], "bob": [7]}
        assert harness.state("by time") == {"ann": {5: "ann", 9: "ann"}, "bob": {7: "bob"}}
        assert harness.state("calls") == ["ann", "bob", "ann"]
        assert harness.timers() == [
            Timer("ann", 105),
            Timer("bob", 107),
            Timer("ann", 109),
            Timer("ann", 6_000, is_event_time=False),
            Timer("bob", 6_000, is_event_time=False),
        ]


class Forgets(ps.KeyedProcessFunction):
    """Keeps each kind of state for an hour."""

    def open(self, context: Any) -> None:
        hour = ps.ttl("1h")
        self.last = context.get_state(ps.ValueStateDescriptor("last", "int64", ttl=hour))
        self.times = context.get_list_state(ps.ListStateDescriptor("times", "int64", ttl=hour))
        self.users = context.get_map_state(ps.MapStateDescriptor("users", "string", key_type="int64", ttl=hour))

    def process_element(self, row: Any, ctx: Any) -> None:
        self.last.update(row["at"])
        self.times.add(row["at"])
        self.users.put(row["at"], row["user"])


def test_state_with_a_time_to_live_is_read_as_any_other() -> None:
    with Harness(lambda stream: stream.key_by("user").process(Forgets()), CLICKS, start_ms=1_000) as harness:
        harness.push({"user": "ann", "at": 5}, {"user": "bob", "at": 7}, {"user": "ann", "at": 9})
        assert harness.state("last") == {"ann": 9, "bob": 7}
        assert harness.state("times") == {"ann": [5, 9], "bob": [7]}
        assert harness.state("users") == {"ann": {5: "ann", 9: "ann"}, "bob": {7: "bob"}}


def test_time_moves_only_by_hand() -> None:
    with Harness(remembered, CLICKS) as harness:
        harness.push({"user": "ann", "at": 5})
        harness.watermark(104)
        assert harness.take() == []
        harness.watermark(105)
        assert harness.take() == [{"user": "ann", "at": 105, "by_clock": False}]
        harness.advance("4999ms")
        assert harness.take() == []
        harness.advance("1h")
        assert harness.take() == [{"user": "ann", "at": 5_000, "by_clock": True}]
        assert harness.now_ms == 4_999 + 3_600_000
        assert harness.timers() == []


def test_a_snapshot_is_restored_into_as_many_subtasks_as_there_are_now() -> None:
    with Harness(remembered, CLICKS) as harness:
        for user in "abcdefgh":
            harness.push({"user": user, "at": 5})
        saved, before = harness.snapshot(), harness.timers()
    found: dict[str, int] = {}
    timers = []
    for subtask in range(3):
        with Harness(remembered, CLICKS, restore=[saved], subtask=subtask, parallelism=3) as harness:
            found |= harness.state("count")
            timers += harness.timers()
    assert found == dict.fromkeys("abcdefgh", 1)
    assert sorted(map(repr, timers)) == sorted(map(repr, before))


def test_state_that_the_program_has_no_operator_for_is_refused_as_a_job_would_be() -> None:
    def named(uid: str) -> Any:
        return lambda stream: stream.key_by("user").aggregate(n=ps.count()).uid(uid)

    with Harness(named("visits"), CLICKS) as harness:
        empty = harness.snapshot()
        harness.push({"user": "ann", "at": 5})
        saved = harness.snapshot()
    refused = pytest.raises(RestoreError, match=r"holds state of 'visits' \(did you mean 'visit'\?\)")
    with refused, Harness(named("visit"), CLICKS, restore=saved):
        pass
    for restored in (empty, HarnessSnapshot({})):
        with Harness(named("visit"), CLICKS, restore=restored) as harness:
            harness.push({"user": "ann", "at": 6})
            assert harness.take() == [{"user": "ann", "n": 1}]


def test_rows_of_another_subtask_and_null_keys_are_refused() -> None:
    rows = [{"user": user, "at": 5} for user in "abcdefgh"]
    with (
        Harness(remembered, CLICKS, subtask=0, parallelism=2) as harness,
        pytest.raises(StateError, match=r"have keys of subtask 1, and this harness is subtask 0 of 2"),
    ):
        harness.push(*rows)
    with Harness(remembered, CLICKS) as harness, pytest.raises(RecordError, match="key column 'user' is null"):
        harness.push({"user": None, "at": 5})


def test_two_inputs_share_event_time_and_state() -> None:
    class Both(ps.KeyedCoProcessFunction):
        def open(self, context: Any) -> None:
            self.seen = context.get_state(ps.ValueStateDescriptor("seen", "string"))

        def process_element1(self, row: Any, ctx: Any) -> Any:
            self.seen.update("left")
            ctx.timer_service.register_event_time_timer(10)

        def process_element2(self, row: Any, ctx: Any) -> Any:
            yield {"id": row["id"], "seen": self.seen.value()}

        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            yield {"id": ctx.current_key, "seen": "timer"}

    columns = Input({"id": "int64", "at": "int64"}, event_time="at")

    def both(left: ps.DataStream, right: ps.DataStream) -> ps.DataStream:
        return left.connect(right).key_by("id", "id").process(Both(), returns={"id": "int64", "seen": "string"})

    with Harness(both, columns, columns) as harness:
        harness.push({"id": 1, "at": 0})
        harness.push({"id": 1, "at": 0}, to=1)
        assert harness.take() == [{"id": 1, "seen": "left"}]
        harness.watermark(10, to=0)
        assert harness.take() == []
        harness.idle(True, to=1)
        assert harness.take() == [{"id": 1, "seen": "timer"}]


@settings(max_examples=drawn(25))
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 200_000)), max_size=30),
    st.integers(1, 7),
)
def test_windows_give_what_counting_gives_however_rows_are_cut(clicks: list[tuple[str, int]], size: int) -> None:
    rows = [{"user": user, "at": at} for user, at in clicks]
    with Harness(per_minute, CLICKS) as harness:
        for begin in range(0, len(rows), size):
            harness.push_batch(rows[begin : begin + size])
        harness.finish()
        found = Counter({(row["user"], row["window_start"].timestamp()): row["n"] for row in harness.take()})
    assert found == Counter((user, at // 60_000 * 60) for user, at in clicks)


def test_misuse_is_told_with_the_remedy() -> None:
    with Harness(remembered, CLICKS) as harness:
        with pytest.raises(UserCodeError, match="no such user"):
            harness.push({"user": "bad", "at": 1})
        with pytest.raises(StateError, match=r"no state 'cuont' \(did you mean 'count'\?\) holds anything"):
            harness.state("cuont")
        with pytest.raises(ConfigurationError, match="there is no input 1; there are 1, from 0"):
            harness.push({"user": "ann", "at": 1}, to=1)
        with pytest.raises(RecordError, match="when"):
            harness.push({"user": "ann", "when": 1})
        harness.finish()
        with pytest.raises(StateError, match=r"the inputs have ended by finish\(\); push the rows before"):
            harness.push({"user": "ann", "at": 1})
    with pytest.raises(ConfigurationError, match=r"event_time names no column of \(user\)"):
        Input({"user": "string"}, event_time="at")
    with pytest.raises(GraphError, match="does not use all of its inputs"):
        Harness(lambda one, other: remembered(one), CLICKS, CLICKS)
    with pytest.raises(GraphError, match="returns the stream whose rows are the output, not None"):
        Harness(lambda stream: None, CLICKS)  # type: ignore[arg-type,return-value]


def test_a_row_without_the_columns_of_its_input_is_refused_in_words_of_the_harness() -> None:
    with Harness(lambda stream: stream.filter(ps.col("n") > 0), Input({"user": "string", "n": "int64"})) as harness:
        for push in (harness.push, lambda row: harness.push_batch([row])):
            with pytest.raises(
                RecordError, match=r"has 'usr' \(did you mean 'user'\?\); input 0 has the columns user, n"
            ):
                push({"usr": "ann", "n": 1})
            with pytest.raises(RecordError, match=r"lacks 'user'; input 0 has the columns user, n; a null is None"):
                push({"n": 1})


def test_event_times_finer_than_milliseconds_are_cut_off_towards_the_past_as_in_jobs() -> None:
    clicks = Input({"user": "string", "at": "timestamp[ns]"}, event_time="at")
    with Harness(lambda stream: stream.filter(ps.col("user") != ""), clicks) as harness:
        times = pa.array([-1, -1_000_001, 1_999_999], pa.timestamp("ns"))
        harness.push_batch(pa.table({"user": ["ann"] * 3, "at": times}))
        (batch,) = harness.take_batches()
    assert batch.timestamps is not None
    assert batch.timestamps.to_pylist() == [-1, -2, 1]


class Undeclared(ps.KeyedProcessFunction):
    def open(self, context: Any) -> None:
        context.get_state(ps.ListStateDescriptor("times", "int64"))

    def process_element(self, row: Any, ctx: Any) -> None:
        raise NotImplementedError
