"""Rows on their way into Redis and back, jobs between them, and what a user reads where that cannot be."""

from __future__ import annotations

import datetime
import decimal
import math
import pickle
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis as redis_py
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.connectors.redis import RedisLookup, RedisSink
from penstock.engine.elements import Batch
from penstock.engine.errors import ConfigurationError, PenstockError, RecordError
from penstock.recovery import checkpoints, fixed_delay
from penstock.testing.services import Redis
from tests.connectors.reading import context
from tests.draws import drawn
from tests.large import LARGE

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
SECRET = "s3cret-pa55"


@pytest.fixture(scope="module")
def client(redis: Redis) -> Iterator[redis_py.Redis]:
    with redis_py.Redis.from_url(redis.url, decode_responses=True) as client:
        yield client


def _prefix() -> str:
    return f"{uuid.uuid4().hex[:10]}:"


def _write(sink: RedisSink, columns: Any, kinds: Sequence[int] | None = None) -> None:
    writer = sink.open(context())
    writer.write(Batch(pa.record_batch(columns), None, None if kinds is None else pa.array(kinds, pa.int8())))
    writer.finish()
    writer.close()


def _look_up(table: RedisLookup, keys: pa.RecordBatch) -> list[dict[str, Any]]:
    table.open(context())
    rows: list[dict[str, Any]] = table.lookup(keys).to_pylist()
    table.close()
    return rows


changes = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.none() | st.integers()), max_size=12)


@settings(max_examples=drawn(32), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=changes, again=st.integers(0, 12))
def test_each_key_has_its_last_row_also_where_rows_are_written_again(
    redis: Redis, changes: list[tuple[int, int, int | None]], again: int
) -> None:
    sink = RedisSink(redis.url, keys="k", prefix=_prefix())
    expected: dict[int, str | None] = {}
    for kind, key, value in changes:
        if kind in (INSERT, UPDATE_AFTER):
            expected[key] = None if value is None else str(value)
        elif kind == DELETE:
            expected.pop(key, None)
    for part in (changes, changes[len(changes) - again :] if again <= len(changes) else []):
        kinds, keys, values = ([change[place] for change in part] for place in range(3))
        texts = pa.array([None if value is None else str(value) for value in values], pa.string())
        _write(sink, {"k": pa.array(keys, pa.int64()), "v": texts}, kinds)
    table = RedisLookup(redis.url, keys="k", prefix=sink.prefix, schema={"v": "string", "k": "int64"})
    found = _look_up(table, pa.record_batch({"k": pa.array(range(4), pa.int64())}))
    assert {row["k"]: row["v"] for row in found} == expected


UTC = datetime.timezone.utc
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "flag": (pa.bool_(), st.booleans()),
    "whole": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "large": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "half": (pa.float32(), st.floats(width=32)),
    "double": (pa.float64(), st.floats()),
    "money": (pa.decimal128(12, 2), st.decimals(-(10**8), 10**8, places=2)),
    "words": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]))),
    "raw": (pa.binary(), st.binary()),
    "day": (pa.date32(), st.dates()),
    "clock": (pa.time64("us"), st.times()),
    "local": (pa.timestamp("us"), st.datetimes()),
    "instant": (pa.timestamp("us", tz="UTC"), st.datetimes(timezones=st.just(UTC))),
}


@settings(max_examples=drawn(48), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(row=st.fixed_dictionaries({name: st.none() | kind[1] for name, kind in KINDS.items()}), key=st.text("a:\\b"))
def test_values_come_back_as_they_went(redis: Redis, row: dict[str, Any], key: str) -> None:
    schema = pa.schema([("n", pa.int64()), ("k", pa.string()), *((name, kind) for name, (kind, _) in KINDS.items())])
    rows = pa.RecordBatch.from_pylist([{"n": 1, "k": key, **row}], schema)
    sink = RedisSink(redis.url, keys=["k", "n"], prefix=_prefix())
    sink.check(schema)
    _write(sink, dict(zip(schema.names, rows.columns, strict=True)))
    table = RedisLookup(redis.url, keys=["k", "n"], schema=schema, prefix=sink.prefix)
    keys = pa.record_batch({"k": [key, "other"], "n": pa.array([1, 1], pa.int64())})
    (found,) = _look_up(table, keys)
    assert {name: _comparable(value) for name, value in found.items()} == {
        name: _comparable(value) for name, value in {"n": 1, "k": key, **row}.items()
    }


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else (math.copysign(1, value), value)
    return decimal.Decimal(value) if isinstance(value, int) else value


def test_a_row_is_a_hash_that_others_can_read(redis: Redis, client: redis_py.Redis) -> None:
    prefix = _prefix()
    client.hset(f"{prefix}1:x\\:y", mapping={"old": "stays", "gone": "1"})
    sink = RedisSink(redis.url, keys=["a", "b"], prefix=prefix, ttl="1h")
    at = datetime.datetime(2024, 2, 29, 12, tzinfo=UTC)
    gone = pa.array([None], pa.int64())
    _write(sink, {"a": [1], "b": ["x:y"], "n": [1.5], "ok": [True], "at": [at], "gone": gone})
    assert client.hgetall(f"{prefix}1:x\\:y") == {
        "old": "stays",
        "n": "1.5",
        "ok": "true",
        "at": "2024-02-29 12:00:00.000000Z",
    }
    assert 0 < client.pttl(f"{prefix}1:x\\:y") <= 3_600_000  # type: ignore[operator]
    assert sink.describe() == f"redis({prefix}<a>:<b>)"


def test_a_job_with_failures_ends_with_the_right_values(redis: Redis, client: redis_py.Redis, tmp_path: Path) -> None:
    prefix, failed = _prefix(), tmp_path / "failed"
    client.hset(f"{prefix}name:0", "name", "zero")
    env = ps.StreamEnvironment(
        parallelism=2,
        runtime="local",
        max_batch_rows=4,
        buffer_timeout="0",
        checkpoints=checkpoints("10ms", str(tmp_path / "checkpoints")),
        restart=fixed_delay(3, "1ms"),
    )

    def fail(row: dict[str, Any]) -> dict[str, Any]:
        if row["i"] == 150 and not failed.exists():
            failed.touch()
            raise OSError("once")
        return row

    numbers = env.from_source(ps.DataGenSource({"i": ps.Sequence()}, rows=200))
    counts = numbers.map(fail, returns={"i": "int64"}).with_columns(k=ps.col("i") % 3).key_by("k")
    names = RedisLookup(redis.url, keys="k", prefix=f"{prefix}name:", schema={"k": "int64", "name": "string"})
    named = counts.aggregate(n=ps.count()).lookup_join(names, on="k", how="left")
    named.sink_to(RedisSink(redis.url, keys="k", prefix=prefix))
    assert redis.password not in env.explain()
    env.execute()
    assert failed.exists()
    assert [client.hgetall(f"{prefix}{key}") for key in range(3)] == [
        {"n": "67", "name": "zero"},
        {"n": "67"},
        {"n": "66"},
    ]


def test_a_connection_that_the_server_ends_is_made_again(redis: Redis, client: redis_py.Redis) -> None:
    sink = RedisSink(redis.url, keys="k", prefix=_prefix())
    writer = sink.open(context())
    for key in range(2):
        writer.write(Batch(pa.record_batch({"k": [key], "v": [key]})))
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    writer.close()
    assert [client.hget(f"{sink.prefix}{key}", "v") for key in range(2)] == ["0", "1"]


def _uses(url: str) -> list[Any]:
    return [
        lambda: RedisSink(url, keys="k").check(None),
        lambda: RedisLookup(url, keys="k", schema={"k": "int64", "v": "string"}),
    ]


def test_a_server_that_is_not_there_or_never_answers(redis: Redis) -> None:
    for use in _uses(f"redis://:{SECRET}@127.0.0.1:1/0"):
        with pytest.raises(ConfigurationError, match=r"127\.0\.0\.1:1/0 cannot be used: .*refused") as caught:
            use()
        assert SECRET not in str(caught.value)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        with pytest.raises(ConfigurationError, match=r"cannot be used: [Tt]imeout"):
            RedisSink(f"redis://127.0.0.1:{silent.getsockname()[1]}/0?socket_timeout=2", keys="k").check(None)
        assert time.monotonic() - began < 10


def test_a_wrong_password_is_said_and_not_shown(redis: Redis, capfd: pytest.CaptureFixture[str]) -> None:
    for use in _uses(redis.url.replace(redis.password, SECRET)):
        with pytest.raises(ConfigurationError, match=r"cannot be used: .*password") as caught:
            use()
        written = capfd.readouterr()
        assert SECRET not in str(caught.value) + repr(caught.value) + written.out + written.err
    sink = RedisSink(redis.url, keys="k")
    assert redis.password not in repr(sink) + sink.describe()
    assert pickle.loads(pickle.dumps(sink)) == sink


@pytest.mark.parametrize("url", [f"redis://:{SECRET}@x@h/0", f"redis://:{SECRET}/x@h/0", f"http://:{SECRET}@h/0", ""])
def test_a_url_that_cannot_be_read_is_not_shown(url: str) -> None:
    with pytest.raises(ConfigurationError, match="the url cannot be read; give redis://") as caught:
        RedisSink(url, keys="k")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"kk": "int64"}, r"no column 'k' \(did you mean 'kk'\?\) to be a key"),
        ({"k": "float64"}, "column 'k' is double, which cannot be a key"),
        ({"k": "int64", "v": "list<int64>"}, "'v' is list<item: int64>, which cannot be a field"),
        ({"k": "int64", "v": "struct<a: int64>"}, "which cannot be a field of a hash"),
    ],
)
def test_columns_that_redis_cannot_hold(redis: Redis, columns: dict[str, str], message: str) -> None:
    for use in (
        lambda: RedisSink(redis.url, keys="k").check(ps_schema(columns)),
        lambda: RedisLookup(redis.url, keys="k", schema=columns),
    ):
        with pytest.raises(PenstockError, match=message):
            use()


def ps_schema(columns: dict[str, str]) -> pa.Schema:
    from penstock.engine.schemas import parse_schema

    return parse_schema(columns, "test")


def test_records_that_cannot_be_written_or_read(redis: Redis, client: redis_py.Redis) -> None:
    prefix = _prefix()
    with pytest.raises(RecordError, match="operator 'test', subtask 0: redis sink: column 'k': a key is null"):
        _write(RedisSink(redis.url, keys="k", prefix=prefix), {"k": pa.array([None], pa.int64())})
    client.set(f"{prefix}1", "text")
    with pytest.raises(RecordError, match=r"Redis refused a row: .*WRONGTYPE.*a prefix of its own"):
        _write(RedisSink(redis.url, keys="k", prefix=prefix), {"k": [1], "v": [1]})
    client.hset(f"{prefix}2", "v", "many")
    table = RedisLookup(redis.url, keys="k", prefix=prefix, schema={"k": "int64", "v": "int64"})
    with pytest.raises(RecordError, match="redis lookup: column 'v': a value is no int64"):
        _look_up(table, pa.record_batch({"k": [2]}))
    with pytest.raises(
        RecordError, match=f"'test', subtask 0: redis lookup: Redis does not tell .*{prefix}1.*WRONGTYPE.*the prefix"
    ):
        _look_up(table, pa.record_batch({"k": [1]}))
    with pytest.raises(ConfigurationError, match="name at least one key"):
        RedisSink(redis.url, keys=())
    with pytest.raises(ConfigurationError, match="ttl must be"):
        RedisSink(redis.url, keys="k", ttl="0ms")


def test_importing_the_connector_is_light() -> None:
    code = "import sys, penstock.connectors.redis; print('redis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.fixture
def full(client: redis_py.Redis) -> Iterator[None]:
    """Until the test ends, the server has no room for more."""
    before = client.config_get("maxmemory")["maxmemory"]  # type: ignore[index]
    client.config_set("maxmemory", 1)
    yield
    client.config_set("maxmemory", before)


def test_a_server_without_room(redis: Redis, full: None) -> None:
    with pytest.raises(ConnectionError, match=r"'test', subtask 0: .*takes no writes now: .*memory.*give it memory"):
        _write(RedisSink(redis.url, keys="k", prefix=_prefix()), {"k": [1], "v": [1]})


def test_a_user_who_may_only_read(redis: Redis, client: redis_py.Redis) -> None:
    user = f"guest-{uuid.uuid4().hex}"
    client.execute_command("ACL", "SETUSER", user, "on", f">{SECRET}", "~*", "+@read", "+ping", "+client")
    url = redis.url.replace(f":{redis.password}@", f"{user}:{SECRET}@")
    with pytest.raises(ConfigurationError, match=r"'test', subtask 0: .*may not write: .*grant it HSET") as caught:
        _write(RedisSink(url, keys="k", prefix=_prefix()), {"k": [1], "v": [1]})
    assert SECRET not in str(caught.value)
    client.execute_command("ACL", "DELUSER", user)


def test_a_user_who_may_not_read(redis: Redis, client: redis_py.Redis) -> None:
    user = f"guest-{uuid.uuid4().hex}"
    client.execute_command("ACL", "SETUSER", user, "on", f">{SECRET}", "~*", "+ping", "+client")
    url = redis.url.replace(f":{redis.password}@", f"{user}:{SECRET}@")
    table = RedisLookup(url, keys="k", schema={"k": "int64", "v": "int64"})
    with pytest.raises(ConfigurationError, match=r"'test', subtask 0: .*may not read: .*grant it EXISTS") as caught:
        _look_up(table, pa.record_batch({"k": [1]}))
    assert SECRET not in str(caught.value)
    client.execute_command("ACL", "DELUSER", user)


@LARGE
def test_a_large_value(redis: Redis, client: redis_py.Redis, large: int) -> None:
    sink = RedisSink(redis.url, keys="k", prefix=_prefix())
    _write(sink, {"k": [1, 2], "v": ["x" * large, "y"]})
    assert [client.hstrlen(f"{sink.prefix}{key}", "v") for key in (1, 2)] == [large, 1]
    client.delete(f"{sink.prefix}1")
