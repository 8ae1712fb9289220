"""The connectors of Redis keep the rules of the connector API."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import redis as redis_py

from penstock.connectors.redis import RedisLookup, RedisSink
from penstock.engine.connectors import LookupTable, Sink
from penstock.testing.connector_suite import AtLeastOnceSinkSuite, LookupTableSuite, SinkSuite
from penstock.testing.services import Redis


def _stored(client: redis_py.Redis, sink: Sink) -> list[dict[str, Any]]:
    assert isinstance(sink, RedisSink)
    keys: list[str] = client.keys(f"{sink.prefix}*")  # type: ignore[assignment]
    return [{"id": int(key.removeprefix(sink.prefix)), "name": client.hget(key, "name")} for key in keys]


class TestRedisSink(SinkSuite):
    @pytest.fixture(autouse=True)
    def _server(self, redis: Redis) -> Iterator[None]:
        self.url = redis.url
        with redis_py.Redis.from_url(redis.url, decode_responses=True) as self.client:
            yield

    def sink(self) -> Sink:
        return RedisSink(self.url, keys="id", prefix=f"{uuid.uuid4().hex}:")

    def read_back(self, sink: Sink) -> list[dict[str, Any]]:
        return _stored(self.client, sink)


class TestRedisSinkOverFailures(AtLeastOnceSinkSuite):
    """Written again, a row replaces itself."""

    @pytest.fixture(autouse=True)
    def _server(self, redis: Redis) -> Iterator[None]:
        self.url = redis.url
        with redis_py.Redis.from_url(redis.url, decode_responses=True) as self.client:
            yield

    def sink(self) -> Sink:
        return RedisSink(self.url, keys="id", prefix=f"{uuid.uuid4().hex}:")

    def read_back(self, sink: Sink) -> list[dict[str, Any]]:
        return _stored(self.client, sink)


class TestRedisLookup(LookupTableSuite):
    @pytest.fixture(autouse=True)
    def _table(self, redis: Redis) -> None:
        self.url, self.prefix = redis.url, f"{uuid.uuid4().hex}:"
        with redis_py.Redis.from_url(redis.url) as client:
            for row in self.expected():
                client.hset(f"{self.prefix}{row['id']}", "name", row["name"])

    def table(self) -> LookupTable:
        return RedisLookup(self.url, keys="id", prefix=self.prefix, schema={"id": "int64", "name": "string"})

    def expected(self) -> list[dict[str, Any]]:
        return [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]

    def absent(self) -> list[dict[str, Any]]:
        return [{"id": 3}]
