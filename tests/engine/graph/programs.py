"""Programs whose plans the tests of this folder compare with golden texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.engine.aggregates import functions as agg
from penstock.engine.api.streams import DataStream
from penstock.engine.expressions import col
from penstock.engine.functions import OutputTag
from penstock.engine.windows.assigners import session, sliding, tumbling
from penstock.engine.windows.watermarks import WatermarkStrategy
from penstock.environment import StreamEnvironment
from tests.engine.helpers import RecordingSink

Program = Callable[[StreamEnvironment], Any]


def rows(env: StreamEnvironment) -> DataStream:
    return env.from_collection([("UA", 1400, 0)], schema=["carrier", "distance", "at"])


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


def word_count(env: StreamEnvironment) -> None:
    lines = env.from_collection(["to be"], schema=["line"])
    words = lines.flat_map(split_line, returns={"word": "string"}).set_parallelism(2)
    words.key_by("word").aggregate(n=agg.count()).uid("counts").name("count words").collect()


def split_line(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"word": word} for word in row["line"].split()]


def all_windows(env: StreamEnvironment) -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness("5s")
    keyed = rows(env).assign_timestamps("at", strategy).key_by("carrier")
    for windows in (tumbling("1h"), sliding("1d", "6h", offset="1h"), session("30m")):
        keyed.window(windows).aggregate(flights=agg.count(), far=agg.max("distance")).sink_to(RecordingSink())


def all_exchanges(env: StreamEnvironment) -> None:
    stream = rows(env).map(same).set_parallelism(3)
    stream.map(same).name("chained").set_parallelism(3).print()
    stream.map(same).name("other parallelism").set_parallelism(2).print()
    stream.rebalance().map(same).name("rebalanced").set_parallelism(3).print()
    stream.rescale().map(same).name("rescaled").set_parallelism(2).print()
    stream.broadcast().map(same).name("broadcast").set_parallelism(2).print()
    stream.global_().map(same).name("global").set_parallelism(1).print()
    stream.forward().map(same).name("forward").set_parallelism(3).print()


def union_and_resources(env: StreamEnvironment) -> None:
    left, right = rows(env), rows(env).filter(col("distance") > 700)
    left.union(right).map_batches(same, num_cpus=0.5, num_gpus=0.25).select("carrier").print()


def batch_view(env: StreamEnvironment) -> None:
    far = rows(env).group_by("carrier").aggregate(flights=agg.count(), far=agg.max("distance"))
    far.sort("far", "carrier", descending=[True, False]).filter(col("flights") > 1).sink_to(RecordingSink())


EXPLAINED: dict[str, Program] = {
    "word_count": word_count,
    "all_windows": all_windows,
    "all_exchanges": all_exchanges,
    "union_and_resources": union_and_resources,
    "batch_view": batch_view,
}


# Rewrites: in each, the streams of `rows` go to a sink.


def neighbours(env: StreamEnvironment) -> None:
    rows(env).filter(col("distance") > 1).select("carrier", "distance").with_columns(km=col("distance") * 2).print()


def names_stay(env: StreamEnvironment) -> None:
    rows(env).filter(col("distance") > 1).name("far").select("carrier").name("who").print()


def two_consumers(env: StreamEnvironment) -> None:
    far = rows(env).filter(col("distance") > 1)
    far.select("carrier").print()
    far.select("distance").print()


def python_function_between(env: StreamEnvironment) -> None:
    rows(env).filter(col("distance") > 1).filter(lambda row: True).filter(col("distance") > 2).print()


def other_parallelism(env: StreamEnvironment) -> None:
    rows(env).filter(col("distance") > 1).set_parallelism(2).filter(col("distance") > 2).print()


def equal_parallelism(env: StreamEnvironment) -> None:
    stream = rows(env).filter(col("distance") > 1).set_parallelism(2)
    stream.filter(col("distance") > 2).set_parallelism(2).print()


def an_exchange_between(env: StreamEnvironment) -> None:
    rows(env).filter(col("distance") > 1).rebalance().filter(col("distance") > 2).print()


def an_exchange_before(env: StreamEnvironment) -> None:
    rows(env).rebalance().filter(col("distance") > 1).filter(col("distance") > 2).print()


def a_uid(env: StreamEnvironment) -> None:
    rows(env).filter(col("distance") > 1).uid("far").filter(col("distance") > 2).print()


def a_chain_of_its_own(env: StreamEnvironment) -> None:
    rows(env).filter(col("distance") > 1).disable_chaining().filter(col("distance") > 2).print()


def a_new_chain_behind(env: StreamEnvironment) -> None:
    rows(env).filter(col("distance") > 1).filter(col("distance") > 2).start_new_chain().print()


def a_new_chain_before(env: StreamEnvironment) -> None:
    rows(env).filter(col("distance") > 1).start_new_chain().filter(col("distance") > 2).print()


def a_union_before(env: StreamEnvironment) -> None:
    rows(env).union(rows(env)).filter(col("distance") > 1).filter(col("distance") > 2).print()


def a_union_between(env: StreamEnvironment) -> None:
    far = rows(env).filter(col("distance") > 1)
    far.union(rows(env)).filter(col("distance") > 2).print()


def aggregates_behind_keys(env: StreamEnvironment) -> None:
    keyed = rows(env).assign_timestamps("at", WatermarkStrategy.for_monotonous_timestamps()).key_by("carrier")
    keyed.aggregate(far=agg.max("distance"), spread=agg.stddev("distance")).print()
    keyed.window(sliding("1h", "10m")).aggregate(flights=agg.count()).print()


def all_rows_of_a_window(env: StreamEnvironment) -> None:
    stream = rows(env).assign_timestamps("at", WatermarkStrategy.for_monotonous_timestamps())
    stream.window_all(tumbling("1h")).aggregate(flights=agg.count()).print()


def what_is_not_merged(env: StreamEnvironment) -> None:
    keyed = rows(env).assign_timestamps("at", WatermarkStrategy.for_monotonous_timestamps()).key_by("carrier")
    keyed.aggregate(first=agg.first("distance")).print()
    keyed.window(sliding("10m", "1h")).aggregate(flights=agg.count()).print()
    keyed.window(session("1h")).aggregate(flights=agg.count()).print()
    late = OutputTag("late")
    keyed.window(tumbling("1h")).side_output_late_data(late).aggregate(flights=agg.count()).print()


REWRITTEN: dict[str, Program] = {
    "neighbours become one operator": neighbours,
    "names stay": names_stay,
    "a stream with two consumers is computed once": two_consumers,
    "a Python function ends the run": python_function_between,
    "another parallelism ends the run": other_parallelism,
    "equal parallelism does not": equal_parallelism,
    "an exchange between ends the run": an_exchange_between,
    "an exchange before stays before": an_exchange_before,
    "an operator with a uid stays": a_uid,
    "disable_chaining ends the run": a_chain_of_its_own,
    "start_new_chain begins a run": a_new_chain_behind,
    "start_new_chain stays at the head of its run": a_new_chain_before,
    "a union before stays before": a_union_before,
    "a union between ends the run": a_union_between,
    "rows travel to aggregates by key as partial aggregates": aggregates_behind_keys,
    "rows travel to aggregates of all rows as partial aggregates": all_rows_of_a_window,
    "they do not where order, sessions, gaps or late rows matter": what_is_not_merged,
}
