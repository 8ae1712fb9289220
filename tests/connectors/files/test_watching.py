from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.source import FileSource
from penstock.connectors.files.watching import WatchedFiles
from penstock.engine.clock import ManualClock
from penstock.engine.connectors import Position, SourceReader, Wait
from penstock.engine.elements import Batch
from penstock.engine.errors import ConfigurationError, RecordError, RestoreError
from penstock.recovery import checkpoints, fixed_delay
from tests.connectors.reading import context

DAY_NS = 86_400 * 10**9


def _put(folder: Path, name: str, *values: int, at: int | None = None) -> None:
    path = folder / name
    path.write_text("".join(f'{{"i":{value}}}\n' for value in values))
    if at is not None:
        os.utime(path, ns=(at, at))


def _source(folder: Path, **options: Any) -> WatchedFiles:
    return FileSource.of(folder, "json", {"i": "int64"}, monitor="10s", **options)


class _Reading:
    """Readers of all splits, which the test drives as a source's head would."""

    def __init__(self, source: WatchedFiles, clock: ManualClock, positions: list[Position] | None = None) -> None:
        self.clock = clock
        splits = source.splits(1)
        self.readers: list[SourceReader] = [
            source.open(split, context(clock=clock))
            if positions is None
            else source.open_at(split, positions[number], context(clock=clock))
            for number, split in enumerate(splits)
        ]

    def until_idle(self, max_rows: int = 2) -> list[int]:
        """What all readers give until each waits."""
        values: list[int] = []
        for reader in self.readers:
            while not isinstance(batch := reader.next_batch(max_rows), Wait):
                assert isinstance(batch, pa.RecordBatch)
                values += batch["i"].to_pylist()
        return values

    def look(self) -> list[int]:
        """What they give once it is time to look again."""
        self.clock.advance(10)
        return self.until_idle()

    def positions(self) -> list[Position]:
        return [reader.position() for reader in self.readers]

    def close(self) -> None:
        for reader in self.readers:
            reader.close()


def test_files_are_read_as_they_come_each_once(tmp_path: Path) -> None:
    _put(tmp_path, "b.json", 1, 2, 3, at=1)
    _put(tmp_path, "a.json", 4, at=2)
    reading = _Reading(_source(tmp_path), ManualClock())
    assert reading.until_idle() == []
    assert reading.look() == [1, 2, 3, 4]
    assert reading.look() == []
    _put(tmp_path, "c.json", 5)
    assert reading.look() == []
    assert reading.look() == [5]
    reading.close()


def test_files_that_are_being_written_are_left_alone(tmp_path: Path) -> None:
    reading = _Reading(_source(tmp_path), ManualClock())
    for name in (".a.json", "_a.json", "a.json"):
        _put(tmp_path, name, 1)
    reading.until_idle()
    for count in range(2, 5):
        _put(tmp_path, "a.json", *range(count))
        assert reading.look() == []
    assert reading.look() == [0, 1, 2, 3]
    (tmp_path / ".a.json").rename(tmp_path / "b.json")
    reading.look()
    assert reading.look() == [1]
    reading.close()


def test_a_file_that_is_written_again_is_not_read_again(tmp_path: Path) -> None:
    _put(tmp_path, "log.json", 1, at=DAY_NS)
    reading = _Reading(_source(tmp_path, remember="1d"), ManualClock())
    reading.until_idle()
    assert reading.look() == [1]
    for day in range(2, 8):
        _put(tmp_path, "log.json", 1, 2, at=day * DAY_NS)
        _put(tmp_path, f"new-{day}.json", day, at=day * DAY_NS)
        reading.look()
        assert reading.look() == [day]
    reading.close()


def test_what_is_known_of_the_files_does_not_grow_for_ever(tmp_path: Path) -> None:
    reading = _Reading(_source(tmp_path, remember="2d"), ManualClock(start_ms=100 * 86_400_000))
    for day in range(1, 30):
        _put(tmp_path, f"{day}.json", day, at=day * DAY_NS)
        reading.look()
        assert reading.look() == [day]
    (position,) = reading.positions()
    done = position["done"]
    assert isinstance(done, dict)
    assert len(done) <= 4
    # What is older than all that is known may have been read, so it is not.
    _put(tmp_path, "late.json", 100, at=5 * DAY_NS)
    reading.look()
    assert reading.look() == []
    _put(tmp_path, "rather-late.json", 101, at=28 * DAY_NS)
    reading.look()
    assert reading.look() == [101]
    reading.close()


@given(
    arrivals=st.lists(st.lists(st.integers(0, 4), max_size=4), max_size=6),
    readers=st.integers(1, 4),
    restarts=st.lists(st.integers(0, 40), max_size=5),
    seed=st.integers(0, 1000),
)
def test_rows_are_read_once_whenever_the_reading_starts_again(
    arrivals: list[list[int]], readers: int, restarts: list[int], seed: int
) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder, clock = Path(name), ManualClock()
        source = _source(folder, readers=readers)
        reading = _Reading(source, clock)
        expected: list[int] = []
        committed: list[int] = []
        pending: list[int] = []
        position = reading.positions()
        calls = 0
        for number, sizes in enumerate([*arrivals, [], []]):
            for place, size in enumerate(sizes):
                values = [1000 * number + 100 * place + i for i in range(size)]
                _put(folder, f"{number}-{place}.json", *values, at=rng.randrange(DAY_NS))
                expected += values
            clock.advance(10)
            waiting = 0
            while waiting < readers:
                calls += 1
                if calls in restarts:
                    # A crash: what came since the last checkpoint comes again.
                    reading.close()
                    pending = []
                    reading = _Reading(source, clock, position)
                batch = reading.readers[rng.randrange(readers) if waiting == 0 else waiting].next_batch(2)
                if isinstance(batch, Wait):
                    waiting += 1
                    continue
                assert batch is not None
                waiting = 0
                pending += batch["i"].to_pylist()
                if rng.random() < 0.5:
                    position, committed, pending = reading.positions(), committed + pending, []
        for _ in range(2):
            pending += reading.look()
        reading.close()
        assert sorted(committed + pending) == sorted(expected)


def test_a_job_goes_on_at_another_parallelism(tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()

    def environment(parallelism: int) -> ps.StreamEnvironment:
        env = ps.StreamEnvironment(
            parallelism=parallelism,
            runtime="local",
            clock=ManualClock(),
            max_batch_rows=3,
            buffer_timeout="0",
            checkpoints=checkpoints("1s", str(tmp_path / "checkpoints")),
            restart=fixed_delay(3, "1ms"),
        )
        source = _source(folder, readers=3)
        env.from_source(source).uid("in").sink_to(FileSink(out, "json", mode="append")).uid("out")
        return env

    def seen() -> list[int]:
        return sorted(row for path in out.glob("part-*") for row in _values(path))

    def pump_until(job: ps.JobHandle, count: int) -> None:
        for _ in range(1000):
            job.pump(0.01)
            if len(seen()) >= count:
                break

    for number in range(4):
        _put(folder, f"{number}.json", *range(number * 10, number * 10 + 10))
    job = environment(2).submit("first")
    pump_until(job, 40)
    savepoint = job.stop(str(tmp_path / "savepoints"))
    assert seen() == list(range(40))
    for number in range(4, 6):
        _put(folder, f"{number}.json", *range(number * 10, number * 10 + 10))
    job = environment(3).submit("second", savepoint=savepoint)
    pump_until(job, 60)
    job.cancel()
    assert seen() == list(range(60))


def _values(path: Path) -> list[int]:
    return [int(line.split(":")[1].rstrip("}")) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("kind", ["parquet", "csv", "avro"])
def test_a_file_of_any_format_goes_on_in_the_middle(tmp_path: Path, kind: Any) -> None:
    ps_context = context()
    sink = FileSink(tmp_path, kind)
    writer = sink.open(ps_context)
    writer.write(Batch(pa.record_batch({"i": range(10)})))
    sink.commit(writer.prepare(1), ps_context)
    source = FileSource.of(tmp_path, kind, {"i": "int64"}, monitor="10s")
    clock = ManualClock()
    reading = _Reading(source, clock)
    reading.until_idle()
    clock.advance(10)
    first = reading.readers[0].next_batch(4)
    assert isinstance(first, pa.RecordBatch)
    position = reading.positions()
    reading.close()
    again = _Reading(source, clock, position)
    assert again.until_idle() == list(range(4, 10))
    assert again.look() == []
    again.close()


def test_row_groups_are_read_one_after_the_other(tmp_path: Path) -> None:
    pq.write_table(pa.table({"i": list(range(10))}), tmp_path / "x.parquet", row_group_size=3)
    source = FileSource.of(tmp_path, monitor="10s")
    for start in range(10):
        position = {
            "readers": 1,
            "floor": -(2**63),
            "done": {},
            "file": {"path": str(tmp_path / "x.parquet"), "modified": 1, "row": start},
        }
        reading = _Reading(source, ManualClock(), [position])
        assert reading.until_idle() == list(range(start, 10))
        reading.close()


def test_positions_of_other_sources_and_numbers_of_readers_are_refused(tmp_path: Path) -> None:
    source = _source(tmp_path, readers=2)
    (split, _) = source.splits(1)
    with pytest.raises(RestoreError, match="not that of a watched directory"):
        source.open_at(split, {"row": 3}, context())
    position = source.open(split, context()).position()
    with pytest.raises(RestoreError, match="2 readers shared the watched files, and now 3 would"):
        _source(tmp_path, readers=3).open_at(split, position, context())


def test_a_folder_that_has_gone_fails_with_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    _put(folder, "a.json", 1)
    reading = _Reading(_source(folder), ManualClock())
    reading.until_idle()
    (folder / "a.json").write_text("no json\n")
    reading.look()
    with pytest.raises(RecordError, match=r"a\.json, line 1: no valid JSON"):
        reading.look()
    reading.close()


@pytest.mark.parametrize(
    ("paths", "options", "message"),
    [
        ("in", {}, "no file is there that could tell the format"),
        ("in", {"format": "csv"}, "no file is there to infer the columns from"),
        ("none", {"format": "csv", "schema": {"i": int}}, "none is not there to be watched"),
        ("in", {"format": "csv", "schema": {"i": int}, "monitor": "0s"}, "monitor must be at least"),
        ("in", {"format": "csv", "schema": {"i": int}, "readers": 0}, "readers must be"),
    ],
)
def test_what_cannot_be_watched_is_refused(tmp_path: Path, paths: str, options: dict[str, Any], message: str) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(ConfigurationError, match=message):
        FileSource.of(tmp_path / paths, **({"monitor": "1s"} | options))


def test_from_files_watches_a_folder_too(tmp_path: Path) -> None:
    _put(tmp_path, "a.json", 1)
    env = ps.StreamEnvironment(runtime="local")
    env.from_files(tmp_path, monitor="1s").print()
    assert "watched" in env.explain()


def test_a_file_of_the_future_does_not_make_the_others_old(tmp_path: Path) -> None:
    reading = _Reading(_source(tmp_path, remember="2d"), ManualClock(start_ms=100 * 86_400_000))
    for number, day in enumerate([4000, 100, 101]):
        _put(tmp_path, f"{number}.json", number, at=day * DAY_NS)
        reading.look()
        assert reading.look() == [number]
