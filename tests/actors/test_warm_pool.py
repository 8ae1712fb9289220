"""As many warm processes as a job has made are left for the next one, and one by one while it runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.actors.warm_pool import AT_ONCE, START_SECONDS, Ask, Counted, Ended, Leaving, Made, WarmPool


def pool(size: int, *made: str) -> WarmPool:
    """One whose job has made processes on these nodes."""
    made_by = WarmPool(size)
    for node in made:
        assert made_by.handle(Made(node), 0.0) is None
    return made_by


class TestWhileTheJobRuns:
    def test_one_after_the_other_is_started(self) -> None:
        warm = pool(8, *"aaa")
        assert warm.handle(Counted("a", 0), 1.0) == Ask("a", 1)
        assert warm.handle(Counted("a", 0), 2.0) is None
        assert warm.handle(Counted("a", 1), 3.0) == Ask("a", 1)
        assert warm.handle(Counted("a", 2), 4.0) == Ask("a", 1)
        assert warm.handle(Counted("a", 3), 5.0) is None
        assert not warm.short

    def test_one_that_does_not_come_is_asked_for_again(self) -> None:
        warm = pool(8, "a")
        warm.handle(Counted("a", 0), 1.0)
        assert warm.handle(Counted("a", 0), 1.0 + START_SECONDS) == Ask("a", 1)

    def test_each_node_gets_its_own(self) -> None:
        warm = pool(8, *"aab")
        assert [warm.handle(Counted(node, 0), 1.0) for node in "ab"] == [Ask("a", 1), Ask("b", 1)]
        assert warm.handle(Counted("b", 1), 2.0) is None
        assert list(warm.short) == ["a"]

    def test_there_are_no_more_than_the_size_says(self) -> None:
        assert pool(2, *"aaaa").handle(Counted("a", 2), 1.0) is None
        assert not pool(0, *"aaaa").short

    def test_those_of_others_count(self) -> None:
        assert pool(8, *"aa").handle(Counted("a", 5), 1.0) is None


class TestWhenItHasEnded:
    def test_several_are_started_at_once(self) -> None:
        warm = pool(8, *"aaaa")
        warm.handle(Counted("a", 0), 1.0)
        warm.handle(Ended(), 1.5)
        assert warm.handle(Counted("a", 1), 2.0) == Ask("a", AT_ONCE)
        assert warm.handle(Counted("a", 2), 3.0) is None
        assert warm.handle(Counted("a", 3), 4.0) == Ask("a", 1)
        assert warm.handle(Counted("a", 4), 5.0) is None
        assert not warm.short


def test_nothing_is_started_on_nodes_that_leave_or_are_silent() -> None:
    warm = pool(8, *"abc")
    warm.handle(Leaving(["a"]), 1.0)
    assert warm.handle(Counted("b", None), 1.0) is None
    assert list(warm.short) == ["c"]


@given(st.integers(1, 5), st.lists(st.sampled_from(["job", "look", "lost", "taken"]), max_size=60))
def test_there_are_never_more_than_the_size_says(size: int, happenings: list[str]) -> None:
    """Whatever other jobs take, and though some that are asked for never come."""
    warm, idle, coming, now = WarmPool(size), 0, 0, 0.0
    for happening in happenings:
        now += 1.0
        match happening:
            case "job":
                warm.handle(Made("a"), now)
                idle = max(0, idle - 1)
            case "taken":
                idle = max(0, idle - 1)
            case "lost":
                coming = 0
            case _:
                idle, coming = idle + coming, 0
                ask = warm.handle(Counted("a", idle), now)
                coming += ask.count if ask else 0
        assert idle + coming <= size
