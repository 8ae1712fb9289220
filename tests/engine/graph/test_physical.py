"""The physical graph: which operators share a task, how many subtasks they have, and how those are connected."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from typing import Any

import pytest

from penstock.connectors.datagen import DataGenSource, DataGenSplit, Sequence
from penstock.connectors.files.sink import FileSink
from penstock.engine.aggregates.functions import count
from penstock.engine.api.streams import DataStream
from penstock.engine.config import JobConfig
from penstock.engine.errors import ConfigurationError, MissingColumnError
from penstock.engine.functions import OutputTag
from penstock.engine.graph.physical import ChannelPlan, JobProgram, Parallelism, PhysicalGraph, plan
from penstock.engine.graph.scale import Scale
from penstock.environment import StreamEnvironment
from tests.engine.graph.programs import rows, same
from tests.engine.helpers import RecordingSink, local_environment


def planned(build: Callable[[StreamEnvironment], Any], parallelism: int = 2) -> PhysicalGraph:
    env = local_environment(parallelism)
    build(env)
    return env.program("test").physical()


def spread(env: StreamEnvironment) -> DataStream:
    """A stream that can be read with any parallelism."""
    return env.from_source(DataGenSource({"n": Sequence()}, rows=10), name="numbers")


def step(stream: DataStream, name: str) -> DataStream:
    return stream.map(same, returns={"n": "int64"}).name(name)


def tasks(build: Callable[[StreamEnvironment], Any], parallelism: int = 2) -> list[tuple[str, int]]:
    """Name and parallelism of each task."""
    return [(task.name, task.parallelism) for task in planned(build, parallelism).tasks]


# Chaining


def test_operators_of_one_parallelism_share_a_task() -> None:
    assert tasks(lambda env: step(step(spread(env), "a"), "b").sink_to(RecordingSink())) == [
        ("numbers -> a -> b -> recording", 2)
    ]


def test_another_parallelism_is_another_task() -> None:
    assert tasks(lambda env: step(step(spread(env), "a").set_parallelism(3), "b").print()) == [
        ("numbers", 2),
        ("a", 3),
        ("b", 2),
    ]


@pytest.mark.parametrize("verb", ["rebalance", "rescale", "broadcast", "global_"])
def test_an_exchange_is_never_a_direct_call(verb: str) -> None:
    assert tasks(lambda env: step(getattr(spread(env), verb)(), "a").print()) == [("numbers", 2), ("a", 2)]


def test_keys_are_never_chained_even_with_one_subtask() -> None:
    def build(env: StreamEnvironment) -> None:
        spread(env).key_by("n").aggregate(c=count()).name("counts").print()

    assert tasks(build, parallelism=1) == [("numbers", 1), ("counts", 1)]


def test_forward_is_a_direct_call() -> None:
    assert tasks(lambda env: step(spread(env).forward(), "a").print()) == [("numbers -> a", 2)]


def test_several_consumers_share_the_task_of_their_producer() -> None:
    def build(env: StreamEnvironment) -> None:
        stream = step(spread(env), "a")
        step(stream, "b").print()
        step(stream, "c").print()

    graph = planned(build)
    assert [task.name for task in graph.tasks] == ["numbers -> a -> b -> c"]
    a, b, c = graph.tasks[0].operators
    assert (a.chained, b.chained, c.chained) == ((1, 2), (), ())
    assert (a.outputs, b.outputs, c.outputs) == ((), (0,), (1,))


def test_a_union_starts_a_task() -> None:
    assert tasks(lambda env: step(spread(env).union(spread(env)), "a").print()) == [
        ("numbers", 2),
        ("numbers", 2),
        ("a", 2),
    ]


def test_start_new_chain_cuts_before_the_operator() -> None:
    assert tasks(lambda env: step(step(spread(env), "a").start_new_chain(), "b").print()) == [
        ("numbers", 2),
        ("a -> b", 2),
    ]


def test_disable_chaining_cuts_on_both_sides() -> None:
    assert tasks(lambda env: step(step(spread(env), "a").disable_chaining(), "b").print()) == [
        ("numbers", 2),
        ("a", 2),
        ("b", 2),
    ]


def test_an_operator_that_reserves_resources_has_a_task_of_its_own() -> None:
    def build(env: StreamEnvironment) -> None:
        model = spread(env).map_batches(same, returns={"n": "int64"}, num_gpus=0.5).name("model")
        step(model, "b").print()

    graph = planned(build)
    assert [task.name for task in graph.tasks] == ["numbers", "model", "b"]
    reserved = [task.resources.num_gpus if task.resources else None for task in graph.tasks]
    assert reserved == [None, 0.5, None]


def test_operators_that_reserve_the_same_do_not_share_it() -> None:
    def build(env: StreamEnvironment) -> None:
        first = spread(env).map_batches(same, num_gpus=1).name("first")
        first.map_batches(same, num_gpus=1).name("second").print()

    assert [task.name for task in planned(build).tasks] == ["numbers", "first", "second"]


# Parallelism


@pytest.mark.parametrize(
    ("operator", "environment", "client", "expected"),
    [(5, 4, 3, 5), (None, 4, 3, 4), (None, None, 3, 3), (None, None, None, 2)],
)
def test_the_operator_goes_before_the_environment_the_client_and_the_system(
    operator: int | None, environment: int | None, client: int | None, expected: int
) -> None:
    env = local_environment()
    stream = step(rows(env), "a")
    if operator is not None:
        stream.set_parallelism(operator)
    stream.print()
    graph = plan("test", env._program.graph.build(), Parallelism(environment, client, system=2), JobConfig()).physical()
    assert {task.name: task.parallelism for task in graph.tasks}["a"] == expected


def test_a_source_that_cannot_be_shared_out_has_one_subtask() -> None:
    assert tasks(lambda env: step(rows(env).name("rows"), "a").print(), 4) == [("rows", 1), ("a", 4)]


def test_a_parallelism_over_the_number_of_key_groups_is_refused() -> None:
    env = local_environment(max_parallelism=4)
    step(spread(env), "a").set_parallelism(5).print()
    with pytest.raises(ConfigurationError, match=r"operator 'a': parallelism 5 is over the maximum of 4"):
        env.execute()


def test_splits_are_shared_out_among_the_subtasks() -> None:
    source = planned(lambda env: spread(env).print(), 3).tasks[0].source
    assert source is not None
    ids = [split.split_id for share in source.splits for split in share]
    assert len(source.splits) == 3
    assert all(source.splits)
    assert len(set(ids)) == len(ids)


# Channels


def test_channels_are_numbered_at_the_receiver_and_found_again_from_the_sender() -> None:
    def build(env: StreamEnvironment) -> None:
        left, right = spread(env), spread(env).broadcast()
        step(left.rebalance().union(right), "a").set_parallelism(3).print()

    graph = planned(build)
    for subtask in range(3):
        channels = graph.input_channels(3, subtask)
        assert channels == [ChannelPlan(task, sender, 0, 0) for task in (1, 2) for sender in range(2)]
    of_left = [[((3, subtask), sender) for subtask in range(3)] for sender in range(2)]
    of_right = [[((3, subtask), 2 + sender) for subtask in range(3)] for sender in range(2)]
    outgoing = graph.output_channels()
    assert [outgoing[1, sender] for sender in range(2)] == [[channels] for channels in of_left]
    assert [outgoing[2, sender] for sender in range(2)] == [[channels] for channels in of_right]
    assert outgoing[3, 0] == [[]]


@pytest.mark.parametrize("upstream", [1, 2, 3, 5])
@pytest.mark.parametrize("downstream", [1, 2, 3, 5])
@pytest.mark.parametrize("verb", ["rebalance", "rescale", "broadcast", "global_"])
def test_the_channels_out_of_a_subtask_are_those_to_its_targets_by_their_numbers_there(
    upstream: int, downstream: int, verb: str
) -> None:
    graph = planned(lambda env: step(getattr(spread(env), verb)(), "a").set_parallelism(downstream).print(), upstream)
    sending = graph.task(1)
    outgoing = graph.output_channels()
    for sender in range(upstream):
        (channels,) = outgoing[1, sender]
        assert [receiver for receiver, _ in channels] == [(2, to) for to in graph.output_targets(sending, 0, sender)]
        for receiver, number in channels:
            assert graph.input_channels(*receiver)[number] == ChannelPlan(1, sender, 0, 0)


def test_behind_a_global_exchange_only_the_first_subtask_has_channels() -> None:
    graph = planned(lambda env: step(spread(env).global_(), "a").print())
    assert [len(graph.input_channels(2, subtask)) for subtask in range(2)] == [2, 0]


def test_rows_for_the_client_come_from_every_subtask() -> None:
    graph = planned(lambda env: step(spread(env), "a").collect(), 3)
    (exchange,) = graph.tasks[0].outputs
    assert exchange.result is not None
    assert graph.client_channels(exchange.result) == [(1, 0, 0), (1, 0, 1), (1, 0, 2)]


def test_a_stream_in_union_with_itself_has_a_channel_for_each() -> None:
    def build(env: StreamEnvironment) -> None:
        stream = spread(env)
        stream.union(stream).collect()

    (task,) = planned(build, 1).tasks
    assert len(task.outputs) == 2


def test_sinks_are_checked_when_the_job_is_planned() -> None:
    class Picky(RecordingSink):
        def check(self, schema: object) -> None:
            raise ConfigurationError(f"cannot store {schema}")

    with pytest.raises(ConfigurationError, match="cannot store n: int64"):
        planned(lambda env: spread(env).sink_to(Picky()))
    with pytest.raises(ConfigurationError, match="cannot store n: int64"):
        planned(lambda env: spread(env).map(same).union(spread(env)).sink_to(Picky()))


def test_a_plan_names_the_sinks_and_prepares_none() -> None:
    class Prepared(RecordingSink):
        def prepare(self) -> None:
            raise AssertionError("only planned")

    chained, apart = Prepared(), Prepared()

    def build(env: StreamEnvironment) -> None:
        spread(env).sink_to(chained)
        spread(env).rebalance().sink_to(apart)
        spread(env).collect()

    sinks = planned(build).sinks
    assert [sink is expected for sink, expected in zip(sinks, (chained, apart), strict=True)] == [True, True]


class AskedSource(DataGenSource):
    """Numbers; has one split more each time that it is asked."""

    asked = 0

    def splits(self, parallelism: int) -> SequenceOf[DataGenSplit]:
        self.asked += 1
        return super().splits(parallelism + self.asked)


def test_a_job_keeps_the_splits_that_it_was_planned_with() -> None:
    source = AskedSource({"n": Sequence()}, rows=10)
    env = local_environment(2)
    env.from_source(source).uid("numbers").print()
    program = env.program()

    def splits(program: JobProgram) -> set[str]:
        head = program.physical({"numbers": 2}).tasks[0].source
        assert head is not None
        return {split.split_id for share in head.splits for split in share}

    assert splits(program) == splits(program.rescaled(Scale(3))) == {"0/3", "1/3", "2/3"}
    assert source.asked == 1


def test_a_rescale_over_the_most_says_what_can_be_done_with_a_job_that_runs() -> None:
    env = local_environment(2)
    env.from_collection([1]).rebalance().sink_to(RecordingSink())
    program = env.program("orders")
    assert program.rescaled(Scale(128)).physical().tasks[-1].parallelism == 128
    with pytest.raises(ConfigurationError, match=r"'orders' cannot be rescaled to 129: .* it to 128 at most, or"):
        program.rescaled(Scale(129))


# Sinks


def test_a_sink_is_checked_by_the_columns_of_the_side_output_before_it() -> None:
    late = OutputTag("late", {"name": "string", "size": "int64"})

    def build(env: StreamEnvironment, column: str) -> None:
        step(spread(env), "a").get_side_output(late).sink_to(FileSink("never", "json", partition_by=[column]))

    env = local_environment()
    build(env, "name")
    env.explain()
    build(env := local_environment(), "n")
    with pytest.raises(MissingColumnError, match="'n'"):
        env.explain()
