"""Patterns that come, change and go while a job runs: applied by event time, unchanged ones keep what is under way."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock import OutputTag, StreamEnvironment
from penstock.engine.elements import MAX_TIMESTAMP, Batch
from penstock.engine.errors import GraphError, RecordError
from penstock.tables import types as t
from penstock.tables.lower.base import schema_of
from penstock.tables.lower.matching.changing import ChangingPatternsSpec
from penstock.tables.plan.nodes import Column, TimeAttribute
from tests.engine.operators.changelog.jobs import ChangelogJob
from tests.tables.matching.definition import moment

_UP = "MEASURES A.v AS v PATTERN (A B) DEFINE B AS B.v > A.v"
_DOWN = "MEASURES A.v AS v PATTERN (A B) DEFINE B AS B.v < A.v"
_LONG = "MEASURES A.v AS v PATTERN (A B C) DEFINE A AS v = 1, B AS v = 2, C AS v = 3"
_COLUMNS = (Column("k", t.STRING), Column("v", t.INT), Column("ts", t.timestamp(3), TimeAttribute.ROWTIME))
_MEASURES = (Column("v", t.INT),)
_PATTERNS = schema_of((Column("pattern", t.STRING), Column("clause", t.STRING)))


def _job(parallelism: int = 1) -> ChangelogJob:
    schema = schema_of((Column("pattern", t.STRING), Column("k", t.STRING), Column("v", t.INT)))
    spec = ChangingPatternsSpec(_COLUMNS, (0,), 2, _MEASURES, schema, "UTC", None)
    return ChangelogJob(spec, [schema_of(_COLUMNS), _PATTERNS], parallelism)


def _tell(job: ChangelogJob, at: int, name: str, clause: str | None) -> None:
    """Give a pattern to all subtasks."""
    batch = pa.RecordBatch.from_pylist([{"pattern": name, "clause": clause}], _PATTERNS)
    for operator in job.operators:
        operator.process_batch(Batch(batch, pa.array([at])), 1, job.out)


def _send(job: ChangelogJob, at: int, value: int, key: str = "x") -> None:
    job.send([("+I", (key, value, moment(at)))], times=[at])


def _found(job: ChangelogJob) -> list[tuple[Any, ...]]:
    return [row for _, row in job.log]


def test_a_change_holds_from_its_time_on_wherever_watermarks_stand() -> None:
    logs = []
    for marks in ([], [2, 4, 6], list(range(1, 12))):
        job = _job()
        _tell(job, 0, "p", _UP)
        _tell(job, 5, "p", _DOWN)
        _tell(job, 9, "p", None)
        for at, value in enumerate([1, 2, 3, 1, 5, 4, 6, 3, 9, 1], start=1):
            _send(job, at, value)
            if at in marks:
                job.advance(at)
        job.advance(MAX_TIMESTAMP)
        logs.append(_found(job))
    # Up to time 4 values go up, from 5 to 8 down; what begins before a change is not found behind it.
    assert logs[0] == [("p", "x", 1), ("p", "x", 2), ("p", "x", 5), ("p", "x", 6)]
    assert logs == [logs[0]] * 3


def test_unchanged_patterns_keep_what_is_under_way_through_changes_restores_and_rescales() -> None:
    job = _job(2)
    _tell(job, 0, "long", _LONG)
    _tell(job, 0, "other", _UP)
    for key in ("x", "y", "z"):
        _send(job, 1, 1, key)
    job.advance(1)
    _tell(job, 2, "other", _DOWN)
    _tell(job, 2, "long", _LONG)
    _tell(job, 50, "long", None)
    job.advance(2)
    job.restart(3)
    for key in ("x", "y", "z"):
        _send(job, 3, 2, key)
    job.advance(3)
    job.restart(1)
    for key in ("x", "y", "z"):
        _send(job, 4, 3, key)
        _send(job, 60, 1, key)
        _send(job, 61, 2, key)
        _send(job, 62, 3, key)
    job.advance(MAX_TIMESTAMP)
    found = [row for row in _found(job) if row[0] == "long"]
    assert sorted(found) == [("long", "x", 1), ("long", "y", 1), ("long", "z", 1)]
    assert sorted(row for row in _found(job) if row[0] == "other") == [("other", k, 3) for k in "xyz"]


@pytest.mark.parametrize(
    ("clause", "problem"),
    [
        ("MEASURES A.v AS v PATTERN (A B", r"expected '\)' at the end of PATTERN"),
        ("MEASURES A.v AS w PATTERN (A B) DEFINE B AS TRUE", "MEASURES must give v INT, and gives w"),
        ("MEASURES A.ts AS v PATTERN (A B) DEFINE B AS TRUE", "measure 'v' is TIMESTAMP"),
        ("MEASURES A.x AS v PATTERN (A B) DEFINE B AS TRUE", "no column 'x'"),
        ("PARTITION BY v MEASURES A.v AS v PATTERN (A) DEFINE A AS TRUE", "are those of match_patterns"),
        (_UP + " AND", "expected an expression"),
        (_UP + " SELECT", "expected the end behind DEFINE"),
    ],
)
def test_a_pattern_that_cannot_be_read_names_its_problem(clause: str, problem: str) -> None:
    job = _job()
    _tell(job, 0, "bad", clause)
    with pytest.raises(RecordError, match=problem):
        job.advance(1)


def _rules(env: StreamEnvironment, rows: list[dict[str, Any]]) -> Any:
    columns = {"pattern": "string", "clause": "string", "at": "int64"}
    return env.from_collection(rows, schema=columns).assign_timestamps("at")


def test_a_table_is_matched_with_patterns_of_a_stream() -> None:
    env = StreamEnvironment(runtime="local", parallelism=2)
    rows = [{"card": card, "amount": amount, "ts": moment(at)} for card, amount, at in _PAYMENTS]
    payments = env.tables.from_stream(env.from_collection(rows).assign_timestamps("ts"), rowtime="ts")
    bad = OutputTag("bad")
    rules = _rules(
        env,
        [
            {"pattern": "jump", "clause": _JUMP, "at": 0},
            {"pattern": "odd", "clause": "MEASURES 1 AS amount", "at": 0},
            {"pattern": "jump", "clause": "PATTERN (", "at": 3},
        ],
    )
    found = payments.match_patterns(rules, partition_by=["card"], measures={"amount": "DOUBLE"}, refused=bad)
    problems = found.get_side_output(bad).collect()
    results = found.collect()
    env.execute()
    assert sorted(row["amount"] for row in results) == [700.0, 900.0]
    assert {(row["pattern"], row["problem"][:6]) for row in problems} == {("odd", "line 1"), ("jump", "line 1")}


_JUMP = "MEASURES B.amount AS amount PATTERN (A B) DEFINE A AS amount < 1, B AS amount > 500"
_PAYMENTS = [("x", 0.5, 1), ("y", 0.25, 2), ("x", 700.0, 2), ("y", 900.0, 5), ("x", 800.0, 6)]


def test_what_match_patterns_needs_is_said() -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    stream = env.from_collection([{"card": "x", "ts": moment(1)}])
    table = env.tables.from_stream(stream.assign_timestamps("ts"), rowtime="ts")
    rules = _rules(env, [{"pattern": "p", "clause": None, "at": 0}])
    with pytest.raises(GraphError, match="no column 'cart'"):
        table.match_patterns(rules, partition_by=["cart"], measures={})
    with pytest.raises(GraphError, match="one column of event time"):
        env.tables.from_stream(stream).match_patterns(rules, partition_by=["card"], measures={})
    with pytest.raises(GraphError, match="with the columns 'pattern' and 'clause'"):
        table.match_patterns(stream.assign_timestamps("ts"), partition_by=["card"], measures={})
