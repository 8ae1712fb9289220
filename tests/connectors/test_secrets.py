"""Wrong credentials are said, and shown nowhere: in no error or its causes, no output, and no log of any level."""

from __future__ import annotations

import json
import logging
import traceback
import urllib.parse
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from penstock.connectors.elasticsearch import ElasticsearchSink
from penstock.connectors.http import HttpSource
from penstock.connectors.kafka import KafkaSink, KafkaSource
from penstock.connectors.lakes import DeltaSink, IcebergSink
from penstock.connectors.postgres import PostgresLookup, PostgresSink, PostgresSource
from penstock.connectors.records.raw import RawFormat
from penstock.connectors.redis import RedisLookup, RedisSink
from penstock.connectors.sockets import WebSocketSource
from penstock.engine.errors import ConfigurationError
from penstock.testing.services import Kafka, Postgres, Redis
from tests.connectors.http.servers import answer, serve
from tests.connectors.kafka.test_refusals import sasl
from tests.connectors.sockets.reading import open_reader

SECRET = "s3cret/pa55+word"
QUOTED = urllib.parse.quote(SECRET, safe="")
RAW = RawFormat("v")
HEADERS = {"Authorization": f"Bearer {SECRET}"}


@pytest.fixture
def expect_silence(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Callable[..., None]:
    """Fails where the use of a connector is not refused, or shows the secret."""
    caplog.set_level(logging.DEBUG)

    def check(use: Callable[[], Any]) -> None:
        with pytest.raises((ConfigurationError, ConnectionError)) as caught:
            use()
        told = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
        written = capfd.readouterr()
        for place in (told, written.out, written.err, caplog.text):
            assert SECRET not in place
            assert QUOTED not in place

    return check


def test_kafka(kafka: Kafka, expect_silence: Any) -> None:
    arguments = {"format": RAW, "options": sasl(kafka.user_name, SECRET)}
    expect_silence(lambda: KafkaSource(kafka.sasl_bootstrap_servers, "t", **arguments).splits(1))
    expect_silence(lambda: KafkaSink(kafka.sasl_bootstrap_servers, "t", **arguments).prepare())


def test_postgres(postgres: Postgres, expect_silence: Any) -> None:
    dsn = postgres.dsn.replace(postgres.password, QUOTED)
    expect_silence(lambda: PostgresSink(dsn, "t").check(RAW.schema))
    expect_silence(lambda: PostgresSource(dsn, "t", column="k"))
    expect_silence(lambda: PostgresLookup(dsn, "t", keys="k"))


def test_redis(redis: Redis, expect_silence: Any) -> None:
    url = redis.url.replace(redis.password, QUOTED)
    expect_silence(lambda: RedisSink(url, keys="k").check(None))
    expect_silence(lambda: RedisLookup(url, keys="k", schema={"k": "int64", "v": "string"}))


def test_http_and_what_speaks_it(expect_silence: Any) -> None:
    def respond(request: BaseHTTPRequestHandler) -> None:
        answer(request, json.dumps({"error": {"type": "no", "code": 401, "message": "who are you?"}}).encode(), 401)

    with serve(respond) as url:
        guarded = url.replace("//", f"//app:{QUOTED}@")
        for poll in (None, "1s"):
            source = HttpSource(f"{guarded}/?key={QUOTED}", format=RAW, headers=HEADERS, poll=poll)
            expect_silence(lambda source=source: open_reader(source))
        expect_silence(lambda: ElasticsearchSink(guarded, "i", id="k", headers=HEADERS).check(None))
        web_socket = WebSocketSource(f"{guarded.replace('http', 'ws')}/?key={QUOTED}", format=RAW, headers=HEADERS)
        expect_silence(lambda: open_reader(web_socket))
        catalog = {"type": "rest", "uri": url, "credential": f"app:{SECRET}"}
        expect_silence(lambda: IcebergSink("db.t", "lake", catalog).check(None))


def test_urls_and_headers_that_cannot_be_sent(expect_silence: Any) -> None:
    for value in (f"Bearer {SECRET}\n", f"Bearer \u20ac{SECRET}"):
        headers = {"Authorization": value}
        expect_silence(lambda headers=headers: HttpSource("http://h", format=RAW, headers=headers))
        expect_silence(lambda headers=headers: ElasticsearchSink("http://h", "i", id="k", headers=headers))
        expect_silence(lambda headers=headers: WebSocketSource("ws://h", format=RAW, headers=headers))
    expect_silence(lambda: HttpSource("http://h", format=RAW, headers={f"Authorization: {SECRET}": ""}))
    for query in (f"{QUOTED} ", f"{QUOTED}\u20ac", f"{QUOTED}\r\n", f"x#{QUOTED}"):
        for poll in (None, "1s"):
            expect_silence(
                lambda query=query, poll=poll: open_reader(
                    HttpSource(f"http://127.0.0.1:1/?key={query}", format=RAW, poll=poll)
                )
            )
        expect_silence(
            lambda query=query: ElasticsearchSink(f"http://127.0.0.1:1/?key={query}", "i", id="k").check(None)
        )
        expect_silence(lambda query=query: open_reader(WebSocketSource(f"ws://127.0.0.1:1/?key={query}", format=RAW)))


def test_urls_that_the_library_of_web_sockets_refuses(expect_silence: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expect_silence(lambda: open_reader(WebSocketSource(f"ws://{QUOTED}@127.0.0.1:1/?key={QUOTED}", format=RAW)))
    monkeypatch.setenv("ws_proxy", f"http://app:{QUOTED}@127.0.0.1:1/path")
    expect_silence(lambda: open_reader(WebSocketSource("ws://feed.example", format=RAW)))


def test_a_catalog(expect_silence: Any) -> None:
    uri = f"nonsense://app:{QUOTED}@127.0.0.1:1/lake?key={QUOTED}"
    for properties in (
        {"uri": uri},
        {"uri": uri.replace("nonsense", "postgresql+nonsense"), "type": "sql"},
        {"type": "sql", "uri": "sqlite://", "init_catalog_tables": SECRET},
        {"type": "rest", "uri": "http://127.0.0.1:1", "credential": f"app:{SECRET}", "token": QUOTED},
    ):
        expect_silence(lambda properties=properties: IcebergSink("db.t", "lake", properties).check(None))


def test_a_table_in_a_bucket(bucket: str, expect_silence: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    expect_silence(lambda: DeltaSink(f"{bucket}-which-is-not-there/table").check(None))
