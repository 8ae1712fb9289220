"""Savepoints that users make or change hold exactly the rows that were given, and jobs resume from them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import (
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    PickleSerializer,
    ReducingStateDescriptor,
    ValueStateDescriptor,
    savepoints,
)
from penstock.engine.checkpointing.handles import InFlightHandle, NativeHandle, OperatorHandle, SubtaskHandle
from penstock.engine.clock import ManualClock
from penstock.engine.elements import Batch, Watermark
from penstock.engine.errors import CheckpointError, ConfigurationError, PenstockError, StateError
from penstock.engine.functions import Context, RuntimeContext
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.operators.base import OperatorContext
from penstock.engine.state.keys.groups import key_groups, subtask_of
from penstock.savepoints.restore import load_task, plan_restore
from penstock.savepoints.segments import write_file
from penstock.savepoints.storage import open_blobs
from tests.draws import drawn
from tests.engine.helpers import RecordingCollector, local_environment
from tests.savepoints.made import checkpoint, complete, totals

MakeUrl = Callable[[], str]
_NUMBERS = itertools.count()
TOTAL = ValueStateDescriptor("total", "int64", default=0)
SEEN = MapStateDescriptor("seen", "float64", key_type="string")
LOG = ListStateDescriptor("log", "string")
RULES = MapStateDescriptor("rules", "int64", key_type="string")
OFFSETS = ListStateDescriptor("offsets", "int64")


class Totals(KeyedProcessFunction):
    """Adds to what the savepoint had, and shows all that it finds."""

    def open(self, context: RuntimeContext) -> None:
        self.total = context.get_state(TOTAL)
        self.seen = context.get_map_state(SEEN)
        self.log = context.get_list_state(LOG)
        self.offsets = context.get_operator_list_state(OFFSETS)

    def process_element(self, row: dict[str, Any], ctx: Context) -> Iterator[dict[str, Any]]:
        self.total.update(self.total.value() + row["n"])
        found = f"{self.total.value()} {self.seen.items()} {self.log.get()}"
        yield {"user": row["user"], "found": found, "offsets": self.offsets.get()}

    def on_timer(self, timestamp: int, ctx: Context) -> Iterator[dict[str, Any]]:
        yield {"user": ctx.current_key, "found": f"timer {timestamp}", "offsets": []}


def program(parallelism: int) -> PhysicalGraph:
    env = local_environment(parallelism)
    rows = env.from_collection([("ann", 1)], schema=["user", "n"]).key_by("user")
    returns = {"user": "string", "found": "string", "offsets": "list<int64>"}
    rows.process(Totals, returns=returns).uid("totals").print()
    return env.program("test").physical()


def found_by_job(savepoint: savepoints.Savepoint, parallelism: int, users: list[str]) -> list[dict[str, Any]]:
    """What the program, resuming from a savepoint, emits for one row of each user and a watermark."""
    graph = program(parallelism)
    plan = plan_restore(graph, savepoint.checkpoint, savepoint.path)
    (task,) = (task for task in graph.tasks if any(operator.uid == "totals" for operator in task.operators))
    (spec,) = (operator.spec for operator in task.operators if operator.uid == "totals")
    rows: list[dict[str, Any]] = []
    for subtask in range(parallelism):
        snapshot = load_task(open_blobs, graph, plan, task.id, subtask).operators["totals"]
        operator, out = spec.create(), RecordingCollector()
        context = OperatorContext("totals", subtask, parallelism, ManualClock(), config=graph.config, restored=snapshot)
        operator.open(context)
        operator.restore(snapshot)
        mine = [user for user in users if owner(user, parallelism) == subtask]
        if mine:
            batch = pa.RecordBatch.from_pylist([{"user": user, "n": 1} for user in mine])
            operator.process_batch(Batch(batch), 0, out)
        operator.on_watermark(Watermark(5_000), out)
        operator.close()
        rows += out.rows
    return rows


def owner(user: str, parallelism: int) -> int:
    return int(subtask_of(key_groups([pa.array([user])], 128), parallelism, 128)[0])


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_job_resumes_from_a_savepoint_that_was_made_of_tables(memory_url: MakeUrl, parallelism: int) -> None:
    editor = savepoints.bootstrap(memory_url())
    editor.keyed_state("totals", keys=["user"], state=TOTAL, data={"user": ["ann", "bob"], "value": [10, 20]})
    editor.keyed_state("totals", keys=["user"], state=SEEN, data=[{"user": "ann", "map_key": "x", "value": 0.5}])
    editor.keyed_state("totals", keys=["user"], state=LOG, data=[{"user": "bob", "value": ["p", "q"]}])
    editor.event_timers("totals", keys=["user"], data=[{"user": "bob", "time": 4_000}, {"user": "ann", "time": 6_000}])
    rows = found_by_job(editor.write(), parallelism, ["ann", "bob", "cat"])
    assert sorted((row["user"], row["found"]) for row in rows) == [
        ("ann", "11 [('x', 0.5)] []"),
        ("bob", "21 [] ['p', 'q']"),
        ("bob", "timer 4000"),
        ("cat", "1 [] []"),
    ]


def test_lists_without_keys_come_back_too(memory_url: MakeUrl) -> None:
    editor = savepoints.bootstrap(memory_url()).operator_list_state("totals", state=OFFSETS, values=[7, 8])
    (row,) = found_by_job(editor.write(), 1, ["ann"])
    assert row == {"user": "ann", "found": "1 [] []", "offsets": [7, 8]}


KINDS = st.sampled_from(["int64", "string", "float64", "struct<a: int64, b: string>"])


@st.composite
def keyed_rows(draw: st.DrawFn) -> tuple[str, dict[tuple[str, int], Any]]:
    kind = draw(KINDS)
    values: dict[str, st.SearchStrategy[Any]] = {
        "int64": st.integers(-(2**63), 2**63 - 1),
        "string": st.text(max_size=5),
        "float64": st.floats(allow_nan=False),
        "struct<a: int64, b: string>": st.fixed_dictionaries(
            {"a": st.none() | st.integers(0, 9), "b": st.text(max_size=3)}
        ),
    }
    keys = st.tuples(st.text(st.characters(codec="utf-8"), max_size=4), st.integers(-5, 5))
    return kind, draw(st.dictionaries(keys, values[kind], max_size=12))


@settings(max_examples=drawn(40))
@given(keyed_rows(), st.sampled_from([1, 7, 128]))
def test_what_was_written_is_read(given: tuple[str, dict[tuple[str, int], Any]], max_parallelism: int) -> None:
    kind, expected = given
    state = ValueStateDescriptor("held", kind)
    data = [{"name": name, "number": number, "value": value} for (name, number), value in expected.items()]
    table = pa.table(
        {
            "name": pa.array([row["name"] for row in data], pa.string()),
            "number": pa.array([row["number"] for row in data], pa.int64()),
            "value": pa.array([row["value"] for row in data], state.value_type),
        }
    )
    editor = savepoints.bootstrap(f"memory://editor-{next(_NUMBERS)}", max_parallelism=max_parallelism)
    made = editor.keyed_state("a", keys=["name", "number"], state=state, data=table).write()
    read = made.operator("a").state("held")
    rows = read.to_arrow().to_pylist()
    assert len(rows) == len(expected)
    assert {(row["name"], row["number"]): row["value"] for row in rows} == expected
    assert {key: read.get(*key) for key in expected} == expected
    # A copy with all values passed through the reader and the editor once more.
    again = savepoints.modify(made, f"memory://editor-{next(_NUMBERS)}").replace_state("a", "held", read.to_arrow())
    assert savepoints.diff(made, again.write()).is_empty


def test_a_copy_has_the_changes_and_the_original_has_not(memory_url: MakeUrl) -> None:
    old = checkpoint(memory_url(), [totals({"ann": 1, "bob": 2, "cat": 3}), totals({"bob": None})], parallelism=2)
    new = memory_url()
    editor = savepoints.modify(old, new).change_state(
        "totals", "total", lambda rows: rows.set_column(1, "value", pc.multiply(rows["value"], 10))
    )
    editor.keyed_state("totals", keys=["user"], state=LOG, data=[{"user": "dan", "value": ["x"]}])
    changed = editor.operator_list_state("totals", state=OFFSETS, values=[7]).write()
    assert sorted(changed.operator("totals").state("total").to_arrow()["value"].to_pylist()) == [10, 30]
    assert changed.operator("totals").state("log").get("dan") == ["x"]
    assert changed.operator("totals").parallelism == 2
    assert changed.operator("totals").state("offsets").to_arrow().to_pylist() == [{"value": 7}]
    assert savepoints.read(old).operator("totals").state("total").get("ann") == 1
    assert changed.checkpoint.kind.value == "savepoint"
    assert savepoints.read(new).verify() == len({file.path for file in changed.checkpoint.files()})


def test_a_checkpoint_becomes_a_savepoint_that_needs_no_other_folder(tmp_path: Path) -> None:
    job, moved = tmp_path / "job", tmp_path / "saved"
    url = checkpoint(job.as_uri(), [totals({f"u{n}": n for n in range(50)}), totals({"u3": None})], 3, shared=True)
    made = savepoints.write(url, moved)
    assert savepoints.diff(url, made).is_empty
    for file in sorted(job.rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    assert savepoints.read(moved).operator("totals").state("total").rows == 49
    assert b"pickle" not in b"".join(file.read_bytes() for file in moved.rglob("*") if file.is_file())


def test_operators_and_states_are_renamed_and_removed(memory_url: MakeUrl) -> None:
    editor = savepoints.bootstrap(memory_url())
    editor.keyed_state("a", keys=["user"], state=TOTAL, data={"user": ["ann"], "value": [1]})
    editor.keyed_state("a", keys=["user"], state=LOG, data=[{"user": "ann", "value": ["x"]}])
    editor.broadcast_state("b", state=RULES, entries={"limit": 3})
    made = editor.write()
    changed = (
        savepoints.modify(made, memory_url()).rename_operator("a", "c").remove_state("c", "log").remove_operator("b")
    )
    written = changed.write()
    assert [(operator.uid, [state.name for state in operator.states]) for operator in written.operators] == [
        ("c", ["total"])
    ]
    assert made.operator("b").state("rules").to_arrow().to_pylist() == [{"map_key": "limit", "value": 3}]


def test_nothing_is_written_over(memory_url: MakeUrl, tmp_path: Path) -> None:
    url = memory_url()
    savepoints.bootstrap(url).broadcast_state("b", state=RULES, entries={"limit": 3}).write()
    with pytest.raises(CheckpointError, match="is not empty; a savepoint is written to a new folder"):
        savepoints.bootstrap(url).broadcast_state("b", state=RULES, entries={}).write()
    with pytest.raises(CheckpointError, match="is not empty"):
        savepoints.modify(url, url).write()
    with pytest.raises(ConfigurationError, match="folders named chk-"):
        savepoints.bootstrap(tmp_path / "chk-00000042")


def test_a_run_that_is_broken_off_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = savepoints.bootstrap(tmp_path / "new")
    editor.keyed_state("a", keys=["user"], state=TOTAL, data={"user": ["ann"], "value": [1]})

    def full(checkpoint: object) -> bytes:
        raise CheckpointError("the disk is full")

    monkeypatch.setattr("penstock.savepoints.editor.encode_manifest", full)
    with pytest.raises(CheckpointError, match="the disk is full"):
        editor.write()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_rows_on_their_way_are_copied_and_keep_operators_where_they_are(memory_url: MakeUrl) -> None:
    url = memory_url()
    file = write_file(open_blobs(url), f"shared/{'0' * 64}-3-1-0-0-0.arrows", b"rows")
    old = complete(url, [SubtaskHandle(0, 0, 1, (), (InFlightHandle("a->b#0", file),))])
    made = savepoints.modify(old, memory_url()).broadcast_state("b", state=RULES, entries={"x": 1})
    with pytest.raises(CheckpointError, match=r"rename_operator\('b'\): the checkpoint is unaligned"):
        made.rename_operator("b", "c")
    (subtask, _) = made.write().checkpoint.subtasks
    assert [(rows.exchange, rows.file.length) for rows in subtask.in_flight] == [("a->b#0", 4)]


def test_keyed_state_beside_the_files_of_a_backend_is_refused(memory_url: MakeUrl) -> None:
    url = memory_url()
    file = write_file(open_blobs(url), f"shared/{'0' * 64}-3-1-0-0-0.sst", b"rows")
    native = NativeHandle("rocksdb", {"1.sst": file}, {})
    old = complete(url, [SubtaskHandle(0, 0, 1, (OperatorHandle("a", "sum", native=native),))])
    editor = savepoints.modify(old, memory_url())
    rows = {"user": ["ann"], "value": [1]}
    with pytest.raises(StateError, match=r"operator 'a', state 'total': .*in rocksdb files.*take a savepoint"):
        editor.keyed_state("a", keys=["user"], state=TOTAL, data=rows)
    with pytest.raises(StateError, match=r"state 'event timers': .*in rocksdb files"):
        editor.event_timers("a", keys=["user"], data=[{"user": "ann", "time": 1}])
    made = editor.operator_list_state("a", state=OFFSETS, values=[7]).write().operator("a")
    assert made.native == "rocksdb"
    assert [state.name for state in made.states] == ["offsets"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"data": {"usr": ["ann"], "value": [1]}},
            r"no column 'user' \(did you mean 'usr'\?\); the columns are \(user",
        ),
        ({"data": {"user": ["ann"], "value": [1], "x": [1]}}, "column 'x' is neither a key nor the state's"),
        ({"data": {"user": ["ann"], "value": ["1"]}}, "column 'value'|'1'"),
        ({"data": pa.table({"user": ["a"], "value": ["1"]})}, "column 'value' is string, and must be int64"),
        ({"data": pa.table({"user": ["a"], "value": [1.5]})}, "column 'value' is double, and must be int64"),
        ({"data": {"user": ["ann"], "value": [None]}}, "column 'value' has nulls, which no state keeps"),
        ({"data": {"user": ["ann", None], "value": [1, 2]}}, "key column 'user' has nulls"),
        ({"data": {"user": ["ann", "ann"], "value": [1, 2]}}, '1 keys come more than once, such as user="ann"'),
        ({"data": {"user": [0.5], "value": [1]}}, "column 'user' is double, and whether such keys are equal"),
        (
            {"data": 7},
            r"data is an Arrow table, a DataFrame, a list of dicts or a dict of columns; 7 \(int\) makes none",
        ),
        ({"keys": []}, "keys are the names of one or more columns"),
        ({"state": "total"}, "give the state's descriptor"),
        ({"uid": " "}, "an operator's uid is a text that is not empty"),
        ({"data": {"user": ["ann"], "value": [1], "window_end": [5]}}, "give both window_start and window_end"),
    ],
)
def test_data_that_does_not_fit_is_refused_with_its_place(
    memory_url: MakeUrl, arguments: dict[str, Any], message: str
) -> None:
    url = memory_url()
    usual = {"uid": "a", "keys": ["user"], "state": TOTAL, "data": {"user": ["ann"], "value": [1]}}
    given = {**usual, **arguments}
    with pytest.raises(PenstockError, match=message) as raised:
        savepoints.bootstrap(url).keyed_state(given.pop("uid"), **given)
    assert url in str(raised.value)


def test_all_states_of_an_operator_have_the_same_keys(memory_url: MakeUrl) -> None:
    editor = savepoints.bootstrap(memory_url())
    editor.keyed_state("a", keys=["user"], state=TOTAL, data={"user": ["ann"], "value": [1]})
    editor.keyed_state("a", keys=["user"], state=LOG, data=[{"user": 7, "value": ["x"]}])
    with pytest.raises(StateError, match=r"total by \(user: string\); log by \(user: int64\)"):
        editor.write()


def test_values_behind_a_serializer_are_its_bytes(memory_url: MakeUrl) -> None:
    serializer = PickleSerializer()
    state = ValueStateDescriptor("model", serializer=serializer)
    editor = savepoints.bootstrap(memory_url())
    editor.keyed_state("a", keys=["user"], state=state, data={"user": ["ann"], "value": [serializer.dumps({1, 2})]})
    assert serializer.loads(editor.write().operator("a").state("model").get("ann")) == {1, 2}


def test_reduced_values_and_frames_of_pandas_are_taken(memory_url: MakeUrl) -> None:
    pandas = pytest.importorskip("pandas")
    state = ReducingStateDescriptor("most", "int32", function=max)
    frame = pandas.DataFrame({"user": ["ann", "bob"], "clicks": [3, 4]})
    editor = savepoints.bootstrap(memory_url()).keyed_state("a", keys=["user"], state=state, data=frame, value="clicks")
    read = editor.write().operator("a").state("most")
    assert read.schema.field("value").type == pa.int32()
    assert read.to_pandas().set_index("user")["value"].to_dict() == {"ann": 3, "bob": 4}


def test_timers_at_one_time_keep_their_order(memory_url: MakeUrl) -> None:
    users = [f"user{n}" for n in range(40)]
    editor = savepoints.bootstrap(memory_url())
    made = editor.event_timers("a", keys=["user"], data=[{"user": user, "time": 1_000} for user in users]).write()
    assert made.operator("a").timers()["user"].to_pylist() == users
    editor = savepoints.modify(made, memory_url())
    changed = editor.change_state("a", "event timers", lambda rows: rows.slice(1)).write()
    assert changed.operator("a").timers()["user"].to_pylist() == users[1:]


def test_large_tables_become_files_of_whole_key_groups(memory_url: MakeUrl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.savepoints.savepoint_files._SEGMENT_ROWS", 10)
    data = {"user": [f"user{n}" for n in range(100)], "value": list(range(100))}
    made = savepoints.bootstrap(memory_url(), max_parallelism=16).keyed_state(
        "a", keys=["user"], state=TOTAL, data=data
    )
    read = made.write()
    (handle,) = read.checkpoint.subtasks[0].operators
    segments = handle.tables["total"].segments
    assert len(segments) > 3
    assert all(one.last_group < other.first_group for one, other in itertools.pairwise(segments))
    assert read.operator("a").state("total").rows == 100
    assert read.operator("a").state("total").get("user42") == 42


def test_changes_must_keep_the_columns_and_the_keys_apart(memory_url: MakeUrl) -> None:
    editor = savepoints.modify(checkpoint(memory_url(), [totals({"ann": 1, "bob": 2})]), memory_url())
    with pytest.raises(StateError, match="column 'value' is missing"):
        editor.change_state("totals", "total", lambda rows: rows.select(["user"]))
    with pytest.raises(StateError, match="there is no column 'x'"):
        editor.change_state("totals", "total", lambda rows: rows.append_column("x", rows["value"]))
    with pytest.raises(StateError, match='come more than once, such as user="ann"'):
        editor.replace_state("totals", "total", [{"user": "ann", "value": 1}, {"user": "ann", "value": 2}])
    with pytest.raises(StateError, match=r"no state 'totl' \(did you mean 'total'\?\)"):
        editor.remove_state("totals", "totl")
    with pytest.raises(CheckpointError, match=r"no operator 'total' \(did you mean 'totals'\?\)"):
        editor.remove_operator("total")
