"""Schedules: drawn by a seed, and readable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.errors import ConfigurationError
from penstock.testing.chaos import (
    AfterCheckpoints,
    AfterFault,
    AfterSeconds,
    AmidRescale,
    ChaosSchedule,
    DrainNode,
    KillManager,
    KillServer,
    KillSubtask,
    PauseServer,
    PauseSubtask,
    Rescale,
    RescaleStorm,
    RestartServer,
    ScheduledFault,
    SubtaskChoice,
    TakeNode,
)
from penstock.testing.chaos.schedule import KINDS


@given(st.integers(0, 10_000), st.integers(1, 12))
def test_the_same_seed_gives_the_same_schedule_within_its_duration(seed: int, faults: int) -> None:
    schedule = ChaosSchedule.random(seed, "20s", faults)
    assert schedule == ChaosSchedule.random(seed, "20s", faults)
    moments = [fault.at.seconds for fault in schedule.faults if isinstance(fault.at, AfterSeconds)]
    assert len(moments) == faults
    assert moments == sorted(moments)
    assert moments[0] >= 0.5
    assert moments[-1] <= 20


def test_a_fault_to_be_disturbed_comes_first_and_leaves_the_others_as_they_are() -> None:
    schedule = ChaosSchedule.random(7, "5s", 3, during="storm")
    first, *others = schedule.faults
    assert (first.at, type(first.fault)) == (AfterSeconds(0.5), RescaleStorm)
    undisturbed = ChaosSchedule.random(7, "5s", 3).faults
    assert [one.fault for one in others] == [one.fault for one in undisturbed]
    assert list(ChaosSchedule.random(7, "5s", 3, during="savepoint").faults[1:]) == list(undisturbed)


@pytest.mark.parametrize("kind", ["storm", "rescale", "rescale-one"])
def test_what_comes_behind_a_rescale_hits_it_while_it_is_under_way(kind: str) -> None:
    first, *others = ChaosSchedule.random(7, "5s", 3, during=kind).faults
    assert first.at == AfterSeconds(0.5)
    moments = [one.at for one in others if isinstance(one.at, AmidRescale)]
    assert len(moments) == 3
    assert len({moment.seconds for moment in moments}) == 3
    assert all(0 <= moment.seconds <= 1 for moment in moments)


def test_other_seeds_give_other_schedules() -> None:
    assert len({str(ChaosSchedule.random(seed)) for seed in range(50)}) == 50


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_alone_is_drawn_alone(kind: str) -> None:
    schedule = ChaosSchedule.random(1, faults=5, weights={kind: 1}, servers=["kafka"])
    assert len({type(fault.fault) for fault in schedule.faults}) == 1


def test_a_schedule_reads_as_what_will_happen() -> None:
    schedule = ChaosSchedule(
        [
            ScheduledFault(AfterCheckpoints(2), KillSubtask((SubtaskChoice("count", 1), SubtaskChoice()))),
            ScheduledFault(AfterFault(0.1), KillManager()),
            ScheduledFault(AfterSeconds(5), PauseSubtask(1.5)),
            ScheduledFault(AfterSeconds(6), Rescale(3)),
            ScheduledFault(AfterSeconds(6), RescaleStorm((1, 3))),
            ScheduledFault(AmidRescale(0.25), KillManager()),
            ScheduledFault(AfterSeconds(6.5), DrainNode()),
            ScheduledFault(AfterSeconds(6.5), TakeNode(30)),
            ScheduledFault(AfterSeconds(7), KillServer("kafka", 0.5)),
            ScheduledFault(AfterSeconds(9), RestartServer("kafka")),
            ScheduledFault(AfterFault(1), PauseServer("kafka", 2)),
        ]
    )
    assert str(schedule).splitlines() == [
        "at checkpoint +2: kill subtask 1 of 'count' and a subtask",
        "0.10 s later: kill the job manager",
        "at 5.00 s: stop a subtask for 1.50 s",
        "at 6.00 s: rescale to 3",
        "at 6.00 s: rescale one operator after the other to 1, 3",
        "at 0.25 s into a rescale: kill the job manager",
        "at 6.50 s: drain a node, with 120.00 s of notice",
        "at 6.50 s: take a node away behind 30.00 s of notice",
        "at 7.00 s: kill kafka, and start it 0.50 s later",
        "at 9.00 s: restart kafka",
        "1.00 s later: stop kafka for 2.00 s",
    ]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"weights": {"subtsk": 1}}, "no kind of fault 'subtsk'.*did you mean 'subtask'"),
        ({"weights": {"subtask": 0}}, "one kind with a weight over 0"),
        ({"faults": 0}, "at least one fault"),
        ({"weights": {"kill-server": 1}}, "kill-server needs a server"),
        ({"during": "pause-server"}, "pause-server needs a server"),
        ({"during": "strom"}, "no kind of fault 'strom'.*did you mean 'storm'"),
        ({"duration": "fast"}, "'fast' is no duration"),
    ],
)
def test_what_cannot_be_drawn_is_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        ChaosSchedule.random(1, **settings)  # type: ignore[arg-type]
