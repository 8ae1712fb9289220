"""Alignment groups: who belongs to them, and how far they are."""

from __future__ import annotations

import pytest

from penstock.connectors.datagen import DataGenSource, EventTime
from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.engine.task.alignment import AlignmentGroup, alignment_groups, alignment_member, group_minimum
from penstock.engine.windows.watermarks import WatermarkStrategy
from penstock.environment import StreamEnvironment
from tests.engine.helpers import local_environment

IN_ORDER = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("at")


@pytest.mark.parametrize(
    ("positions", "minimum"),
    [([5, 3, 9], 3), ([5, None, 9], 5), ([MIN_TIMESTAMP, 7], MIN_TIMESTAMP), ([None, None], MAX_TIMESTAMP)],
)
def test_a_group_is_as_far_as_its_earliest_member_that_takes_part(positions: list[int | None], minimum: int) -> None:
    assert group_minimum(positions) == minimum


def read(env: StreamEnvironment, strategy: WatermarkStrategy | None) -> None:
    source = DataGenSource({"at": EventTime()}, rows=10)
    env.from_source(source, watermarks=strategy).print()


def test_the_sources_of_a_group_are_found_by_its_name() -> None:
    env = local_environment(2)
    read(env, IN_ORDER.with_watermark_alignment("trips", "1m"))
    read(env, IN_ORDER.with_watermark_alignment("fares", "1m"))
    read(env, IN_ORDER)
    read(env, None)
    read(env, IN_ORDER.with_watermark_alignment("trips", "5m", update_interval="200ms"))
    read(env, IN_ORDER.with_watermark_alignment("trips", "5m", update_interval="300ms"))
    graph = env.program("groups").physical()
    assert alignment_groups(graph) == [
        AlignmentGroup(((1, 0), (1, 1), (5, 0), (5, 1), (6, 0), (6, 1)), 200),
        AlignmentGroup(((2, 0), (2, 1)), 1000),
    ]
    drifts = [member and member.max_drift_ms for member in map(alignment_member, graph.tasks)]
    assert drifts == [60_000, 60_000, None, None, 300_000, 300_000]
