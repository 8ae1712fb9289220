"""The comparison of two savepoints agrees with one of plain dicts, and says what a user wants to know."""

from __future__ import annotations

import datetime as dt
import importlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor, savepoints
from penstock.engine.checkpointing.handles import NativeHandle, OperatorHandle, SubtaskHandle
from penstock.engine.errors import RestoreError
from penstock.savepoints.compare import compare
from penstock.savepoints.content import digest_of
from penstock.savepoints.paths import digits_of
from penstock.savepoints.segments import write_file
from penstock.savepoints.storage import open_blobs
from tests.draws import drawn
from tests.savepoints.made import checkpoint, complete, totals

MakeUrl = Callable[[], str]
_NUMBERS = itertools.count()
TOTAL = ValueStateDescriptor("total", "int64")

VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int64": (pa.int64(), st.integers(0, 2)),
    "text": (pa.string(), st.sampled_from(["", "a", "b"])),
    "float64": (pa.float64(), st.sampled_from([0.0, 1.5, math.nan])),
    "list": (pa.list_(pa.int64()), st.lists(st.none() | st.integers(0, 1), max_size=2)),
    "struct": (
        pa.struct([("a", pa.list_(pa.string())), ("b", pa.float64())]),
        st.fixed_dictionaries(
            {"a": st.none() | st.lists(st.sampled_from("xy"), max_size=2), "b": st.none() | st.just(math.nan)}
        ),
    ),
    "map": (
        pa.map_(pa.string(), pa.int64()),
        st.lists(st.tuples(st.sampled_from("xy"), st.integers(0, 1)), max_size=2),
    ),
}


@st.composite
def two_tables(draw: st.DrawFn) -> tuple[pa.Table, pa.Table, dict[Any, Any], dict[Any, Any]]:
    kind, values = VALUES[draw(st.sampled_from(sorted(VALUES)))]
    keys = st.tuples(st.none() | st.sampled_from("kl"), st.integers(0, 2))
    made = []
    for _ in range(2):
        rows = draw(st.dictionaries(keys, st.none() | values, max_size=6))
        columns = {
            "name": pa.array([name for name, _ in rows], pa.string()),
            "number": pa.array([number for _, number in rows], pa.int64()),
            "value": pa.array(list(rows.values()), kind),
        }
        made.append((pa.table(columns), rows))
    return made[0][0], made[1][0], made[0][1], made[1][1]


def shown(value: Any) -> str:
    """NaN equals itself, and the order of fields says nothing."""
    return repr(sorted(value.items()) if isinstance(value, dict) else value)


@settings(max_examples=drawn(50))
@given(two_tables())
def test_tables_are_compared_as_dicts_are(given: tuple[pa.Table, pa.Table, dict[Any, Any], dict[Any, Any]]) -> None:
    before, after, old, new = given
    found = compare(before, after, ["name", "number"])

    def keys(table: pa.Table) -> list[tuple[Any, Any]]:
        return list(zip(table["name"].to_pylist(), table["number"].to_pylist(), strict=True))

    assert Counter(keys(found.added)) == Counter(new.keys() - old.keys())
    assert Counter(keys(found.removed)) == Counter(old.keys() - new.keys())
    changed = {key for key in old.keys() & new.keys() if shown(old[key]) != shown(new[key])}
    assert Counter(keys(found.before)) == Counter(changed)
    assert keys(found.before) == keys(found.after)
    assert found.unchanged == len(old.keys() & new.keys()) - len(changed)


@settings(max_examples=drawn(50))
@given(*[st.lists(st.tuples(st.integers(0, 1), st.lists(st.integers(0, 1), max_size=1)), max_size=6)] * 2)
def test_rows_that_may_come_twice_are_counted(old: list[Any], new: list[Any]) -> None:
    kinds = pa.schema([("n", pa.int64()), ("list", pa.list_(pa.int64()))])
    tables = [pa.Table.from_pylist([{"n": n, "list": values} for n, values in rows], kinds) for rows in (old, new)]
    found = compare(tables[0], tables[1], [])
    before, after = (Counter((n, tuple(values)) for n, values in rows) for rows in (old, new))
    for table, expected in ((found.added, after - before), (found.removed, before - after)):
        assert Counter((row["n"], tuple(row["list"])) for row in table.to_pylist()) == expected
    assert found.unchanged == (before & after).total() if hasattr(before, "total") else True


@settings(max_examples=drawn(25))
@given(*[st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 2), max_size=6)] * 2)
def test_states_are_compared_as_dicts_are(old: dict[str, int], new: dict[str, int]) -> None:
    made = []
    for rows in (old, new):
        data = pa.table({"user": pa.array(list(rows), pa.string()), "value": pa.array(list(rows.values()), pa.int64())})
        editor = savepoints.bootstrap(f"memory://diff-{next(_NUMBERS)}")
        made.append(editor.keyed_state("a", keys=["user"], state=TOTAL, data=data).write())
    (state,) = savepoints.diff(*made).states
    changed = sum(old[user] != new[user] for user in old.keys() & new.keys())
    assert (state.added, state.removed, state.changed) == (
        len(new.keys() - old.keys()),
        len(old.keys() - new.keys()),
        changed,
    )
    assert state.rows == (len(old), len(new))


def test_key_groups_are_compared_one_share_after_another(memory_url: MakeUrl, monkeypatch: pytest.MonkeyPatch) -> None:
    # The function of this name hides the module.
    monkeypatch.setattr(importlib.import_module("penstock.savepoints.differences"), "_CHUNK_ROWS", 10)
    rows: dict[str, int | None] = {f"user{n}": n for n in range(100)}
    old = checkpoint(memory_url(), [totals(rows)], parallelism=2)
    new = checkpoint(memory_url(), [totals(rows), totals({"user5": None, "user6": -6, "new": 1})], parallelism=3)
    (state,) = savepoints.diff(old, new).states
    assert (state.added, state.removed, state.changed, state.unchanged) == (1, 1, 1, 98)
    assert state.samples["changed"] == [[{"user": "user6", "value": 6}, {"user": "user6", "value": -6}]]


def test_the_difference_is_told_to_people_and_to_programs(memory_url: MakeUrl) -> None:
    rules = MapStateDescriptor("rules", "int64", key_type="string")
    log = ListStateDescriptor("log", "string")
    one = savepoints.bootstrap(memory_url()).broadcast_state("old", state=rules, entries={"x": 1})
    one.keyed_state("a", keys=["user"], state=TOTAL, data={"user": [f"u{n}" for n in range(9)], "value": [1] * 9})
    before = one.keyed_state("a", keys=["user"], state=log, data=[{"user": "ann", "value": ["x"]}]).write()
    other = savepoints.modify(before, memory_url()).rename_operator("old", "new").remove_state("a", "log")
    other.event_timers("a", keys=["user"], data=[{"user": "ann", "time": 1_000}])
    after = other.replace_state("a", "total", {"user": ["u0", "z"], "value": [2, 3]}).write()
    found = savepoints.diff(before.path, after, sample=2)
    assert not found.is_empty
    lines = found.describe().splitlines()
    for line in (
        "+ operator new",
        "- operator old",
        "+ state a / event timers",
        "- state a / log",
        '  + user="z", value=3',
        "  - ... 6 more",
        '  ~ user="u0", value=1 -> user="u0", value=2',
    ):
        assert line in lines
    told = json.loads(json.dumps(found.to_dict()))
    assert told["states_added"] == [{"uid": "a", "state": "event timers"}]
    (state,) = told["states"]
    assert (state["rows"], state["added"], state["removed"], state["changed"]) == ([9, 2], 1, 8, 1)
    same = savepoints.diff(before, before)
    assert same.is_empty
    assert "both hold the same state" in same.describe()


def test_state_of_another_type_is_compared_where_it_can_be(memory_url: MakeUrl) -> None:
    made = []
    for kind, values in (("int64", [1, 2]), ("float64", [1.0, 2.5]), ("string", ["1", "2"])):
        state = ValueStateDescriptor("total", kind)
        editor = savepoints.bootstrap(memory_url())
        made.append(
            editor.keyed_state("a", keys=["user"], state=state, data={"user": ["x", "y"], "value": values}).write()
        )
    (state_diff,) = savepoints.diff(made[0], made[1]).states
    assert (state_diff.changed, state_diff.unchanged) == (1, 1)
    assert state_diff.columns == ("user: string, value: int64", "user: string, value: double")
    (state_diff,) = savepoints.diff(made[0], made[2]).states
    assert (state_diff.changed, state_diff.unchanged) == (2, 0)


def test_what_is_missing_is_refused(memory_url: MakeUrl) -> None:
    with pytest.raises(RestoreError, match="nothing-there"):
        savepoints.diff("memory://nothing-there", "memory://nothing-there")


def test_keyed_state_in_files_of_a_backend_is_not_said_to_be_the_same(memory_url: MakeUrl) -> None:
    made = []
    for content in (b"rows", b"rows", b"others"):
        url = memory_url()
        file = write_file(open_blobs(url), f"shared/{digits_of(digest_of(content))}-3-1-0-0-0.sst", content)
        operator = OperatorHandle("a", "sum", native=NativeHandle("rocksdb", {"1.sst": file}, {}))
        made.append(savepoints.read(complete(url, [SubtaskHandle(0, 0, 1, (operator,))])))
    assert savepoints.diff(made[0], made[1]).is_empty
    found = savepoints.diff(made[0], made[2])
    assert (found.unread, found.is_empty) == (["a"], False)
    assert "? operator a: its keyed state is in files of its backend" in found.describe()


@pytest.mark.parametrize(
    ("kind", "values", "line"),
    [
        ("timestamp[us]", [dt.datetime(2024, 1, 2, 3), dt.datetime(2024, 1, 2, 4)], "2024-01-02T03:00:00"),
        ("duration[us]", [dt.timedelta(microseconds=-5), dt.timedelta(0)], "-00:00:00.000005"),
        ("list<item: date32>", [[dt.date(2024, 1, 2), None], []], "[2024-01-02, null]"),
        ("string", ["x" * 100, "y"], f'"{"x" * 79}...'),
    ],
)
def test_rows_are_shown_as_people_read_them(kind: str, values: list[Any], line: str, memory_url: MakeUrl) -> None:
    saved = []
    for value in values:
        editor = savepoints.bootstrap(memory_url())
        state = ValueStateDescriptor("seen", kind)
        saved.append(editor.keyed_state("a", keys=["user"], state=state, data={"user": ["ann"], "value": [value]}))
    found = savepoints.diff(saved[0].write(), saved[1].write()).describe()
    assert f'  ~ user="ann", value={line} -> user="ann", value=' in found
