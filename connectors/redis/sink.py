"""The Redis sink: each row is a hash under its key, written as it comes.

Programs build a `RedisSink`; the engine checks it once and opens a writer in each subtask, which sends the rows of a
batch together and waits for the answers, so that all rows before a checkpoint are in Redis when it is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.connectors.redis.connection import (
    SHOWN,
    check_answers,
    client,
    dataset_of,
    failure,
    is_forbidden,
    shown_url,
)
from penstock.connectors.redis.layout import Layout, encode
from penstock.engine.changelog import ANY_MODE, ChangelogMode
from penstock.engine.connectors import ConnectorContext, Dataset, Sink, SinkWriter
from penstock.engine.durations import Duration, parse_duration
from penstock.engine.elements import Batch
from penstock.engine.errors import ConfigurationError, RecordError

if TYPE_CHECKING:
    from redis.client import Pipeline

_WHERE: Final = "redis sink"
_NO_ROOM: Final = ("OOM", "command not allowed when used memory", "MISCONF", "READONLY", "read only replica")
"""What is said where memory or disk is full, or the server is a replica; the client leaves some codes out."""
_UPDATE_BEFORE: Final = 1
_DELETE: Final = 3


@dataclass(frozen=True, slots=True)
class RedisSink(Sink):
    """Keeps one hash for each key: the last row with the key.

    Guarantee: at least once, read uncommitted: rows are seen as soon as they are written, also those of a checkpoint
    that is not complete yet. After a failure the rows since the last checkpoint are written again, in their order; so
    a key may show an older value for a moment, and in the end has the one that it would have had, if the program makes
    the same rows again. A writer that was stopped and resumes after its replacement runs may write older values over
    newer ones.

    A row's key is `prefix` and the values of its key columns, with colons between them (where there are several, a
    colon or backslash within a value has a backslash before it). The other columns are the fields, as text: numbers in
    decimal, times in ISO 8601, booleans as `true` and `false`, bytes as they are. A null has no field. The fields of
    other names that the hash has stay. Changelog row kinds, as Flink numbers them: 3 delete deletes the key, 1
    update-before is left out, others are written. Rows of one key must come from one subtask to have an order.

    Args:
        url: `redis://user:password@host:port/0`, or `rediss://` for TLS; the password is never shown.
        keys: the column, or columns, that make the key.
        prefix: comes before each key, such as `"user:"`.
        ttl: how long a key lives after it was written. None sets no time: a key that has one from before keeps it.

    Raises:
        ConfigurationError: no key, no such URL, or a ttl below a millisecond.

    Example:
        >>> RedisSink("redis://localhost:6379/0", keys="user", prefix="clicks:")
    """

    url: str = field(repr=False)
    keys: str | Sequence[str] = field(kw_only=True)
    prefix: str = field(default="", kw_only=True)
    ttl: Duration | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        shown_url(self.url)
        object.__setattr__(self, "keys", Layout.of(self.prefix, self.keys, _WHERE).keys)
        if self.ttl is not None and parse_duration(self.ttl, "ttl") < 1:
            raise ConfigurationError(f"{_WHERE}: ttl must be a millisecond at least")

    @property
    def changelog_modes(self) -> AbstractSet[ChangelogMode]:
        return ANY_MODE

    @property
    def datasets(self) -> Sequence[Dataset]:
        return (dataset_of(self.url, self.prefix),)

    def check(self, schema: pa.Schema | None) -> None:
        """See `Sink.check`; asks the server, within 10 s."""
        check_answers(self.url)
        if schema is not None:
            Layout.of(self.prefix, self.keys, _WHERE).check(schema, _WHERE)

    def open(self, context: ConnectorContext) -> SinkWriter:
        ttl_ms = None if self.ttl is None else parse_duration(self.ttl, "ttl")
        return _RedisWriter(self.url, Layout.of(self.prefix, self.keys, _WHERE), ttl_ms, context)

    def describe(self) -> str:
        return f"redis({self.prefix}{':'.join(f'<{key}>' for key in self.keys)})"


class _RedisWriter(SinkWriter):
    """Sends each batch in one pipeline."""

    def __init__(self, url: str, layout: Layout, ttl_ms: int | None, context: ConnectorContext) -> None:
        self._url, self._layout, self._ttl_ms = url, layout, ttl_ms
        self._where = f"operator {context.operator!r}, subtask {context.subtask}: {_WHERE}"
        self._client = client(url)
        self._schema: pa.Schema | None = None

    def write(self, batch: Batch) -> None:
        import redis

        if not batch.num_rows:
            return
        if self._schema is None or not batch.data.schema.equals(self._schema):
            self._layout.check(batch.data.schema, self._where)
            self._schema = batch.data.schema
        # Not a transaction: that would keep the server from all others meanwhile.
        with self._client.pipeline(transaction=False) as pipeline:
            self._fill(pipeline, batch)
            try:
                pipeline.execute()
            except (redis.ConnectionError, redis.TimeoutError) as error:
                raise ConnectionError(f"{self._where}: {failure(self._url, error)}") from None
            except redis.ResponseError as error:
                raise self._refusal(" ".join(str(error).split())[:SHOWN]) from None

    def _refusal(self, text: str) -> Exception:
        """The error for what the server says of a command."""
        if any(code in text for code in _NO_ROOM):
            return ConnectionError(
                f"{self._where}: {shown_url(self._url)} takes no writes now: {text}; give it memory or disk, or the "
                "url of the primary"
            )
        if is_forbidden(text):
            return ConfigurationError(
                f"{self._where}: the user of {shown_url(self._url)} may not write: {text}; grant it HSET, HDEL, DEL "
                "and PEXPIRE on the prefix"
            )
        return RecordError(
            f"{self._where}: Redis refused a row: {text}; a key may hold another type of value: give the sink a prefix "
            "of its own"
        )

    def _fill(self, pipeline: Pipeline, batch: Batch) -> None:
        names = self._layout.fields(batch.data.schema)
        keys = self._layout.keys_of(batch.data, self._where)
        columns = [encode(batch.data.column(name)) for name in names]
        kinds = [0] * batch.num_rows if batch.kinds is None else batch.kinds.to_pylist()
        for row, (key, kind) in enumerate(zip(keys, kinds, strict=True)):
            if kind == _UPDATE_BEFORE:
                continue
            if kind == _DELETE:
                pipeline.delete(key)
                continue
            values = [(name, column[row]) for name, column in zip(names, columns, strict=True)]
            # Redis has no hash without fields: a row of a key and nulls is one with an empty field without a name.
            present: dict[Any, Any] = {name: value for name, value in values if value is not None} or {"": b""}
            missing = [name for name, value in values if value is None]
            pipeline.hset(key, mapping=present)
            if missing:
                pipeline.hdel(key, *missing)
            if self._ttl_ms is not None:
                pipeline.pexpire(key, self._ttl_ms)

    def close(self) -> None:
        self._client.close()
