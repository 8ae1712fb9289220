"""Servers that take a connection and never answer are named within ten seconds, whatever the connector."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock.connectors.elasticsearch import ElasticsearchSink
from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.source import FileSource
from penstock.connectors.http import HttpSource
from penstock.connectors.lakes import DeltaSink, IcebergSink
from penstock.connectors.records.raw import RawFormat
from penstock.connectors.sockets import WebSocketSource
from penstock.engine.errors import ConfigurationError
from tests.connectors.sockets.reading import open_reader

RAW = RawFormat("v")
USES: dict[str, Callable[[str], Any]] = {
    "http": lambda at: open_reader(HttpSource(f"http://{at}/", format=RAW)),
    "http polls": lambda at: open_reader(HttpSource(f"http://{at}/", format=RAW, poll="1s")),
    "websocket": lambda at: open_reader(WebSocketSource(f"ws://{at}/", format=RAW)),
    "elasticsearch": lambda at: ElasticsearchSink(f"http://{at}", "i", id="k").check(None),
    "file sink": lambda at: FileSink("s3://silent-1/out", "csv").check(None),
    "files": lambda at: FileSource.of("s3://silent-2/in.csv"),
    "watched files": lambda at: FileSource.of("s3://silent-3/in/*.csv", schema={"v": "string"}, monitor="1s"),
    "delta": lambda at: DeltaSink("s3://silent-4/table").check(None),
    "iceberg": lambda at: IcebergSink("db.t", "lake", {"type": "rest", "uri": f"http://{at}"}).check(None),
}


def test_a_server_that_never_answers_is_named_within_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{address}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
        monkeypatch.setenv("AWS_REGION", "us-east-1")

        def refusal(use: Callable[[str], Any]) -> tuple[str, float]:
            began = time.monotonic()
            with pytest.raises((ConfigurationError, ConnectionError)) as caught:
                use(address)
            return str(caught.value), time.monotonic() - began

        # At once, since each takes its eight seconds.
        with ThreadPoolExecutor(len(USES)) as threads:
            found = dict(zip(USES, threads.map(refusal, USES.values()), strict=True))
    for name, (text, seconds) in found.items():
        assert seconds < 10, name
        assert address in text or "s3://silent-" in text, text
        assert "check " in text, text
        assert "no answer within 8 s" in text or "timed out" in text, text
        assert "hush" not in text
