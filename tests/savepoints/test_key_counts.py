"""How many keys each state holds something of, as counters tell, is what a savepoint of that moment would hold."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from penstock import KeyedProcessFunction, ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor, ttl
from penstock.engine.aggregates import functions as aggregates
from penstock.engine.functions import Context, RuntimeContext
from penstock.engine.metrics import OperatorMetrics, held_keys
from penstock.engine.state.capture import CaptureRequest, CaptureScope
from tests.savepoints.by_hand import RunByHand
from tests.savepoints.test_live_state import BUILDS, USERS, VISITS

LAST = [(user, "forget", 9) for user in USERS[:7]]


class Forgetful(KeyedProcessFunction):
    """Keeps state of its user until it is told to forget."""

    def open(self, context: RuntimeContext) -> None:
        lives = ttl("1h")
        self.states: list[Any] = [
            context.get_state(ValueStateDescriptor("number", "int64")),
            context.get_state(ValueStateDescriptor("mortal", "int64", ttl=lives)),
            context.get_list_state(ListStateDescriptor("list", "int64")),
            context.get_map_state(MapStateDescriptor("map", "int64")),
            context.get_map_state(MapStateDescriptor("mortals", "int64", ttl=lives)),
        ]
        self.other = context.get_state(ValueStateDescriptor("of one", "int64"))

    def process_element(self, row: dict[str, Any], ctx: Context) -> Iterator[dict[str, Any]]:
        number, mortal, listed, *maps = self.states
        if row["user"] == USERS[0]:
            self.other.update(1)
        if row["page"] == "forget":
            for state in self.states:
                state.clear()
            return
        number.update(row["at"])
        mortal.update(row["at"])
        listed.add(row["at"])
        for mapped in maps:
            mapped.put(row["page"], row["at"])
        yield row


def counted(run: RunByHand) -> dict[str, int]:
    """What the counters say of all subtasks."""
    return dict(held_keys(context.metrics for context in run.contexts))


def test_keys_are_counted_by_state_and_not_by_what_lists_and_maps_hold() -> None:
    run = RunByHand(lambda keyed: keyed.process(Forgetful)).take(VISITS[:50])
    for number, scope in enumerate((CaptureScope.BASE, CaptureScope.CHANGES)):
        for operator in run.operators:
            operator.capture(CaptureRequest(number, scope))
        run.take(VISITS[50:])
    of_all = dict.fromkeys(("number", "mortal", "list", "map", "mortals"), len(USERS))
    assert counted(run) == {**of_all, "of one": 1}
    run.take(LAST)
    assert counted(run) == {**dict.fromkeys(of_all, len(USERS) - len(LAST)), "of one": 1}
    names = run.operators[0].capture(CaptureRequest(9, CaptureScope.COMPLETE)).tables
    saved = {name: len(set(run.saved(name)["user"].to_pylist())) for name in names}
    assert saved == counted(run)


@pytest.mark.parametrize(
    ("which", "state"),
    [
        ("process", "count"),
        ("process", "times"),
        ("process", "pages"),
        ("reduce", "reduced"),
        ("aggregate", "accumulators"),
        ("windows", "window_aggregate"),
        ("sessions", "window_aggregate"),
    ],
)
def test_the_keys_of_every_kind_of_operator_are_counted(which: str, state: str) -> None:
    run = RunByHand(BUILDS[which])
    assert counted(run).get(state, 0) == 0
    run.take(VISITS[:60]).take(VISITS[60:])
    saved = set(run.saved(state)["user"].to_pylist())
    assert counted(run)[state] == len(saved) == len(USERS)


def test_what_would_take_a_scan_is_not_counted() -> None:
    pytest.importorskip("rocksdict")
    run = RunByHand(BUILDS["process"], state_backend="rocksdb").take(VISITS)
    assert counted(run) == {}
    for operator in run.operators:
        operator.close()
    assert counted(RunByHand(BUILDS["elements of windows"]).take(VISITS)) == {}


def test_counters_that_are_kept_keep_no_state_and_one_that_cannot_tell_hides_the_sum() -> None:
    run = RunByHand(lambda keyed: keyed.aggregate(n=aggregates.count())).take(VISITS)
    metrics: list[OperatorMetrics] = [context.metrics for context in run.contexts]
    assert held_keys(metrics) == {"accumulators": len(USERS)}
    run.operators.pop()
    gc.collect()
    assert held_keys(metrics) == {}
    assert held_keys(metrics[:-1]).keys() == {"accumulators"}
