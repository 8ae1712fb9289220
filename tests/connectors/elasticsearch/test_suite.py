"""The Elasticsearch sink keeps the rules of the connector API, at the server of `index.py`: no real one can be had."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.connectors.elasticsearch import ElasticsearchSink
from penstock.engine.connectors import Sink
from penstock.testing.connector_suite import AtLeastOnceSinkSuite, SinkSuite
from tests.connectors.elasticsearch.index import Index
from tests.connectors.http.servers import serve


class TestElasticsearchSink(SinkSuite):
    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        self.index = Index()
        with serve(self.index.respond) as self.url:
            yield

    def sink(self) -> Sink:
        self.index.documents.clear()
        return ElasticsearchSink(self.url, "clicks", id="id")

    def read_back(self, sink: Sink) -> list[dict[str, Any]]:
        return list(self.index.documents.values())


class TestElasticsearchSinkOverFailures(AtLeastOnceSinkSuite):
    """Written again, a document replaces itself."""

    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        self.index = Index()
        with serve(self.index.respond) as self.url:
            yield

    def sink(self) -> Sink:
        self.index.documents.clear()
        return ElasticsearchSink(self.url, "clicks", id="id")

    def read_back(self, sink: Sink) -> list[dict[str, Any]]:
        return list(self.index.documents.values())
