"""The programs of batch mode: ours give the right rows on a small input, and a wrong output is noticed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from penstock import StreamEnvironment
from perf.batch_jobs import INPUT_FILES, BatchQuestion
from perf.batch_window import Sessions, Tumbling
from perf.harness import BenchmarkError
from perf.hash_join import Lookup, Window
from perf.terasort import Summary, TeraSort, records


def ran(question: BatchQuestion, given: Path, output: Path) -> Path:
    env = StreamEnvironment(runtime="local", parallelism=2)
    question.ours(env, given, output)
    env.execute(question.variant)
    return output


def prepared(question: BatchQuestion, folder: Path, rows: int) -> Path:
    folder.mkdir()
    question.prepare(folder, rows)
    return folder


@pytest.mark.parametrize("question", [Tumbling(), Sessions()])
def test_windows_have_all_rows(tmp_path: Path, question: BatchQuestion) -> None:
    given = prepared(question, tmp_path / "input", 5_000)
    assert len(list(given.iterdir())) == INPUT_FILES
    output = ran(question, given, tmp_path / "ours")
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
def test_other_rows_than_theirs_are_an_error(tmp_path: Path, lost: str) -> None:
    given = prepared(Tumbling(), tmp_path / "input", 1_000)
    output = ran(Tumbling(), given, tmp_path / "ours")
    rows = ds.dataset(output).to_table()
    wrong = rows.slice(1) if lost == "row" else rows.set_column(3, "n", pa.array([0] * len(rows)))
    (tmp_path / "theirs").mkdir()
    pq.write_table(wrong, tmp_path / "theirs" / "part.parquet")
    with pytest.raises(BenchmarkError, match="are not the same"):
        Tumbling().check(given, output, tmp_path / "theirs")


def test_records_are_as_those_of_gensort() -> None:
    made = records(np.random.default_rng(1), np.array([0, 0xABC, 2**40 + 5]))
    assert made.shape == (3, 100)
    assert [bytes(row[12:44]) for row in made] == [b"%032X" % number for number in (0, 0xABC, 2**40 + 5)]
    assert len({bytes(row[:10]) for row in made}) == 3


def test_sorted_records_pass(tmp_path: Path) -> None:
    given = prepared(TeraSort(), tmp_path / "input", 3_000)
    output = ran(TeraSort(), given, tmp_path / "ours")
    TeraSort().check(given, output, output)
    found, before = Summary.of(output), Summary.of(given)
    assert (found.rows, found.checksum, found.disorder) == (3_000, before.checksum, None)
    assert before.disorder is not None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("two rows change places", "record 8 of b.parquet belongs before"),
        ("two files change places", "b.parquet begins before the end"),
        ("a row is missing", "2999 records"),
        ("a row comes twice", "3000 records"),
        ("a payload is another's", "3000 records"),
    ],
)
def test_records_that_are_not_the_input_in_order_are_an_error(tmp_path: Path, wrong: str, message: str) -> None:
    given = prepared(TeraSort(), tmp_path / "input", 3_000)
    output = ran(TeraSort(), given, tmp_path / "ours")
    rows = ds.dataset(output).to_table().combine_chunks()
    order = np.arange(3_000)
    if wrong == "two rows change places":
        order[[1_007, 1_008]] = order[[1_008, 1_007]]
    elif wrong == "two files change places":
        order = np.concatenate([order[1_000:2_000], order[:1_000], order[2_000:]])
    elif wrong == "a row is missing":
        order = np.delete(order, 5)
    elif wrong == "a row comes twice":
        order[5] = order[4]
    table = rows.take(pa.array(order))
    if wrong == "a payload is another's":
        swapped = pa.concat_arrays([table.column("payload").chunk(0).slice(n, 1) for n in (1, 1)])
        table = table.set_column(1, "payload", pa.concat_arrays([swapped, table.column("payload").chunk(0).slice(2)]))
    (tmp_path / "theirs").mkdir()
    for name, begin in (("a", 0), ("b", 1_000), ("c", 2_000)):
        pq.write_table(table.slice(begin, 1_000), tmp_path / "theirs" / f"{name}.parquet")
    with pytest.raises(BenchmarkError, match=f"theirs: .*{message}"):
        TeraSort().check(given, output, tmp_path / "theirs")
