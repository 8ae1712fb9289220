"""Queries that change between a savepoint and their next run: what keeps its state, and what EXPLAIN UPGRADE says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock import StreamEnvironment
from penstock.engine.checkpoint_config import CheckpointConfig
from penstock.engine.errors import RestoreError, SqlValidationError
from penstock.recovery import checkpoints
from penstock.savepoints import read
from penstock.tables.plan.fingerprints import fingerprint
from penstock.tables.plan.nodes import inputs_of
from tests.tables.programs import RECORDED, WAITING, Expected, Given

_ROWS = [{"kind": "+I", "values": [key, value]} for key, value in (("a", 1), ("b", 2), ("a", 3), ("a", 4))]
_STEPS = {"t": {"dataBeforeRestore": _ROWS[:3], "dataAfterRestore": _ROWS[3:]}}
_COUNTS = "INSERT INTO counts SELECT k, COUNT(*) FROM t WHERE v > 0 GROUP BY k;"
_SUMS = "INSERT INTO sums SELECT k, SUM(v) FROM t GROUP BY k;"
_PAIR = f"EXECUTE STATEMENT SET BEGIN {_COUNTS} {_SUMS} END"


def _environment(
    halves: Sequence[str], held: bool, stored: CheckpointConfig | None = None, shares: bool = True
) -> tuple[StreamEnvironment, Given]:
    env = StreamEnvironment(runtime="local", parallelism=1, checkpoints=stored)
    given = Given(_STEPS, halves, held)
    env.tables.register_connector(given)
    env.tables.register_connector(Expected())
    env.sql(f"SET 'table.optimizer.reuse-sub-plan-enabled' = '{str(shares).lower()}'")
    env.sql("CREATE TABLE t (k STRING, v INT) WITH ('connector' = 'given')")
    for name in ("counts", "sums"):
        RECORDED[name] = []
        env.sql(
            f"CREATE TABLE {name} (k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'expected')"
        )
    return env, given


@pytest.fixture(scope="module")
def savepoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of the counts and sums of three rows."""
    return _taken(tmp_path_factory.mktemp("evolution"), _PAIR)


def _taken(folder: Path, script: str, shares: bool = True) -> str:
    """A savepoint, taken behind three rows."""
    env, given = _environment(("dataBeforeRestore",), True, checkpoints("5m", str(folder / "checkpoints")), shares)
    env.sql(script)
    job = env.submit()
    while any(WAITING[id(table)] < 3 for table in given.tables):
        job.pump(0.01)
    return str(job.stop(str(folder / "savepoint")))


def _resumed(script: str, savepoint: str, allow: bool = False, shares: bool = True) -> dict[str, dict[str, int]]:
    """What the sinks hold in the end, of what they are given behind the savepoint."""
    env, _ = _environment(("dataBeforeRestore", "dataAfterRestore"), held=False, shares=shares)
    env.sql(script)
    env.submit(savepoint=savepoint, allow_non_restored_state=allow).wait()
    return {name: {key: n for kind, (key, n) in RECORDED[name] if kind in ("+I", "+U")} for name in ("counts", "sums")}


def _upgrade(script: str, savepoint: str) -> list[tuple[str, str]]:
    env, _ = _environment(("dataBeforeRestore", "dataAfterRestore"), held=False)
    for _ in range(2):
        # The second time as the first: the program stays as it is.
        table = env.sql(f"EXPLAIN UPGRADE FROM '{savepoint}' {script}")
        assert table is not None
        rows: list[dict[str, Any]] = list(table.collect())
    return [(row["state"], row["operator"].partition("(")[0]) for row in rows]


def test_the_same_statements_keep_their_state_also_in_another_order(savepoint: str) -> None:
    swapped = f"EXECUTE STATEMENT SET BEGIN {_SUMS} {_COUNTS} END"
    assert _resumed(swapped, savepoint) == {"counts": {"a": 3}, "sums": {"a": 8}}
    assert {state for state, _ in _upgrade(swapped, savepoint)} == {"kept"}


def test_what_changes_begins_anew_from_the_table_and_the_rest_resumes(savepoint: str) -> None:
    changed = _PAIR.replace("SUM(v)", "SUM(v * 10)")
    assert _upgrade(changed, savepoint) == [
        ("kept", "Scan"),
        ("kept", "Aggregate"),
        ("kept", "Sink"),
        ("new", "Scan"),
        ("new", "Aggregate"),
        ("kept", "Sink"),
        ("lost", "t "),
        ("lost", "group_aggregate"),
    ]
    with pytest.raises(RestoreError, match="holds state of operators that the program does not have"):
        _resumed(changed, savepoint)
    assert _resumed(changed, savepoint, allow=True) == {"counts": {"a": 3}, "sums": {"a": 80, "b": 20}}


def test_what_stands_above_keeps_the_state_below(savepoint: str) -> None:
    above = _COUNTS.replace("COUNT(*)", "COUNT(*) * 100")
    assert _resumed(f"EXECUTE STATEMENT SET BEGIN {above} {_SUMS} END", savepoint)["counts"] == {"a": 300}


@pytest.mark.parametrize("shares", [True, False])
def test_what_was_computed_once_resumes_with_the_same_setting_and_is_refused_with_the_other(
    tmp_path: Path, shares: bool
) -> None:
    most = "(SELECT k, MAX(n) AS n FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) GROUP BY k)"
    script = f"INSERT INTO counts SELECT a.k, a.n + b.n FROM {most} a JOIN {most} b ON a.k = b.k"
    savepoint = _taken(tmp_path, script, shares)
    with pytest.raises(RestoreError, match=f"'table.optimizer.reuse-sub-plan-enabled' = '{str(shares).lower()}'"):
        _resumed(script, savepoint, shares=not shares)
    assert _resumed(script, savepoint, shares=shares)["counts"] == {"a": 6}
    alone = f"INSERT INTO counts SELECT k, n FROM {most}"
    with pytest.raises(RestoreError) as caught:
        _resumed(alone, savepoint, shares=shares)
    assert "reuse-sub-plan-enabled" not in str(caught.value)


def test_the_state_of_collect_is_known_as_when_its_result_could_be_null() -> None:
    env, _ = _environment((), held=False)
    table = env.sql("SELECT k, COLLECT(v) AS c FROM t GROUP BY k")
    assert table is not None
    (groups,) = inputs_of(table.plan)
    assert fingerprint(groups) == "f36c0f18fd98"


def test_the_state_behind_a_text_without_a_character_is_known_as_when_that_had_one() -> None:
    env, _ = _environment((), held=False)
    table = env.sql("SELECT k, COUNT(*) AS n FROM t WHERE k <> '' GROUP BY k")
    assert table is not None
    assert fingerprint(table.plan) == "1f764691bd89"


def test_a_path_without_a_savepoint_is_pointed_at(tmp_path: Path) -> None:
    env, _ = _environment(("dataBeforeRestore",), held=False)
    with pytest.raises(SqlValidationError) as raised:
        env.sql(f"EXPLAIN UPGRADE FROM '{tmp_path}/none' {_SUMS}")
    assert raised.value.column == 22


def _saved_groups(savepoint: str, options: str) -> StreamEnvironment:
    env = StreamEnvironment(runtime="local", parallelism=1)
    columns = "k STRING, `0_sum` BIGINT"
    env.sql(f"CREATE TABLE saved ({columns}) WITH ('connector' = 'savepoint', 'path' = '{savepoint}', {options})")
    return env


def test_the_state_of_a_savepoint_is_queried(savepoint: str) -> None:
    (uid,) = (one.uid for one in read(savepoint).operators if "sum(v)" in one.name)
    env = _saved_groups(savepoint, f"'operator' = '{uid}', 'state' = 'groups'")
    table = env.sql("SELECT k, `0_sum` * 2 AS n FROM saved WHERE `0_sum` > 2")
    assert table is not None
    assert list(table.collect()) == [{"k": "a", "n": 8}]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("'operator' = 'sql1-scan'", "'sql1-scan'"),
        ("'operator' = '{uid}', 'state' = 'group'", "did you mean 'groups'"),
        ("'operator' = '{count}'", "the state has no column '0_sum'"),
    ],
)
def test_a_state_that_is_not_there_is_refused(savepoint: str, options: str, says: str) -> None:
    named = {"count": next(one.uid for one in read(savepoint).operators if "count(*)" in one.name)}
    named |= {"uid": next(one.uid for one in read(savepoint).operators if "sum(v)" in one.name)}
    table = _saved_groups(savepoint, options.format(**named)).sql("SELECT * FROM saved")
    assert table is not None
    with pytest.raises(SqlValidationError) as raised:
        table.to_stream()
    assert says in str(raised.value)
