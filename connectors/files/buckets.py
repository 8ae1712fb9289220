"""Buckets: the folders within the file sink's directory that rows go to, by column, by time, or by a function.

Programs pass `partition_by=[...]` or `bucket=...` to `FileSink`, whose writers call `split`. Which bucket a row goes to
depends on the row alone (and on the clock for processing time), so that it is the same after a restart.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias, cast
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.elements import Batch, table_to_record_batch
from penstock.engine.errors import ColumnTypeError, ConfigurationError, RecordError, missing_column

NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
"""The value of a partition column in the folder of rows where it is null or an empty text, as in Hive."""
_ESCAPED: Final = {ord(c): f"%{ord(c):02X}" for c in [*map(chr, range(32)), *"\"#%'*/:=?\\\x7f{}[]^"]}
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_FINE: Final = re.compile(r"%[^YmdHMjaAbByUWVGuwpIF]")
"""A pattern that may show more than minutes."""
_WHOLE_MINUTES_S: Final = 2 * 366 * 86_400
"""Since 1972 (in seconds since the epoch) all time zones are whole minutes from UTC."""
_TIMES: Final = ("event", "processing")
_NAME: Final = re.compile(r"(?:[^./\0][^/\0]*/)*[^./\0][^/\0]*")
_MOST_BYTES: Final = 700
"""Of a bucket: the key of an object in S3 has at most 1,024, with the sink's folder and the file's name."""
_MOST_NAME_BYTES: Final = 255
"""Of a folder's name, as file systems have it."""
_FOR: Final = "file sink"


class BucketAssigner(Protocol):
    """Says which folder each row goes to. Must be picklable."""

    def assign(self, batch: Batch, now_ms: int) -> pa.Array:
        """A text for each row: a path within the directory, such as `2024-01-02/03`.

        Args:
            batch: the rows.
            now_ms: processing time, milliseconds since the epoch.
        """
        ...


BucketFunction: TypeAlias = "Callable[[pa.RecordBatch], pa.Array | Sequence[str]]"
"""From the columns of rows to a text for each."""


@dataclass(frozen=True, slots=True)
class TimeBuckets:
    """Buckets by time. Built by `by_time`."""

    pattern: str
    time: Literal["event", "processing"]
    timezone: str

    def assign(self, batch: Batch, now_ms: int) -> pa.Array:
        if self.time == "processing":
            return pa.repeat(self.text(now_ms // 1000), batch.num_rows)
        if batch.timestamps is None:
            raise RecordError(
                f"{_FOR}: rows have no event time to choose a bucket by; assign watermarks, or use "
                "by_time(..., time='processing')"
            )
        # Many rows share a second or minute; text is made once for each. Arrow's strftime knows no summer time beyond
        # 2037, so it is Python's.
        seconds = np.floor_divide(batch.timestamps.to_numpy(), 1000)
        if not _FINE.search(self.pattern) and len(seconds) and seconds.min() >= _WHOLE_MINUTES_S:
            seconds = seconds // 60 * 60
        distinct = pa.array(seconds).dictionary_encode()
        try:
            texts = [self.text(second) for second in distinct.dictionary.to_pylist()]
        except (ValueError, OverflowError) as error:
            raise RecordError(f"{_FOR}: a row's event time is beyond the years 1 to 9999: {error}") from error
        return pa.array(texts, pa.string()).take(distinct.indices)

    def text(self, second: int) -> str:
        """The bucket of a time, in seconds since the epoch."""
        return (_EPOCH + datetime.timedelta(seconds=second)).astimezone(ZoneInfo(self.timezone)).strftime(self.pattern)


def by_time(
    pattern: str = "%Y-%m-%d--%H", time: Literal["event", "processing"] = "event", timezone: str = "UTC"
) -> TimeBuckets:
    """Buckets by time: a folder an hour, or whatever the pattern says.

    Args:
        pattern: as of `strftime`, to the second; `/` makes folders within folders.
        time: "event" for the timestamp of each row; "processing" for the time at which it is written.
        timezone: whose dates and hours: a name such as "Europe/Zurich".

    Raises:
        ConfigurationError: no such time or time zone, or a pattern whose texts are no paths.

    Example:
        >>> FileSink("/data/visits", "parquet", bucket=by_time("dt=%Y-%m-%d/hour=%H"))
    """
    if time not in _TIMES:
        raise ConfigurationError(f"by_time: no time {time!r}; choose {' or '.join(map(repr, _TIMES))}")
    try:
        ZoneInfo(timezone)
    except (KeyError, ValueError, OSError, TypeError):
        raise ConfigurationError(f"by_time: no time zone {timezone!r}; use a name such as 'Europe/Zurich'") from None
    buckets = TimeBuckets(pattern, time, timezone)
    try:
        _check_names(pa.array([buckets.text(0)]))
    except (ValueError, RecordError, TypeError) as error:
        raise ConfigurationError(f"by_time: the pattern {pattern!r} makes no names of folders: {error}") from error
    return buckets


@dataclass(frozen=True, slots=True)
class ColumnBuckets:
    """Hive's folders: `country=CH/day=2024-01-02` for the columns `country` and `day`.

    Args:
        columns: their names.
    """

    columns: tuple[str, ...]

    def check(self, schema: pa.Schema) -> None:
        """Whether rows with these columns can be stored so.

        Raises:
            MissingColumnError, ColumnTypeError: a column is missing, or its values make no names of folders.
            ConfigurationError: no column is left for the files.
        """
        for name in self.columns:
            if name not in schema.names:
                raise missing_column(name, schema.names, f"{_FOR}: partition_by")
            kind = schema.field(name).type
            if pa.types.is_nested(kind) or pa.types.is_floating(kind) or "binary" in str(kind):
                raise ColumnTypeError(
                    f"{_FOR}: partition_by: column {name!r} of type {kind} makes no names of folders; use a column of "
                    "text, integers, dates or booleans, or bucket=<function>"
                )
        if set(schema.names) <= set(self.columns):
            raise ConfigurationError(f"{_FOR}: partition_by: no column is left to be stored in the files")

    def assign(self, batch: Batch, now_ms: int) -> pa.Array:
        parts = [self._part(name, batch.data.column(name)) for name in self.columns]
        return pc.binary_join_element_wise(*parts, "/") if len(parts) > 1 else parts[0]

    def _part(self, name: str, column: pa.Array) -> pa.Array:
        encoded = column.dictionary_encode() if not pa.types.is_dictionary(column.type) else column
        texts = encoded.dictionary.cast(pa.string()).to_pylist()
        prefix = name.translate(_ESCAPED)
        folders = [f"{prefix}={text.translate(_ESCAPED) if text else NULL_PARTITION}" for text in texts]
        named = pa.array(folders, pa.string()).take(encoded.indices)
        return named.fill_null(f"{prefix}={NULL_PARTITION}")


@dataclass(frozen=True, slots=True)
class FunctionBuckets:
    """Buckets by a function of the rows.

    Args:
        function: gives a text for each row.
    """

    function: BucketFunction

    def assign(self, batch: Batch, now_ms: int) -> pa.Array:
        given = self.function(batch.data)
        if isinstance(given, pa.ChunkedArray):
            given = given.combine_chunks()
        names = given if isinstance(given, pa.Array) else pa.array(list(given))
        if len(names) != batch.num_rows:
            raise RecordError(
                f"{_FOR}: the bucket function gave {len(names)} names for {batch.num_rows} rows; it must give one each"
            )
        return names


def assigner_of(bucket: BucketAssigner | BucketFunction | None, partition_by: Sequence[str]) -> BucketAssigner | None:
    """What chooses the buckets of a sink, or None for one without.

    Raises:
        ConfigurationError: both are given, or they are of no use.
    """
    if isinstance(partition_by, str) or not all(isinstance(name, str) for name in partition_by):
        raise ConfigurationError(f"{_FOR}: partition_by must be a list of column names, not {partition_by!r}")
    if bucket is not None and partition_by:
        raise ConfigurationError(f"{_FOR}: give bucket or partition_by, not both; a bucket may be made of columns")
    if len(set(partition_by)) < len(partition_by):
        raise ConfigurationError(f"{_FOR}: partition_by names a column twice: {', '.join(partition_by)}")
    if partition_by:
        return ColumnBuckets(tuple(partition_by))
    if bucket is None or hasattr(bucket, "assign"):
        return cast("BucketAssigner | None", bucket)
    if not callable(bucket):
        raise ConfigurationError(f"{_FOR}: bucket must be by_time(...) or a function of a record batch, not {bucket!r}")
    return FunctionBuckets(bucket)


def split(assigner: BucketAssigner, batch: Batch, now_ms: int) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each bucket, in their order; partition columns are left out, as the folder has their values.

    Raises:
        RecordError: a row has no bucket, or one that is no path within the directory.
    """
    names = assigner.assign(batch, now_ms)
    if not (pa.types.is_string(names.type) or pa.types.is_large_string(names.type)) or names.null_count:
        raise RecordError(f"{_FOR}: a bucket must be a text for each row, without nulls, not {names.type}")
    data = batch.data
    if isinstance(assigner, ColumnBuckets):
        data = data.drop_columns(list(assigner.columns))
    encoded = names.dictionary_encode()
    buckets = encoded.dictionary
    _check_names(buckets)
    if len(buckets) == 1:
        yield buckets[0].as_py(), data
        return
    places: np.ndarray[Any, np.dtype[np.int32]] = encoded.indices.to_numpy()
    order = np.argsort(places, kind="stable")
    ends = np.cumsum(np.bincount(places, minlength=len(buckets)))
    ordered = table_to_record_batch(pa.Table.from_batches([data]).take(pa.array(order)))
    start = 0
    for name, end in zip(buckets.to_pylist(), ends.tolist(), strict=True):
        yield name, ordered.slice(start, end - start)
        start = end


def _check_names(names: pa.Array) -> None:
    for name in names.to_pylist():
        if not _NAME.fullmatch(name):
            raise RecordError(
                f"{_FOR}: {name[:100]!r} cannot be a bucket: it must be the path of a folder within the directory, no "
                "part of which is empty or begins with a dot"
            )
        if _is_too_long(name):
            raise RecordError(
                f"{_FOR}: {name[:100]!r}... cannot be a bucket: its path has more than {_MOST_BYTES} bytes, or a "
                f"folder's name more than {_MOST_NAME_BYTES}, as UTF-8; shorten the values that it is made of"
            )


def _is_too_long(name: str) -> bool:
    path = name.encode("utf-8")
    return len(path) > _MOST_BYTES or any(len(part) > _MOST_NAME_BYTES for part in path.split(b"/"))
