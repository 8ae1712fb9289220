from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.source import FileSource
from penstock.engine.clock import ManualClock
from penstock.engine.connectors import Committable, ConnectorContext
from penstock.engine.elements import Batch
from penstock.engine.errors import CheckpointCorruptError, ConfigurationError, RecordError
from penstock.engine.graph.logical import resumed
from penstock.engine.operators.sink import SinkSpec
from tests.connectors.reading import read_table

FORMATS = ["parquet", "csv", "json"]


def _context(subtask: int = 0, parallelism: int = 1, identity: str = "job/sink") -> ConnectorContext:
    return ConnectorContext("out", subtask, parallelism, ManualClock(), identity)


def _rows(*values: int) -> Batch:
    return Batch(pa.record_batch({"i": pa.array(values, pa.int64())}))


def _prepared(sink: FileSink, *epochs: Sequence[int], context: ConnectorContext | None = None) -> list[Committable]:
    """What a writer prepares for one checkpoint after the other, from 1; it is then closed."""
    writer = sink.open(context or _context())
    committables: list[Committable] = []
    for checkpoint, values in enumerate(epochs, 1):
        writer.write(_rows(*values))
        committables += writer.prepare(checkpoint)
    writer.close()
    return committables


def _shown(folder: Path) -> list[int]:
    if not list(folder.glob("part-*")):
        return []
    return sorted(read_table(FileSource.of(folder))["i"].to_pylist())


def _hidden(folder: Path) -> list[Path]:
    return sorted(folder.glob(".part-*"))


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_are_seen_when_their_checkpoint_is_committed(tmp_path: Path, kind: Any) -> None:
    sink = FileSink(tmp_path, kind)
    writer = sink.open(_context())
    writer.write(_rows(1, 2))
    first = writer.prepare(1)
    writer.write(_rows(3))
    assert _shown(tmp_path) == []
    sink.commit(first, _context())
    assert _shown(tmp_path) == [1, 2]
    assert writer.prepare(2) != []
    assert writer.prepare(3) == []
    writer.close()
    assert _shown(tmp_path) == [1, 2]


def test_what_was_prepared_outlives_its_writer_and_is_shown_once(tmp_path: Path) -> None:
    sink = FileSink(tmp_path, "csv")
    committables = _prepared(sink, [1], [2], [3])
    sink.commit(committables[:2], _context())
    names = sorted(os.listdir(tmp_path))
    for _ in range(2):
        sink.commit(committables, _context(1, 2))
    assert _shown(tmp_path) == [1, 2, 3]
    assert len(os.listdir(tmp_path)) == len(names)


def test_a_commit_goes_to_where_the_file_was_written(tmp_path: Path) -> None:
    committables = _prepared(FileSink(tmp_path / "old", "csv"), [1])
    FileSink(tmp_path / "new", "csv").commit(committables, _context())
    assert _shown(tmp_path / "old") == [1]


@pytest.mark.parametrize("is_shown", [False, True])
def test_a_file_that_is_gone_or_cut_is_named(tmp_path: Path, is_shown: bool) -> None:
    sink = FileSink(tmp_path, "csv")
    committables = _prepared(sink, [1])
    if is_shown:
        sink.commit(committables, _context())
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointCorruptError, match=rf"'out', subtask 0.*{path.name} has 5 bytes.* has 6 bytes"):
        sink.commit(committables, _context())
    path.unlink()
    with pytest.raises(CheckpointCorruptError, match=r"part-00000-\S+ is not there, nor .* hidden name \.part-0\."):
        sink.commit(committables, _context())


@pytest.mark.parametrize(
    ("column", "name"), [("hidden", "secret"), ("hidden", "../.part-0.a.b-0.inprogress"), ("visible", "part-/../x")]
)
def test_a_forged_checkpoint_renames_nothing_else(tmp_path: Path, column: str, name: str) -> None:
    (tmp_path / "secret").write_text("s")
    sink = FileSink(tmp_path / "out", "csv")
    (committable,) = _prepared(sink, [1])
    row = committable.data.to_pylist()[0] | {column: name, "length": 1}
    forged = Committable("w", 1, pa.Table.from_pylist([row], committable.data.schema))
    with pytest.raises(CheckpointCorruptError, match="are no names of its files"):
        sink.commit([forged], _context())
    assert (tmp_path / "secret").exists()
    assert _shown(tmp_path / "out") == []


def _leave(folder: Path, context: ConnectorContext) -> Path:
    """The hidden file of a writer that was killed while it wrote."""
    before = set(_hidden(folder))
    _prepared(FileSink(folder, "csv"), [1], context=context)
    (whole,) = set(_hidden(folder)) - before
    return whole.rename(whole.with_suffix(".inprogress"))


def test_a_writer_removes_what_those_before_it_left_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path
    mine = [_leave(folder, _context(subtask, 8)) for subtask in (1, 4, 7)]
    others = [
        _leave(folder, context)
        for context in (_context(0, 3), _context(2, 3), _context(1, 3, "job/other"), _context(1, 3, ""))
    ]
    assert len(_hidden(folder)) == 7
    FileSink(folder, "csv").open(_context(1, 3, "")).close()
    assert len(_hidden(folder)) == 7
    FileSink(folder, "csv").open(_context(1, 3)).close()
    assert _hidden(folder) == sorted(others)
    assert not any(path.exists() for path in mine)


def test_a_writer_leaves_what_was_prepared_as_a_savepoint_may_hold_it(tmp_path: Path) -> None:
    (committable,) = _prepared(FileSink(tmp_path, "csv"), [1], context=_context())
    FileSink(tmp_path, "csv").open(_context()).close()
    FileSink(tmp_path, "csv").commit([committable], _context())
    assert _hidden(tmp_path) == []
    assert len(_shown(tmp_path)) == 1


def test_a_writer_that_was_replaced_can_still_be_closed(tmp_path: Path) -> None:
    writer = FileSink(tmp_path, "csv").open(_context())
    writer.write(_rows(1))
    FileSink(tmp_path, "csv").open(_context()).close()
    assert _hidden(tmp_path) == []
    writer.close()


def test_all_files_of_a_writer_have_one_schema(tmp_path: Path) -> None:
    writer = FileSink(tmp_path, "csv").open(_context())
    writer.write(_rows(1))
    writer.prepare(1)
    with pytest.raises(RecordError, match="'i' of int64, this one 'i' of string"):
        writer.write(Batch(pa.record_batch({"i": ["x"]})))
    writer.close()


@pytest.mark.parametrize("mode", ["error", "overwrite", "append"])
def test_a_job_that_goes_on_keeps_the_files(tmp_path: Path, mode: Any) -> None:
    env = ps.StreamEnvironment(runtime="local")
    env.from_collection([{"i": 2}]).sink_to(FileSink(tmp_path, "csv", mode=mode))
    logical = env.program().logical
    committables = _prepared(FileSink(tmp_path, "csv"), [1], [2])
    FileSink(tmp_path, "csv").commit(committables[:1], _context())
    (sink,) = [node.role.sink for node in resumed(logical) if isinstance(node.role, SinkSpec)]
    sink.check(None)
    sink.prepare()
    assert _shown(tmp_path) == [1]
    assert len(_hidden(tmp_path)) == 1
    if mode == "error":
        with pytest.raises(ConfigurationError, match="is not empty"):
            env.submit()


def test_what_a_job_prepared_and_nobody_commits_is_removed_and_nothing_else(tmp_path: Path) -> None:
    sink = FileSink(tmp_path, "parquet", mode="append")
    shown = _prepared(sink, [1])
    sink.commit(shown, _context())
    others = _prepared(sink, [2], context=_context(identity="another job/sink"))
    _prepared(sink, [3], context=_context(subtask=1, parallelism=2))
    lost = sink.open(_context(subtask=3, parallelism=4))
    lost.write(_rows(4))
    assert len(_hidden(tmp_path)) == 3
    sink.discard(_context(identity=""))
    assert len(_hidden(tmp_path)) == 3
    sink.discard(_context())
    assert len(_hidden(tmp_path)) == 1
    sink.commit(others, _context())
    assert _shown(tmp_path) == [1, 2]
    lost.close()
