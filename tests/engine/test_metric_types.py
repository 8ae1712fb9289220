"""Metrics of users: what they count, how subtasks are added up, and what is refused."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.errors import ConfigurationError
from penstock.engine.metric_types import MOST_METRICS, Histogram, MetricGroup, MetricKind, read_together


@given(st.lists(st.floats(1e-5, 1e12), min_size=1, max_size=200), st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_within_its_error(values: list[float], share: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.update(value)
    exact = sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
    assert histogram.quantile(share) == pytest.approx(exact, rel=0.046)


@given(st.lists(st.floats(width=32, allow_infinity=False), max_size=100))
def test_many_values_at_once_count_as_one_by_one(values: list[float]) -> None:
    one_by_one, at_once = Histogram(), Histogram()
    for value in values:
        one_by_one.update(value)
    at_once.update_many(np.array(values))
    assert (at_once.count, at_once.lowest, at_once.highest) == (
        one_by_one.count,
        one_by_one.lowest,
        one_by_one.highest,
    )
    assert at_once.total == pytest.approx(one_by_one.total)
    shares = (0.1, 0.5, 0.99)
    both = [[histogram.quantile(share) for share in shares] for histogram in (at_once, one_by_one)]
    assert both[0] == pytest.approx(both[1], nan_ok=True, rel=0.1)


def test_the_subtasks_of_an_operator_are_added_up() -> None:
    groups = [MetricGroup(), MetricGroup()]
    for number, group in enumerate(groups):
        group.counter("rejected").inc(number + 1)
        group.meter("orders").mark(10)
        group.gauge("fill").set(number)
        group.histogram("sizes").update_many([1.0, 2.0 + number])
    read = {one.name: one for one in read_together(groups)}
    assert (read["rejected"].kind, read["rejected"].value) == (MetricKind.COUNTER, 3)
    assert read["orders"].value == 20
    assert (read["fill"].value, read["fill"].lowest, read["fill"].highest) == (0.5, 0, 1)
    assert (read["sizes"].value, read["sizes"].lowest, read["sizes"].highest, read["sizes"].total) == (4, 1, 3, 7)


def test_a_gauge_travels_as_the_figure_of_the_moment_and_one_that_raises_has_none() -> None:
    group, waiting = MetricGroup(), [7]
    group.gauge("waiting", lambda: waiting[0])
    group.gauge("broken", lambda: 1 / 0)
    sent = pickle.loads(pickle.dumps(group))
    waiting[0] = 9
    read = {one.name: one.value for one in read_together([sent])}
    assert read["waiting"] == 7
    assert math.isnan(read["broken"])


def test_a_name_means_one_metric_and_does_not_come_from_the_data() -> None:
    group = MetricGroup()
    assert group.counter("n") is group.counter("n")
    with pytest.raises(ConfigurationError, match="is a Counter; give the Gauge another name"):
        group.gauge("n")
    with pytest.raises(ConfigurationError, match="letters, digits and underscores"):
        group.counter("user 7")
    for number in range(MOST_METRICS - 1):
        group.counter(f"user_{number}")
    with pytest.raises(ConfigurationError, match="must not come from the data"):
        group.counter("one_more")
