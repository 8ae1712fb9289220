"""Simulated nodes: what is lost with one, where it starts anew, and when there is room again."""

from __future__ import annotations

import random

import pytest

from penstock.engine.errors import NoRoomError, WorkerLostError
from penstock.engine.graph.scale import Scale
from penstock.engine.job.layout import Layout
from penstock.testing.simulation.faults import Dice, FaultRates
from penstock.testing.simulation.nodes import NodeRoom, Nodes
from tests.engine.job.shell import TwoTasks


def layout(parallelism: int) -> Layout:
    return TwoTasks().plan(Scale(parallelism), {})


def nodes(rates: FaultRates = FaultRates(standby=0.0), **wanted: int) -> Nodes:  # noqa: B008 - frozen
    """Nodes of which three have `slots` each, and a manager has `standbys`."""
    for seed in range(1000):
        found = Nodes(random.Random(seed), Dice(random.Random(0), rates))
        if len(found.alive) == 3 and found.slots(0) == wanted["slots"] and found.standbys == wanted.get("standbys", 0):
            return found
    raise AssertionError("no seed makes such nodes")


def test_all_processes_of_a_node_are_lost_with_it_and_no_others() -> None:
    cluster = nodes(slots=1)
    room = NodeRoom(cluster, 0)
    room.provide(layout(3))
    lost = [room.lose_node(node) for node in cluster.alive]
    assert sorted(place for places in lost for place in places) == sorted(layout(3).places)
    assert all(len({subtask for _, subtask in places}) == 1 for places in lost)


def test_what_was_lost_starts_where_there_is_room() -> None:
    cluster = nodes(slots=2)
    room = NodeRoom(cluster, 0)
    room.provide(layout(3))
    cluster.lose(1)
    lost = room.lose_node(1)
    room.provide(layout(3))
    assert lost
    assert not room.lose_node(1)
    assert sorted([*room.lose_node(0), *room.lose_node(2)]) == sorted(layout(3).places)


def test_too_little_room_is_refused_with_what_there_is_and_told_once_there_is_enough() -> None:
    cluster = nodes(slots=1)
    room = NodeRoom(cluster, 0)
    room.provide(layout(3))
    cluster.lose(2)
    room.lose_node(2)
    with pytest.raises(NoRoomError) as refused:
        room.provide(layout(3))
    assert refused.value.room == 2
    with pytest.raises(NoRoomError):
        room.prepare(layout(3))
    room.provide(layout(2))
    found: list[bool] = []
    room.await_room(layout(3), lambda: found.append(True))
    room.look()
    assert not found
    cluster.return_all()
    room.look()
    room.look()
    assert found == [True]


def test_a_standby_that_dies_as_it_is_taken_fails_the_deployment_and_is_gone() -> None:
    room = NodeRoom(nodes(FaultRates(standby=1.0), slots=2, standbys=1), 0)
    room.fill_standbys()
    with pytest.raises(WorkerLostError, match="standby"):
        room.provide(layout(2))
    room.provide(layout(2))
