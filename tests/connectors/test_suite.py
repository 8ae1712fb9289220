"""The sources that need nothing but memory keep the rules of the connector API."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.connectors.collection import CollectionSource
from penstock.connectors.datagen import DataGenSource, EventTime, RandomInt
from penstock.connectors.datagen import Sequence as SequenceField
from penstock.engine.clock import Clock, ManualClock
from penstock.engine.connectors import Source
from penstock.testing.connector_suite import SourceSuite
from tests.connectors.reading import read_table

TABLE = pa.table({"id": range(60), "name": [None if number % 7 == 3 else f"name {number}" for number in range(60)]})


class TestCollection(SourceSuite):
    seeds = (1, 2)

    def source(self) -> Source:
        return CollectionSource.of(TABLE)

    def expected(self) -> pa.Table:
        return TABLE


class TestDataGen(SourceSuite):
    seeds = (1,)

    @pytest.fixture(autouse=True, params=[None, 200.0])
    def _rate(self, request: pytest.FixtureRequest) -> None:
        self.rate: float | None = request.param

    def source(self) -> Source:
        return self._source(self.rate)

    def expected(self) -> pa.Table:
        return read_table(self._source(None))

    def clock(self) -> Clock:
        return ManualClock()

    @staticmethod
    def _source(rate: float | None) -> Source:
        fields = {"n": SequenceField(), "key": RandomInt(0, 9), "at": EventTime(delayed=0.5, max_delay_ms=100)}
        return DataGenSource(fields, rows=61, rate=rate)
