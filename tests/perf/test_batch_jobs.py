"""The programs of batch mode: ours give the right rows on a small input, and a wrong output is noticed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from penstock import StreamEnvironment
from perf.batch_jobs import INPUT_FILES, BatchQuestion
from perf.batch_window import Tumbling
from perf.harness import BenchmarkError
from perf.hash_join import Lookup, Window


def ran(question: BatchQuestion, given: Path, output: Path) -> Path:
    env = StreamEnvironment(runtime="local", parallelism=2)
    question.ours(env, given, output)
    env.execute(question.variant)
    return output


def prepared(question: BatchQuestion, folder: Path, rows: int) -> Path:
    folder.mkdir()
    question.prepare(folder, rows)
    return folder


def test_windows_have_all_rows(tmp_path: Path) -> None:
    given = prepared(Tumbling(), tmp_path / "input", 5_000)
    assert len(list(given.iterdir())) == INPUT_FILES
    output = ran(Tumbling(), given, tmp_path / "ours")
    windows, events = ds.dataset(output).to_table(), ds.dataset(given).to_table()
    assert sum(windows.column("n").to_pylist()) == events.num_rows == 5_000
    assert sum(windows.column("total").to_pylist()) == sum(events.column("v").to_pylist())


def test_both_joins_give_the_same(tmp_path: Path) -> None:
    given = prepared(Lookup(), tmp_path / "input", 20_000)
    one, other = ran(Lookup(), given, tmp_path / "lookup"), ran(Window(), given, tmp_path / "window")
    Lookup().check(given, one, other)
    joined = ds.dataset(one).count_rows()
    assert 17_000 < joined < 19_000


@pytest.mark.parametrize("lost", ["row", "value"])
def test_other_rows_than_plain_sparks_are_an_error(tmp_path: Path, lost: str) -> None:
    given = prepared(Tumbling(), tmp_path / "input", 1_000)
    output = ran(Tumbling(), given, tmp_path / "ours")
    rows = ds.dataset(output).to_table()
    wrong = rows.slice(1) if lost == "row" else rows.set_column(3, "n", pa.array([0] * len(rows)))
    (tmp_path / "plain").mkdir()
    pq.write_table(wrong, tmp_path / "plain" / "part.parquet")
    with pytest.raises(BenchmarkError, match="plain Spark"):
        Tumbling().check(given, output, tmp_path / "plain")
