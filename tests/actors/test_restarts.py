"""What a job has got over: failures are counted, and what was asked for is only listed."""

from __future__ import annotations

from penstock.actors.restarts import KEPT, RestartLog


def test_a_rescale_is_listed_and_no_failure() -> None:
    log = RestartLog()
    log.on_failure("a process died", [(0, 1)], 5.0)
    log.on_rescale(3, [(0, 0), (0, 1), (0, 2)], 6.0)
    assert log.failures == 1
    shown = [restart.to_dict() for restart in log.kept]
    assert [(one["kind"], one["cause"], one["subtasks"]) for one in shown] == [
        ("failure", "a process died", 1),
        ("rescale", "rescale to 3", 3),
    ]


def test_all_failures_are_counted_though_only_the_newest_are_kept() -> None:
    log = RestartLog()
    for number in range(KEPT + 5):
        log.on_failure(str(number), [(0, 0)], float(number))
    assert (log.failures, len(log.kept), log.kept[0].cause) == (KEPT + 5, KEPT, "5")
