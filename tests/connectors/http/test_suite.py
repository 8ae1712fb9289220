"""The HTTP source, which reads an answer while it comes, keeps the rules of sources that cannot be rewound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.connectors.http import HttpSource
from penstock.connectors.records import JsonFormat
from penstock.engine.connectors import Source
from penstock.testing.connector_suite import LiveSourceSuite
from tests.connectors.http.servers import answer, serve

COUNT = 30


class TestHttp(LiveSourceSuite):
    seeds = (1, 2)

    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        body = b"".join(b'{"n": %d}\n' % number for number in range(COUNT))
        with serve(lambda request: answer(request, body)) as self.url:
            yield

    def source(self) -> Source:
        return HttpSource(self.url, format=JsonFormat({"n": "int64"}), restore="skip")

    def expected(self) -> list[dict[str, Any]]:
        return [{"n": number} for number in range(COUNT)]
