"""Texts that a Parquet file has as numbers of a dictionary mean what texts mean that it has one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import StreamEnvironment
from tests.tables.held_rows import held_rows

_TEXTS = ("apple", "Apple", "12", None, "", "a/b/c")
_ROWS = 600
_QUERIES = (
    "SELECT n, t FROM f",
    "SELECT n, LOWER(t), CHAR_LENGTH(t), SPLIT_INDEX(t, '/', 1) FROM f",
    "SELECT n FROM f WHERE t = 'apple' OR t LIKE '%/%'",
    "SELECT n, COALESCE(t, 'none'), t IS NULL FROM f WHERE n > 100",
    "SELECT n, CASE WHEN t = '12' THEN CAST(t AS INT) WHEN n > 300 THEN CHAR_LENGTH(t) ELSE -1 END FROM f",
    "SELECT n, CASE WHEN LOWER(t) = 'apple' THEN 'fruit' WHEN u = 'x' THEN t ELSE UPPER(u) END FROM f",
    "SELECT n, CONCAT(t, u), t = u, NULLIF(t, u) FROM f",
    "SELECT n, CAST(t AS INT) FROM f WHERE t = '12'",
    # A pattern that is wrong is that of a row that is not asked for.
    "SELECT n, STR_TO_MAP('a=1', p) FROM f WHERE p <> '('",
    "SELECT n, FROM_UNIXTIME(0, z) FROM f WHERE z = 'yyyy' AND FROM_UNIXTIME(0, z) IS NOT NULL",
    "SELECT n, CASE WHEN n = 0 THEN 0 WHEN STR_TO_MAP(u, p) IS NULL THEN 1 ELSE 2 END FROM f",
    "SELECT t, COUNT(*), MIN(u) FROM f GROUP BY t",
    "SELECT a.n, a.t, b.u FROM f a JOIN f b ON a.t = b.t AND a.n = b.n",
)


def _answer(folder: Path, query: str) -> list[tuple[Any, ...]]:
    env = StreamEnvironment(runtime="local", parallelism=1, max_batch_rows=100)
    env.sql(
        "CREATE TABLE f (n BIGINT, t STRING, u STRING, p STRING, z STRING) "
        f"WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'parquet')"
    )
    return held_rows(env, query)


@pytest.mark.parametrize("query", _QUERIES)
def test_queries_answer_the_same_however_texts_are_stored(tmp_path: Path, query: str) -> None:
    numbers = range(_ROWS)
    texts = [_TEXTS[n * 7 % len(_TEXTS)] for n in numbers]
    table = pa.table(
        {
            "n": numbers,
            "t": texts,
            "u": ["x" if n % 3 else "yz" for n in numbers],
            "p": ["," if n else "(" for n in numbers],
            "z": ["yyyy" if n else "QQQ" for n in numbers],
        }
    )
    for folder, coded in (("coded", True), ("plain", False)):
        (tmp_path / folder).mkdir()
        pq.write_table(table, tmp_path / folder / "0.parquet", use_dictionary=coded)
    found = _answer(tmp_path / "coded", query)
    assert found
    assert found == _answer(tmp_path / "plain", query)


@pytest.mark.parametrize("other", [[7, None], [b"b", b"c"], pa.array([1, None], pa.timestamp("ms")), [None, None]])
def test_another_file_may_have_what_becomes_a_text(tmp_path: Path, other: Any) -> None:
    texts = pa.table({"t": ["ann", None] * 100})
    pq.write_table(texts, tmp_path / "0.parquet")
    pq.write_table(pa.table({"t": other}), tmp_path / "1.parquet")
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.sql(f"CREATE TABLE f (t STRING) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'parquet')")
    table = env.sql("SELECT UPPER(t) AS t FROM f")
    assert table is not None
    wanted = pa.table({"t": other})["t"].cast(pa.string()).to_pylist()
    assert [row["t"] for row in table.collect()] == ["ANN", None] * 100 + [one and one.upper() for one in wanted]


def test_a_literal_keeps_the_sign_of_its_zero(tmp_path: Path) -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    table = env.sql("SELECT CAST(n AS DOUBLE) * -0e0, CAST(n AS DOUBLE) * 0e0 FROM (VALUES (1), (2)) AS t (n)")
    assert table is not None
    assert {repr(tuple(row.values())) for row in table.collect()} == {"(-0.0, 0.0)"}
