"""Rows between Spark and streams: a DataFrame as a source, and collected rows as a DataFrame.

`StreamEnvironment.from_spark` and `to_spark`. What is small travels through this process as Arrow; what is large, as
Parquet in a folder that both reach.
"""

from __future__ import annotations

import glob
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from penstock.connectors.collection import CollectionSource
from penstock.connectors.files.source import FileSource
from penstock.engine.connectors import Source
from penstock.engine.errors import ConfigurationError
from penstock.engine.job.handle import CollectResult
from penstock.savepoints.spark_frames import frame_of_table
from penstock.savepoints.storage import normalise_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SMALL_BYTES: Final = 64 * 2**20
"""How much travels with a job: each of its processes gets it."""
_MOST_OF_SPARK: Final = 500


def source_of_frame(frame: DataFrame, folder: str | None) -> Source:
    """The rows of a frame, which is run now; arguments and errors as for `StreamEnvironment.from_spark`."""
    try:
        from pyspark.sql import DataFrame
    except ImportError as error:
        raise ConfigurationError("from_spark needs pyspark: pip install 'penstock[spark]'") from error
    if not isinstance(frame, DataFrame):
        raise ConfigurationError(
            f"from_spark takes a DataFrame of Spark, not {frame!r:.200}; for others, from_collection"
        )
    try:
        if folder is None:
            return CollectionSource.of(collected(frame, SMALL_BYTES), None)
        target = _new_folder(folder)
        # Spark takes what stands behind the scheme as it is, and would not decode it.
        frame.write.parquet(f"file:{target}")
    except ConfigurationError:
        raise
    except Exception as error:
        raise ConfigurationError(
            f"from_spark: Spark could not run the DataFrame: {_cause(error)[:_MOST_OF_SPARK]}"
        ) from error
    return FileSource.of(str(Path(glob.escape(str(target)), "*.parquet")), "parquet")


def _new_folder(folder: str) -> Path:
    url = normalise_url(str(folder))
    if not url.startswith("file://"):
        raise ConfigurationError(
            f"from_spark: {url} is no folder of a disk; write the DataFrame there by Spark, and read it with from_files"
        )
    return Path(unquote(urlsplit(url).path), f"frame-{secrets.token_hex(6)}")


def _cause(error: Exception) -> str:
    """What has happened at the bottom of it: Spark tells that last, behind where."""
    causes = re.findall(r"^(?:Caused by: |pyspark\.errors\.)(.+)$", str(error), re.MULTILINE)
    return str(causes[-1]) if causes else f"{type(error).__name__}: {error}"


def collected(frame: DataFrame, most_bytes: int) -> pa.Table:
    """The rows of a frame, partition by partition, as long as they are small.

    Raises:
        ConfigurationError: they are not.
    """
    parts: list[pa.Table] = []
    # Of a partition that is too large, a little more than the limit comes: all might be too much for its executor.
    packed = frame.mapInArrow(partial(_packed, most_bytes * 9 // 8), "rows binary").toLocalIterator()
    for row in packed:
        with pa.ipc.open_stream(bytes(row.rows)) as reader:
            parts.append(reader.read_all())
        if sum(part.nbytes for part in parts) > most_bytes:
            raise ConfigurationError(
                f"from_spark: the DataFrame has more than the {most_bytes >> 20} MiB that travel with a job; give it a "
                "folder=, which takes any number of rows as Parquet"
            )
    if parts:
        return pa.concat_tables(parts)
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(frame.schema).empty_table()


def _packed(most_bytes: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches as bytes, until they have more than that."""
    given = 0
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.RecordBatch.from_pydict({"rows": pa.array([sink.getvalue().to_pybytes()], pa.binary())})
        given += batch.nbytes
        if given > most_bytes:
            return


def frame_of_rows(session: Callable[[], SparkSession], rows: Any) -> DataFrame:
    """Rows as a frame; arguments and errors as for `StreamEnvironment.to_spark`. Spark is started last."""
    if isinstance(rows, CollectResult):
        rows = rows.to_arrow()
    if not isinstance(rows, pa.Table):
        raise ConfigurationError(f"to_spark takes what collect() returned, or an Arrow table, not {rows!r:.200}")
    return frame_of_table(session(), rows, "to_spark")
