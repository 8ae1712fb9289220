"""A batch costs a changelog operator so many Python calls, and no more of them however many rows it has."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.engine.changelog import ChangelogMode
from penstock.engine.clock import ManualClock
from penstock.engine.elements import Batch
from penstock.engine.operators.base import OperatorContext
from penstock.engine.operators.changelog.calls import AggregateCall
from penstock.engine.operators.changelog.group_aggregate import GroupAggregateSpec
from penstock.engine.operators.changelog.join import ChangelogJoinSpec, JoinInput, JoinKind
from penstock.engine.operators.changelog.normalize import NormalizeSpec
from penstock.engine.operators.changelog.ranks import Order
from penstock.engine.operators.changelog.set_operation import SetOperation, SetOperationSpec
from penstock.engine.operators.changelog.top_n import TopNSpec
from penstock.engine.operators.spec import OperatorSpec
from tests.engine.helpers import RecordingCollector

INT = pa.int64()
SCHEMA = pa.schema({"k": INT, "v": INT, "t": pa.string()})
OTHER = pa.schema({"id": INT, "w": INT, "u": pa.string()})
SPECS: dict[str, tuple[OperatorSpec, int]] = {
    "sums": (
        GroupAggregateSpec(
            SCHEMA,
            ("k",),
            (AggregateCall("sum", "s", INT, "v"), AggregateCall("count", "n", INT)),
            ChangelogMode.APPEND,
        ),
        1100,
    ),
    "extremes that may go": (GroupAggregateSpec(SCHEMA, ("k",), (AggregateCall("max", "m", INT, "v"),)), 1900),
    "distinct texts": (GroupAggregateSpec(SCHEMA, ("k",), (AggregateCall("count", "d", INT, "t", True),)), 1700),
    "full join": (ChangelogJoinSpec(JoinInput(SCHEMA, ("k",)), JoinInput(OTHER, ("id",)), JoinKind.FULL), 2100),
    "top 3": (TopNSpec(SCHEMA, ("k",), (Order("v"),), 3, takes=ChangelogMode.APPEND), 3000),
    "except": (SetOperationSpec(SCHEMA, OTHER, SetOperation.EXCEPT), 1400),
    "normalize": (NormalizeSpec(SCHEMA, ("k",)), 700),
}
"""Specs, and the most Python calls that a batch may cost."""


def batch(rows: int, seed: int, schema: pa.Schema) -> Batch:
    random = np.random.default_rng(seed)
    texts = pa.array([f"text {n}" for n in random.integers(0, rows, rows)])
    columns = [pa.array(random.integers(0, rows // 2, rows)), pa.array(random.integers(0, 100, rows)), texts]
    return Batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def calls_of(spec: OperatorSpec, rows: int) -> int:
    operator, out = spec.create(), RecordingCollector()
    operator.open(OperatorContext("tested", 0, 1, ManualClock()))
    inputs = len(spec.traits.keys)
    schemas = (SCHEMA, OTHER)
    for number in range(2):
        operator.process_batch(batch(rows, number, schemas[number % inputs]), number % inputs, out)
    last, calls = batch(rows, 7, SCHEMA), 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        operator.process_batch(last, 0, out)
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize("name", SPECS)
def test_calls_do_not_grow_with_rows(name: str) -> None:
    spec, most = SPECS[name]
    # The first run may load and compile what the second counts on.
    calls_of(spec, 18_000)
    many = calls_of(spec, 18_000)
    assert many <= most, f"{many} calls"
