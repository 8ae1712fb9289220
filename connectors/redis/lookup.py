"""Hashes of Redis to look rows up in, for `lookup_join`.

Programs build a `RedisLookup`; each subtask asks on a connection of its own, for all keys of a batch together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.connectors.redis.connection import SHOWN, check_answers, client, failure, is_forbidden, shown_url
from penstock.connectors.redis.layout import Layout, decode
from penstock.engine.connectors import ConnectorContext, LookupTable
from penstock.engine.errors import ConfigurationError, RecordError
from penstock.engine.schemas import SchemaLike, parse_schema

if TYPE_CHECKING:
    from redis import Redis

_WHERE: Final = "redis lookup"


class RedisLookup(LookupTable):
    """The hashes that lie under keys of one form, as `RedisSink` writes them, as they are when they are asked for.

    A field that a hash does not have is null; a key without a hash has no row. Each key has one row at most.

    Args:
        url: `redis://user:password@host:port/0`, or `rediss://` for TLS; the password is never shown.
        keys: the column, or columns, that make the key, in the order in which they stand there.
        schema: the columns, keys included, as `{"id": "int64", ...}` or an Arrow schema.
        prefix: comes before each key.

    Raises:
        ConfigurationError: the server cannot be reached (within 10 s), or no such key, column or URL.
        ColumnTypeError: a column of a type that has no form in Redis.

    Example:
        >>> users = RedisLookup(url, keys="id", schema={"id": "int64", "name": "string"})  # doctest: +SKIP
    """

    def __init__(self, url: str, *, keys: str | Sequence[str], schema: SchemaLike, prefix: str = "") -> None:
        self._url = url
        self._client: Redis | None = None
        self._layout = Layout.of(prefix, keys, _WHERE)
        self._schema = parse_schema(schema, _WHERE)
        self._layout.check(self._schema, _WHERE)
        check_answers(url)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def keys(self) -> Sequence[str]:
        return self._layout.keys

    def open(self, context: ConnectorContext) -> None:
        self._where = f"operator {context.operator!r}, subtask {context.subtask}: {_WHERE}"
        self._client = client(self._url)

    def lookup(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        import redis

        assert self._client is not None
        names = self._layout.fields(self._schema)
        with self._client.pipeline(transaction=False) as pipeline:
            for key in self._layout.keys_of(keys, self._where):
                pipeline.exists(key)
                pipeline.hmget(key, [*names, ""])  # at least one
            try:
                answers = pipeline.execute()
            except (redis.ConnectionError, redis.TimeoutError) as error:
                raise ConnectionError(f"{self._where}: {failure(self._url, error)}") from None
            except redis.ResponseError as error:
                raise self._refusal(" ".join(str(error).split())[:SHOWN]) from None
        held = [(row, answers[2 * row + 1]) for row in range(keys.num_rows) if answers[2 * row]]
        of_keys = keys.take(pa.array([row for row, _ in held], pa.int64()))
        columns = {name: of_keys.column(name) for name in self._layout.keys}
        for place, name in enumerate(names):
            kind = self._schema.field(name).type
            columns[name] = decode([values[place] for _, values in held], kind, f"{self._where}: column {name!r}")
        return pa.RecordBatch.from_arrays([columns[name] for name in self._schema.names], schema=self._schema)

    def _refusal(self, text: str) -> Exception:
        """The error for what the server says of a question."""
        if is_forbidden(text):
            return ConfigurationError(
                f"{self._where}: the user of {shown_url(self._url)} may not read: {text}; grant it EXISTS and HMGET on "
                "the prefix"
            )
        return RecordError(
            f"{self._where}: Redis does not tell what lies under a key: {text}; a key may hold another type of value: "
            "give the lookup the prefix of its hashes"
        )

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
