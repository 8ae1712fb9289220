"""What a job has got over: failures are counted, and what was asked for is only listed."""

from __future__ import annotations

from penstock.engine.checkpointing.handles import JobStory
from penstock.engine.checkpointing.history import STORED
from penstock.engine.job.events import Moment
from penstock.engine.job.restarts import KEPT, LONGEST_CAUSE, RestartKind, RestartLog


def test_a_rescale_is_listed_and_no_failure() -> None:
    log = RestartLog()
    log.on_failure("a process died", [(0, 1)], Moment(5.0, 0))
    log.on_resumed(1, 0, 9.0)
    log.begin(RestartKind.RESCALE, "rescale to 3", [(0, 0), (0, 1), (0, 2)], Moment(6.0, 0))
    assert log.failures == 1
    shown = [restart.to_dict() for restart in log.kept]
    assert [(one["kind"], one["cause"], one["subtasks"]) for one in shown] == [
        ("failure", "a process died", 1),
        ("rescale", "rescale to 3", 3),
    ]


def test_all_failures_are_counted_though_only_the_newest_are_kept() -> None:
    log = RestartLog()
    for number in range(KEPT + 5):
        log.on_failure(str(number), [(0, 0)], Moment(float(number), 0))
        log.on_resumed(1, 0, 9.0)
    assert (log.failures, len(log.kept), log.kept[0].cause) == (KEPT + 5, KEPT, "5")


def test_a_manager_tells_the_restarts_of_the_one_before_without_its_times() -> None:
    log = RestartLog()
    for number in range(STORED + 2):
        log.on_failure(f"{number}: a process died\n{'much more ' * 100}", [(0, 0)], Moment(5.0, 0))
        log.on_resumed(1, 0, 9.0)
    story = log.add_to(JobStory(completed=7))
    assert story.completed == 7
    assert max(map(len, story.restart_records)) < 200 + LONGEST_CAUSE

    after = RestartLog()
    after.resume_from(story)
    after.on_failure("again", [(0, 1)], Moment(6.0, 0))
    assert after.failures == STORED + 3
    told = after.to_dicts()
    assert [one["cause"] for one in told] == [*(f"{n}: a process died" for n in range(2, STORED + 2)), "again"]
    assert [one["detected_monotonic"] for one in told] == [None] * STORED + [6.0]
    assert told[0].keys() == told[-1].keys()


def test_what_another_version_tells_is_passed_over() -> None:
    log = RestartLog()
    log.resume_from(JobStory(restarts=3, restart_records=("", "[1]", '{"cause": "known"}')))
    assert (log.failures, [one["cause"] for one in log.to_dicts()]) == (3, ["known"])


def test_what_fails_while_a_restart_is_under_way_is_another_cause_of_it() -> None:
    log = RestartLog()
    log.on_failure("a process died", [(0, 1)], Moment(5.0, 100))
    log.on_failure("its node, too", [(0, 0)], Moment(6.0, 200))
    log.on_resumed(2, 7, 8.0)
    (restart,) = log.to_dicts()
    assert (restart["cause"], restart["failures"], restart["last_cause"]) == ("a process died", 2, "its node, too")
    assert (log.failures, restart["attempt"], restart["checkpoint"], restart["restore_ms"]) == (1, 2, 7, 3000.0)


def test_a_restart_that_fails_again_and_again_has_its_first_error_and_the_newest() -> None:
    log = RestartLog()
    for number in range(100):
        log.on_failure(f"server {number} is away", [(0, 0)], Moment(float(number), 0), ((0, 0), number))
    assert log.on_explained(((0, 0), 99), "server 99 is away: refused")
    (restart,) = log.to_dicts()
    assert (restart["cause"], restart["last_cause"]) == ("server 0 is away", "server 99 is away: refused")
    after = RestartLog()
    after.resume_from(log.add_to(JobStory()))
    assert after.to_dicts()[0]["last_cause"] == "server 99 is away: refused"


def test_each_of_two_errors_that_read_alike_is_explained_by_itself() -> None:
    log = RestartLog()
    for attempt in (1, 2):
        log.on_failure("a process died", [(0, 0)], Moment(float(attempt), 0), ((0, 0), attempt))
    assert log.on_explained(((0, 0), 1), "a process died: out of memory")
    assert log.on_explained(((0, 0), 2), "a process died: its node is gone")
    (restart,) = log.to_dicts()
    assert restart["cause"] == "a process died: out of memory"
    assert restart["last_cause"] == "a process died: its node is gone"


def test_what_is_known_late_of_an_error_does_not_replace_a_newer_one() -> None:
    log = RestartLog()
    log.begin(RestartKind.RESCALE, "rescale to 3", [(0, 0)], Moment(5.0, 0))
    for attempt in (1, 2):
        log.on_failure("a process died", [(0, 0)], Moment(5.0 + attempt, 0), ((0, 0), attempt))
    assert log.on_explained(((0, 0), 1), "a process died: out of memory")
    (restart,) = log.to_dicts()
    assert (restart["cause"], restart["failures"], restart["last_cause"]) == ("rescale to 3", 2, "a process died")


def test_rows_that_come_before_all_subtasks_run_are_the_first_ones() -> None:
    log = RestartLog()
    log.on_failure("a process died", [(0, 0), (0, 1)], Moment(5.0, 0))
    log.on_rows(2, 5.5)
    log.on_rows(2, 5.6)
    log.on_resumed(2, 7, 6.0)
    log.on_rows(2, 6.5)
    (told,) = log.to_dicts()
    assert (told["restore_ms"], told["first_output_ms"]) == (1000.0, 500.0)
