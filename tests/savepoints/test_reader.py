"""Whoever reads a savepoint or checkpoint sees what the job held, whatever files it is in, or is told why not."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import MapStateDescriptor, ValueStateDescriptor, savepoints
from penstock.engine.checkpointing.handles import OperatorHandle, SegmentHandle, SubtaskHandle, TableHandle
from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import CheckpointCorruptError, CheckpointError, RestoreError, StateError
from penstock.engine.state.capture import Expiry
from penstock.engine.state.keys.groups import key_groups
from penstock.engine.state.snapshot import KEY_GROUP, Redistribution, keyed_table
from penstock.engine.task.source_head import SPLITS_SCHEMA
from penstock.savepoints.content import digest_of
from penstock.savepoints.layout import StateKind, layout_of
from penstock.savepoints.paths import digits_of
from penstock.savepoints.segments import encode_table, write_file
from penstock.savepoints.storage import BlobStore, open_blobs
from tests.draws import drawn
from tests.savepoints.made import GROUPS, checkpoint, complete, totals

MakeUrl = Callable[[], str]
_NUMBERS = itertools.count()
TOTAL = ValueStateDescriptor("total", "int64")


def held(url: str) -> dict[str, int]:
    rows = savepoints.read(url).operator("totals").state("total").to_arrow()
    assert rows.column_names == ["user", "value"]
    return dict(zip(rows["user"].to_pylist(), rows["value"].to_pylist(), strict=True))


def test_later_segments_of_a_checkpoint_replace_and_delete_rows(memory_url: MakeUrl) -> None:
    url = checkpoint(memory_url(), [totals({"ann": 1, "bob": 2, "cat": 3}), totals({"bob": 20, "cat": None, "dan": 4})])
    assert held(url) == {"ann": 1, "bob": 20, "dan": 4}
    state = savepoints.read(url).operator("totals").state("total")
    assert (state.rows, state.stored_rows) == (3, 6)


@pytest.mark.parametrize("shared", [False, True])
def test_of_files_that_subtasks_share_each_row_is_read_once(memory_url: MakeUrl, shared: bool) -> None:
    rows = {f"user{n}": n for n in range(100)}
    url = checkpoint(memory_url(), [totals(dict(rows)), totals({"user7": None, "user8": 80})], 3, shared)
    del rows["user7"]
    rows["user8"] = 80
    assert held(url) == rows
    assert savepoints.read(url).operator("totals").state("total").rows == 99


def test_rows_that_have_expired_are_not_there(memory_url: MakeUrl) -> None:
    url = checkpoint(memory_url(), [totals({"ann": 1, "bob": 20})], expiry=Expiry("value", 10))
    assert held(url) == {"bob": 20}
    assert savepoints.read(url).operator("totals").state("total").rows == 1


@settings(max_examples=drawn(25))
@given(
    st.lists(st.dictionaries(st.sampled_from("abcdefgh"), st.none() | st.integers(0, 9)), min_size=1, max_size=4),
    st.integers(1, GROUPS),
    st.booleans(),
    st.integers(1, 3),
)
def test_batches_and_single_keys_agree_with_a_dict(
    changes: list[dict[str, int | None]], parallelism: int, shared: bool, max_rows: int
) -> None:
    expected: dict[str, int] = {}
    for change in changes:
        for user, value in change.items():
            expected.pop(user, None)
            if value is not None:
                expected[user] = value
    base = {user: value for user, value in changes[0].items() if value is not None}
    with_deleted = [totals(base), *(totals(change) for change in changes[1:])]
    url = checkpoint(f"memory://reader-{next(_NUMBERS)}/job", with_deleted, parallelism, shared)
    state = savepoints.read(url).operator("totals").state("total")
    batches = list(state.batches(max_rows))
    assert all(0 < batch.num_rows <= max_rows for batch in batches)
    assert {row["user"]: row["value"] for batch in batches for row in batch.to_pylist()} == expected
    assert sorted(state.keys()["user"].to_pylist()) == sorted(expected)
    assert {user: state.get(user) for user in expected} == expected
    assert state.get("nobody") is None
    assert state.rows == len(expected)


class CountingReads:
    """Paths that were read from a folder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[str] = []
        from penstock.savepoints import segments
        from penstock.savepoints.segments import read_file

        def counted(blobs: BlobStore, file: object) -> object:
            self.paths.append(file.path)  # type: ignore[attr-defined]
            return read_file(blobs, file)  # type: ignore[arg-type]

        monkeypatch.setattr(segments, "read_file", counted)


@pytest.mark.parametrize("parallelism", [1, GROUPS])
def test_one_key_is_looked_up_in_the_files_of_its_key_group_alone(
    memory_url: MakeUrl, monkeypatch: pytest.MonkeyPatch, parallelism: int
) -> None:
    users = [f"user{n}" for n in range(100)]
    groups = key_groups([pa.array(users)], GROUPS).tolist()
    by_group = [
        totals({user: n for n, user in enumerate(users) if groups[n] == group}) for group in sorted(set(groups))
    ]
    url = checkpoint(memory_url(), by_group, parallelism)
    state = savepoints.read(url).operator("totals").state("total")
    assert state.kind is savepoints.StateKind.VALUE
    reads = CountingReads(monkeypatch)
    assert state.where(user=["user7"]).to_pylist() == [{"user": "user7", "value": 7}]
    assert len(reads.paths) == 1


def test_a_column_that_is_no_key_can_be_asked_for_too(memory_url: MakeUrl) -> None:
    state = (
        savepoints.read(checkpoint(memory_url(), [totals({"ann": 1, "bob": 1, "cat": 2})])).operator("totals").states[0]
    )
    assert sorted(state.where(value=1)["user"].to_pylist()) == ["ann", "bob"]
    with pytest.raises(StateError, match=r"has no column 'usr' \(did you mean 'user'\?\); it has user, value"):
        state.where(usr="ann")
    with pytest.raises(StateError, match="'ann' does not fit column 'value' of int64"):
        state.where(value="ann")


def test_state_of_windows_shows_their_bounds_as_times(memory_url: MakeUrl) -> None:
    data = {"user": ["ann", "ann"], "window_start": [0, 60_000], "window_end": [60_000, 120_000], "value": [1, 2]}
    editor = savepoints.bootstrap(memory_url()).keyed_state("totals", keys=["user"], state=TOTAL, data=data)
    state = editor.write().operator("totals").state("total")
    assert state.schema.field("window_start").type == pa.timestamp("ms", "UTC")
    assert state.where(user="ann", window_start=60_000)["value"].to_pylist() == [2]
    with pytest.raises(StateError, match=r"belongs to windows, and a key may have several; use where\("):
        state.get("ann")


def test_key_columns_may_be_called_as_the_state_s_own(memory_url: MakeUrl) -> None:
    seen = MapStateDescriptor("seen", "int64", key_type="string")
    data = {"value": ["k"], "window_start": [5], "name": ["x"], "count": [3]}
    editor = savepoints.bootstrap(memory_url())
    editor.keyed_state("a", keys=["value", "window_start"], state=seen, data=data, map_key="name", value="count")
    state = editor.write().operator("a").state("seen")
    assert state.to_arrow().to_pylist() == [{"value": "k", "window_start": 5, "map_key": "x", "__value": 3}]
    assert state.get("k", 5) == {"x": 3}


def test_accumulators_of_an_aggregate_are_shown_under_plain_names(memory_url: MakeUrl) -> None:
    name = "__sum(price)"
    rows = pa.table({"__key_group": pa.array([0], pa.int32()), "user": ["ann"], name: [7]})
    url = _with_table(memory_url(), "accumulators", Redistribution.KEYED, rows)
    state = savepoints.read(url).operator("op").state("accumulators")
    assert state.kind is savepoints.StateKind.AGGREGATE
    assert state.to_arrow().to_pylist() == [{"user": "ann", "sum(price)": 7}]
    assert state.raw().column_names == ["__key_group", "user", name]


def test_rows_that_a_query_keeps_are_found_by_their_columns_and_not_edited(memory_url: MakeUrl) -> None:
    """They are divided by the columns of PARTITION BY, which nobody has written down."""
    columns = {"user": ["ann", "ann", "bob"], "n": [1, 2, 3], "__count": [1, 1, 1], "__number": [0, 1, 2]}
    url = _with_table(memory_url(), "rows", Redistribution.KEYED, keyed_table(pa.table(columns), ["user"], GROUPS).data)
    state = savepoints.read(url).operator("op").state("rows")
    assert (state.kind, state.key_columns) == (savepoints.StateKind.ROWS, ())
    assert state.where(user="ann", n=2)["number"].to_pylist() == [1]
    with pytest.raises(StateError, match="which has no keys"):
        state.get("ann", 2)
    with pytest.raises(StateError, match="can be kept or removed only"):
        savepoints.modify(url, memory_url()).change_state("op", "rows", lambda rows: rows)


def test_a_group_of_nulls_is_found_by_them(memory_url: MakeUrl) -> None:
    columns = {"a": ["x", "x"], "b": pa.array([None, 1], pa.int64()), "__rows": [7, 8]}
    url = _with_table(
        memory_url(), "groups", Redistribution.KEYED, keyed_table(pa.table(columns), ["a", "b"], GROUPS).data
    )
    state = savepoints.read(url).operator("op").state("groups")
    assert (state.get("x", None), state.get("x", 1), state.get("x", 2)) == ({"rows": 7}, {"rows": 8}, None)


def test_a_key_of_groups_may_be_called_as_their_own_column(memory_url: MakeUrl) -> None:
    rows = keyed_table(pa.table({"id": ["x"], "__rows": [7], "__rows_": [2]}), ["id", "__rows"], GROUPS).data
    state = (
        savepoints.read(_with_table(memory_url(), "groups", Redistribution.KEYED, rows)).operator("op").state("groups")
    )
    assert (state.key_columns, state.get("x", 7)) == (("id", "__rows"), {"rows_": 2})


def test_values_that_cannot_be_looked_for_are_refused(memory_url: MakeUrl) -> None:
    pair = ValueStateDescriptor("pair", "list<int64>")
    editor = savepoints.bootstrap(memory_url())
    made = editor.keyed_state("a", keys=["user"], state=pair, data=[{"user": "ann", "value": [1, 2]}]).write()
    with pytest.raises(StateError, match=r"'value' is list<item: int64>.*filter them"):
        made.operator("a").state("pair").where(value=[[1, 2]])


def test_how_far_a_source_has_read_is_a_table(memory_url: MakeUrl) -> None:
    rows = [{"split_id": "a", "position": '{"row": 3}', "finished": False}, {"split_id": "b", "finished": True}]
    url = _with_table(memory_url(), "splits", Redistribution.UNION, pa.Table.from_pylist(rows, SPLITS_SCHEMA))
    positions = savepoints.read(url).source_positions("op")
    assert [row and json.loads(row) for row in positions["position"].to_pylist()] == [{"row": 3}, None]
    with pytest.raises(CheckpointError, match="operator 'totals' is no source; there are none"):
        savepoints.read(checkpoint(memory_url(), [totals({"ann": 1})])).source_positions("totals")


@pytest.mark.parametrize("kept", [True, False])
def test_an_edited_position_may_come_without_a_watermark(memory_url: MakeUrl, kept: bool) -> None:
    rows = [{"split_id": "a", "position": "3", "finished": False, "watermark": 70}]
    url = _with_table(memory_url(), "splits", Redistribution.UNION, pa.Table.from_pylist(rows, SPLITS_SCHEMA))

    def back(table: pa.Table) -> pa.Table:
        moved = table.set_column(1, "position", pa.array(["1"]))
        return moved if kept else moved.drop_columns("watermark")

    edited = savepoints.modify(url, memory_url()).change_state("op", "splits", back).write()
    (row,) = edited.source_positions("op").to_pylist()
    assert (row["position"], row.get("watermark")) == ("1", 70 if kept else None)


def _with_table(url: str, name: str, redistribution: Redistribution, rows: pa.Table) -> str:
    data = encode_table(rows)
    file = write_file(open_blobs(url), f"shared/{digits_of(digest_of(data))}-3-1-0-0-0.arrow", data)
    handle = OperatorHandle("op", "op", {name: TableHandle(redistribution, (), (SegmentHandle(file, rows.num_rows),))})
    return complete(url, [SubtaskHandle(0, 0, 1, (handle,))])


def test_of_a_broadcast_map_that_all_subtasks_have_one_is_shown(memory_url: MakeUrl) -> None:
    url = memory_url()
    data = encode_table(pa.table({"map_key": ["x"], "value": [1]}))
    subtasks = []
    for subtask in range(2):
        file = write_file(open_blobs(url), f"shared/{digits_of(digest_of(data))}-3-1-0-{subtask}-0.arrow", data)
        table = TableHandle(Redistribution.BROADCAST, (), (SegmentHandle(file, 1),))
        subtasks.append(SubtaskHandle(0, subtask, 2, (OperatorHandle("op", "op", {"rules": table}),)))
    state = savepoints.read(complete(url, subtasks)).operator("op").state("rules")
    assert (state.to_arrow().to_pylist(), state.rows) == ([{"map_key": "x", "value": 1}], 1)
    made = savepoints.write(url, memory_url())
    assert made.operator("op").state("rules").rows == 1
    assert len({file.path for file in made.checkpoint.files()}) == 2


def test_what_is_not_there_is_told_with_what_is(memory_url: MakeUrl, tmp_path: Path) -> None:
    with pytest.raises(RestoreError, match="nowhere"):
        savepoints.read(tmp_path / "nowhere")
    found = savepoints.read(checkpoint(memory_url(), [totals({"ann": 1})]))
    with pytest.raises(
        CheckpointError, match=r"no operator 'total' \(did you mean 'totals'\?\); it has 'totals' \(sum\)"
    ):
        found.operator("total")
    with pytest.raises(
        StateError, match=r"operator 'totals' has no state 'totl' \(did you mean 'total'\?\); there are total"
    ):
        found.operator("totals").state("totl")


def test_a_file_with_a_changed_byte_is_refused_by_its_name(tmp_path: Path) -> None:
    url = checkpoint(tmp_path.as_uri(), [totals({"ann": 1})])
    (file,) = (tmp_path / "shared").iterdir()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    found = savepoints.read(url)
    for read in (found.operator("totals").state("total").to_arrow, found.verify):
        with pytest.raises(CheckpointCorruptError, match=file.name):
            read()


def test_a_checkpoint_is_described_for_people_and_for_programs(memory_url: MakeUrl) -> None:
    found = savepoints.read(checkpoint(memory_url(), [totals({"ann": 1, "bob": 2})]))
    text = found.describe()
    assert "checkpoint 3 of job sums (job), 1970" in text
    line = next(line.split() for line in text.splitlines() if "totals" in line)
    assert line[:7] == ["sum", "totals", "1", "total", "value", "user", "2"]
    told = json.loads(json.dumps(found.to_dict()))
    assert told["operators"][0]["states"][0]["columns"] == {"user": "string", "value": "int64"}
    assert found.verify() == 1


def test_a_savepoint_that_ended_its_job_is_described_as_one(memory_url: MakeUrl) -> None:
    found = savepoints.read(complete(memory_url(), [], kind=SnapshotKind.SUSPEND))
    assert "savepoint 3 of job sums (job), which ended behind it, 1970" in found.describe()
    assert found.to_dict()["kind"] == "suspend"


def test_timers_of_both_kinds_are_one_table(memory_url: MakeUrl) -> None:
    editor = savepoints.bootstrap(memory_url())
    editor.event_timers("a", keys=["user"], data=[{"user": "ann", "time": 1_000}])
    editor.processing_timers("a", keys=["user"], data=[{"user": "bob", "time": 2_000}])
    timers = editor.write().operator("a").timers()
    assert timers.column_names == ["user", "time", "kind"]
    assert timers.select(["user", "kind"]).to_pylist() == [
        {"user": "ann", "kind": "event"},
        {"user": "bob", "kind": "processing"},
    ]
    assert timers["time"].cast(pa.int64()).to_pylist() == [1_000, 2_000]
    assert savepoints.read(checkpoint(memory_url(), [totals({"ann": 1})])).operator("totals").timers().num_rows == 0


def test_what_window_operators_note_for_themselves_is_no_state_of_the_user() -> None:
    noted = pa.table({KEY_GROUP: pa.array([3], pa.int32()), "watermark": [12]})
    assert layout_of("window_watermarks", Redistribution.KEYED, noted).kind is StateKind.INTERNAL


def test_timers_far_ahead_can_be_printed(memory_url: MakeUrl) -> None:
    editor = savepoints.bootstrap(memory_url())
    editor.event_timers("a", keys=["user"], data=[{"user": "ann", "time": 2**63 - 1}, {"user": "bob", "time": 1_000}])
    made = editor.write()
    timers = made.operator("a").timers()
    assert "9999-12-31" in str(timers.to_pandas())
    assert [row["time"].year for row in timers.to_pylist()] == [9999, 1970]
    (state,) = made.operator("a").all_states
    assert "9999-12-31" in str(state.to_pandas())
    assert sorted(state.to_arrow()["time"].cast(pa.int64()).to_pylist()) == [1_000, 2**63 - 1]
