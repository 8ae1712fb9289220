"""`KeyedStream.match` in a running job: matches, time-outs, late rows, the clock; and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    AfterMatchSkipStrategy,
    DataStream,
    KeyedStream,
    OutputTag,
    Pattern,
    PatternProcessFunction,
    StreamEnvironment,
    WatermarkStrategy,
    col,
)
from penstock.engine.errors import ConfigurationError, GraphError, JobFailedError, PatternError
from tests.engine.helpers import local_environment

PAYMENTS = [
    {"card": "x", "amount": 0.5, "at": 1_000},
    {"card": "y", "amount": 900.0, "at": 1_500},
    {"card": "x", "amount": 700.0, "at": 3_000},
    {"card": "y", "amount": 0.2, "at": 4_000},
    {"card": "x", "amount": 0.4, "at": 2_000},
    {"card": "y", "amount": 0.1, "at": 500},
    {"card": "y", "amount": 800.0, "at": 70_000},
]
SLOW = OutputTag("slow", {"card": "string", "until": "int64"})
LATE = OutputTag("late")
CHAIN = Pattern.begin("small").where(col("amount") < 1).followed_by("large").where(col("amount") > 500)


def payments(max_batch_rows: int = 100) -> DataStream:
    env = local_environment(parallelism=1, max_batch_rows=max_batch_rows)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness("1s")
    return env.from_collection(PAYMENTS).assign_timestamps("at", strategy)


def by_card() -> KeyedStream:
    return payments().key_by("card")


def chain(match: Any) -> dict[str, Any]:
    small, large = match["small"][0], match["large"][0]
    return {"card": small["card"], "small": small["amount"], "large": large["amount"]}


def test_matches_are_found_in_order_of_time_whatever_the_order_of_arrival() -> None:
    found = list(payments().key_by("card").match(CHAIN.within("1m")).select(chain).collect())
    assert found == [
        {"card": "y", "small": 0.1, "large": 900.0},
        {"card": "x", "small": 0.5, "large": 700.0},
        {"card": "x", "small": 0.4, "large": 700.0},
    ]


def test_time_outs_and_late_rows_go_to_side_outputs() -> None:
    stream = payments(1).key_by("card").match(CHAIN.within("1m")).side_output_late_data(LATE)
    found = stream.select(chain, timed_out=SLOW, on_timeout=lambda m, at: {"card": m["small"][0]["card"], "until": at})
    slow, late = found.get_side_output(SLOW).collect(), found.get_side_output(LATE).collect()
    rows = found.collect()
    assert [row["small"] for row in rows] == [0.5]
    assert list(slow) == [{"card": "y", "until": 64_000}]
    assert [(row["card"], row["at"]) for row in late] == [("x", 2_000), ("y", 500)]


class Report(PatternProcessFunction):
    def open(self, context: Any) -> None:
        self.place = f"{context.operator}/{context.subtask}/{context.parallelism}"

    def process_match(self, match: Any, context: Any) -> Any:
        yield {"key": context.key, "at": context.timestamp, "names": ",".join(match), "opened": bool(self.place)}
        yield {"key": context.key, "at": -1, "names": "", "opened": True}

    def process_timed_out_match(self, match: Any, context: Any) -> None:
        context.output(SLOW, {"card": context.key, "until": context.timestamp})


def test_a_process_function_gives_any_number_of_rows_and_knows_key_and_time() -> None:
    found = by_card().match(CHAIN.within("1m")).process(Report)
    slow = found.get_side_output(SLOW).collect()
    rows = list(found.collect())
    assert rows[2:4] == [
        {"key": "x", "at": 3_000, "names": "small,large", "opened": True},
        {"key": "x", "at": -1, "names": "", "opened": True},
    ]
    assert [row["until"] for row in slow] == [64_000]


def test_functions_of_the_row_and_of_the_match_so_far_are_conditions() -> None:
    rising = (
        Pattern.begin("first")
        .next("more")
        .where(lambda row, match: row["amount"] > match.events("first")[-1]["amount"])
    )
    pattern = rising.where(lambda row: row["card"] == "x")
    found = by_card().match(pattern).select(lambda m: {"from": m["first"][0]["amount"], "to": m["more"][0]["amount"]})
    assert list(found.collect()) == [{"from": 0.4, "to": 700.0}]


def test_a_skip_strategy_drops_matches() -> None:
    pattern = Pattern.begin("any", AfterMatchSkipStrategy.skip_past_last_event()).next("then")
    found = by_card().match(pattern).select(lambda m: {"at": m["any"][0]["at"]}).collect()
    assert [row["at"] for row in found] == [500, 1_000, 4_000]


def test_without_timestamps_a_pattern_is_looked_for_by_the_clock() -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    stream = env.from_collection(PAYMENTS).key_by("card").match(CHAIN, time="processing").select(chain)
    assert [row["small"] for row in stream.collect()] == [0.5, 0.2, 0.1]


def test_what_a_condition_raises_names_the_row() -> None:
    stream = by_card().match(Pattern.begin("a").where(lambda row: 1 / 0)).select(lambda m: {"n": 1})
    with pytest.raises(JobFailedError, match="ZeroDivisionError"):
        list(stream.collect())


def test_explain_shows_the_automaton() -> None:
    assert by_card().match(CHAIN.within("1m")).explain() == (
        "Pattern small large\n"
        "  matcher: columns, compiled where there are many rows\n"
        "  within 1m from the first to the last event; after a match: no skip\n"
        "  small (start)\n"
        "    takes small if col(amount) < 1 -> large\n"
        "  large\n"
        "    takes large if col(amount) > 500 -> match\n"
        "    skips if not col(amount) > 500 -> stays"
    )


class NoMatch(PatternProcessFunction):
    pass


_REFUSED: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "no pattern": (lambda: by_card().match("a"), GraphError, "match takes a Pattern"),  # type: ignore[arg-type]
    "no such time": (lambda: by_card().match(CHAIN, "ingestion"), ConfigurationError, "time is"),  # type: ignore[arg-type]
    "no timestamps": (
        lambda: StreamEnvironment(runtime="local").from_collection(PAYMENTS).key_by("card").match(CHAIN),
        GraphError,
        "time='processing'",
    ),
    "unknown columns": (
        lambda: payments().map(lambda row: row).key_by("card").match(CHAIN),
        GraphError,
        "declare them with returns",
    ),
    "a missing column": (lambda: by_card().match(Pattern.begin("a").where(col("z") > 1)), GraphError, "'z'"),
    "a pattern that is refused": (lambda: by_card().match(CHAIN.next("large")), PatternError, "two stages"),
    "late rows of the clock": (
        lambda: by_card().match(CHAIN, "processing").side_output_late_data(LATE),
        GraphError,
        "no row is late",
    ),
    "no tag": (lambda: by_card().match(CHAIN).side_output_late_data("late"), GraphError, "OutputTag"),  # type: ignore[arg-type]
    "a time-out without a function": (lambda: by_card().match(CHAIN).select(chain, timed_out=SLOW), GraphError, "both"),
    "time-outs among late rows": (
        lambda: by_card().match(CHAIN).side_output_late_data(SLOW).select(chain, timed_out=SLOW, on_timeout=chain),
        GraphError,
        "timed_out='slow' is the side output of late rows, too, .*give each an OutputTag of its own",
    ),
    "select nothing": (lambda: by_card().match(CHAIN).select(3), GraphError, "takes a function"),  # type: ignore[arg-type]
    "another function": (lambda: by_card().match(CHAIN).process(dict), GraphError, "PatternProcessFunction"),  # type: ignore[arg-type]
    "no process_match": (lambda: by_card().match(CHAIN).process(NoMatch()), GraphError, "process_match"),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_what_cannot_be_done_is_refused(name: str) -> None:
    make, kind, reason = _REFUSED[name]
    with pytest.raises(kind, match=reason):
        make()
