"""Rows that are written while the brokers are away, on a cluster of its own."""

from __future__ import annotations

import pytest

from penstock.connectors.kafka import KafkaSink
from penstock.testing.services.kafka import Kafka
from tests.connectors.kafka.written import RAW, context, rows, transactions_end, values


def test_an_outage_delays_rows_and_loses_none() -> None:
    with Kafka() as own:
        own.create_topic("t")
        sink = KafkaSink(own.bootstrap_servers, "t", format=RAW, delivery_timeout="500ms")
        sink.prepare()
        tries, waits = context("job/tries"), context("job/waits")
        trying, waiting = sink.open(tries), sink.open(waits)
        for where, writer, value in ((tries, trying, 1), (waits, waiting, 2)):
            writer.write(rows(value))
            sink.commit(writer.prepare(1), where)
        trying.write(rows(3, 4))
        committables = trying.prepare(2)
        own.kill()
        with pytest.raises(ConnectionError, match=r"the 2 rows of checkpoint 2 are not written yet: .*127\.0\.0\.1"):
            sink.commit(committables, tries)
        trying.close()
        own.start()
        KafkaSink(own.bootstrap_servers, "t", format=RAW).commit(committables, context("job/tries"))
        # A producer that had nothing to do meanwhile goes on.
        waiting.write(rows(5))
        sink.commit(waiting.prepare(2), waits)
        waiting.close()
        assert values(own.bootstrap_servers, "t") == ["1", "2", "3", "4", "5"]
        assert transactions_end(own.bootstrap_servers, "t")
