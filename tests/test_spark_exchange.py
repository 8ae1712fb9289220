"""Rows from Spark by files, without Spark: `tests/actors/spark/test_exchange.py` has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame

from penstock import StreamEnvironment
from penstock.spark_exchange import _packed

TABLE = pa.table({"n": [1, 2, 3]})


def frame() -> Any:
    """A frame that is written as Hadoop writes: what stands behind `file:` is the path, as it is."""

    def parquet(place: str) -> None:
        folder = Path("/", place.removeprefix("file:").lstrip("/"))
        folder.mkdir(parents=True)
        pq.write_table(TABLE, folder / "part-0.parquet")

    made = MagicMock(spec=DataFrame)
    made.write.parquet = parquet
    return made


@pytest.mark.parametrize("name", ["plain", "with space", "50%", "a%20b", "süß", "[a]", "*", "a?b", "a#b"])
@pytest.mark.parametrize("is_url", [True, False])
def test_the_folder_may_have_any_name(tmp_path: Path, name: str, is_url: bool) -> None:
    folder = tmp_path / name
    env = StreamEnvironment(parallelism=2, runtime="local")
    result = env.from_spark(frame(), folder=folder.as_uri() if is_url else str(folder)).collect()
    env.execute()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert sorted(row["n"] for row in result) == [1, 2, 3]


def test_of_a_partition_no_more_is_packed_than_shows_that_it_is_too_large() -> None:
    given = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal given
        for _ in range(100):
            given += 1
            yield pa.record_batch({"n": list(range(1000))})

    assert len(list(_packed(20_000, batches()))) == given == 3
