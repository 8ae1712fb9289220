"""Which operators take updates and deletes: asked where the program is built, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.connectors.postgres.sink import PostgresSink
from penstock.engine.changelog import ANY_MODE, APPEND_ONLY, ChangelogMode, RowKind, united
from penstock.engine.connectors import ConnectorContext, Sink, SinkWriter
from penstock.engine.elements import Batch
from penstock.engine.errors import ChangelogError, GraphError
from penstock.engine.operators.base import Collector, Operator
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder

ROWS = [{"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "a", "n": 3}]
Verb = Callable[[Any], Any]


class _Changes(Operator):
    """Gives every row twice: as an insert, and as its delete."""

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        rows = batch.num_rows
        for kind in (RowKind.INSERT, RowKind.DELETE):
            out.collect(Batch(batch.data, batch.timestamps, pa.array([kind] * rows, pa.int8())))


@dataclass(frozen=True, slots=True)
class ChangesSpec(OperatorSpec):
    mode: ChangelogMode

    def create(self) -> Operator:
        return _Changes()

    def describe(self) -> str:
        return "changes"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(ANY_MODE,), emits=self.mode)


@dataclass(frozen=True)
class KindsSink(Sink):
    """Writes down the kind of each row that comes."""

    path: Path

    @property
    def changelog_modes(self) -> AbstractSet[ChangelogMode]:
        return ANY_MODE

    def open(self, context: ConnectorContext) -> SinkWriter:
        return _KindsWriter(self.path)

    def describe(self) -> str:
        return "kinds"


class _KindsWriter(SinkWriter):
    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, batch: Batch) -> None:
        assert batch.kinds is not None
        with self._path.open("a", encoding="utf-8") as file:
            for row, kind in zip(batch.data.to_pylist(), batch.kinds.to_pylist(), strict=True):
                file.write(f"{RowKind(kind).name} {row['n']}\n")


def stream(timed: bool = True) -> Any:
    rows = ps.StreamEnvironment(runtime="local").from_collection(ROWS)
    return rows.assign_timestamps("n") if timed else rows


def changelog(mode: ChangelogMode, timed: bool = True) -> Any:
    rows = stream(timed)
    return rows._add(ChangesSpec(mode), rows.schema)


class Total(ps.KeyedProcessFunction):
    def process_element(self, row: Any, context: Any) -> Any:
        yield row


NEEDS_INSERTS: dict[str, Verb] = {
    "running aggregate": lambda s: s.key_by("k").aggregate(n=ps.count()),
    "window": lambda s: s.key_by("k").window(ps.tumbling("1s")).aggregate(n=ps.count()),
    "session": lambda s: s.key_by("k").window(ps.session("1s")).aggregate(n=ps.count()),
    "window of rows": lambda s: s.key_by("k").count_window(2).aggregate(n=ps.count()),
    "group_by": lambda s: s.group_by("k").aggregate(n=ps.count()),
    "reduce": lambda s: s.key_by("k").reduce(lambda one, other: one),
    "process": lambda s: s.key_by("k").process(Total),
    "sort": lambda s: s.sort("n"),
    "window_join": lambda s: s.key_by("k").window_join(stream_of(s).key_by("k"), ps.tumbling("1s")),
    "interval_join": lambda s: s.key_by("k").interval_join(stream_of(s).key_by("k"), timedelta(0), timedelta(1)),
    "temporal_join": lambda s: s.key_by("k").temporal_join(stream_of(s).key_by("k")),
    "collect": lambda s: s.collect(),
    "print": lambda s: s.print(),
    "files": lambda s: s.sink_to(ps.FileSink("out", "parquet")),
}


def stream_of(given: Any) -> Any:
    """A second stream of the same program, of rows that are only added."""
    other = given._program
    return ps.DataStream.of_node(other, other.graph[1]).assign_timestamps("n")


@pytest.mark.parametrize("mode", [ChangelogMode.RETRACT, ChangelogMode.UPSERT])
@pytest.mark.parametrize("verb", NEEDS_INSERTS.values(), ids=NEEDS_INSERTS)
def test_who_would_count_a_delete_as_a_row_refuses_it(verb: Verb, mode: ChangelogMode) -> None:
    with pytest.raises(ChangelogError, match=r"operator 'changes' emits .* put it before operator 'changes'"):
        verb(changelog(mode))


PASSES_CHANGES: dict[str, Verb] = {
    "map": lambda s: s.map(lambda row: row, returns={"k": "string", "n": "int64"}),
    "select": lambda s: s.select("k", "n"),
    "map_batches": lambda s: s.map_batches(lambda batch: batch),
    "assign_timestamps": lambda s: s.assign_timestamps("n"),
    "union": lambda s: s.union(stream_of(s)),
}


@pytest.mark.parametrize("verb", PASSES_CHANGES.values(), ids=PASSES_CHANGES)
@pytest.mark.parametrize("mode", list(ChangelogMode))
def test_what_handles_each_row_alone_passes_its_kind_on(verb: Verb, mode: ChangelogMode) -> None:
    behind = verb(changelog(mode)).map(lambda row: row)
    node = behind._program.graph.build()[behind._edges[0].source]
    assert node.changelog is mode


DROPS_ROWS: dict[str, Verb] = {
    "filter": lambda s: s.filter(ps.col("n") > 1),
    "filter by a function": lambda s: s.filter(lambda row: row["n"] > 1),
    "flat_map": lambda s: s.flat_map(lambda row: [row]),
    "lookup_join": lambda s: s.lookup_join(ps.DictTable({"a": {"name": "A"}}, keys="k"), on="k"),
}


@pytest.mark.parametrize("verb", DROPS_ROWS.values(), ids=DROPS_ROWS)
def test_what_may_drop_a_row_needs_the_row_before_each_update(verb: Verb) -> None:
    verb(changelog(ChangelogMode.RETRACT))
    with pytest.raises(ChangelogError, match="updates without the rows before them"):
        verb(changelog(ChangelogMode.UPSERT))


def test_results_that_overtake_each_other_are_no_changelog() -> None:
    async def same(row: Any) -> Any:
        return row

    changelog(ChangelogMode.RETRACT).map_async(same)
    with pytest.raises(ChangelogError, match="map_async"):
        changelog(ChangelogMode.RETRACT).map_async(same, order="unordered")


def test_a_sink_that_takes_changes_gets_them(tmp_path: Path) -> None:
    changes = changelog(ChangelogMode.RETRACT).filter(ps.col("n") > 1)
    changes.sink_to(KindsSink(tmp_path / "kinds"))
    changes._program.submit_once().wait()
    kinds = (tmp_path / "kinds").read_text().split("\n")
    assert sorted(filter(None, kinds)) == ["DELETE 2", "DELETE 3", "INSERT 2", "INSERT 3"]


@pytest.mark.parametrize(
    ("sink", "modes"),
    [
        (lambda: PostgresSink("postgresql://u:p@host/db", "t", keys="k"), ANY_MODE),
        (lambda: PostgresSink("postgresql://u:p@host/db", "t", mode="append"), APPEND_ONLY),
        (lambda: ps.FileSink("out", "parquet"), APPEND_ONLY),
    ],
)
def test_sinks_say_what_they_write(sink: Any, modes: Any) -> None:
    assert sink().changelog_modes == modes


def test_the_error_is_one_of_the_graph() -> None:
    with pytest.raises(GraphError, match="PostgresSink"):
        changelog(ChangelogMode.RETRACT).collect()


def test_of_several_streams_the_mode_with_the_weakest_promise_holds() -> None:
    assert united([]) is ChangelogMode.APPEND
    assert united([ChangelogMode.UPSERT, ChangelogMode.RETRACT, ChangelogMode.APPEND]) is ChangelogMode.UPSERT
