"""An outage of Kafka is a line at its begin, one at its end, and not thousands between them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from penstock.connectors.kafka.client_log import ClientLog, installed, library_loggers


@pytest.fixture
def log() -> Iterator[ClientLog]:
    one = ClientLog()
    logger = logging.getLogger("aiokafka.test")
    logger.addFilter(one)
    yield one
    logger.removeFilter(one)


def said(at: float, node: int = 1, level: int = logging.ERROR) -> None:
    record = logging.LogRecord("aiokafka.test", level, "", 1, "Unable connect to node with id %s", (node,), None)
    record.created = at
    logging.getLogger("aiokafka.test").handle(record)


def test_an_outage_is_told_when_it_begins_and_when_it_is_over(log: ClientLog, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(2_800):
        said(1_000 + number / 100)
    log.answered(1_030)
    log.answered(1_031)
    lines = caplog.messages
    assert len(lines) == 5
    assert lines[:3] == ["Unable connect to node with id 1"] * 3
    assert lines[3].startswith("Kafka does not answer as it should; the job waits, and continues by itself")
    assert lines[4] == "Kafka answers again, after 30 s; 2797 messages of its client were left out"


def test_in_a_long_outage_each_message_comes_now_and_then(log: ClientLog, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(200):
        said(1_000 + number / 2, node=number)
    assert "Unable connect to node with id 60 (and 57 more like it)" in caplog.messages
    assert len(caplog.messages) < 20


def test_what_happens_now_and_then_is_told_as_it_is(log: ClientLog, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(5):
        said(1_000 + 40 * number)
        log.answered(1_001 + 40 * number)
    assert caplog.messages == ["Unable connect to node with id 1"] * 5


def test_details_that_were_asked_for_are_not_limited(log: ClientLog, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "aiokafka.test")
    for number in range(50):
        said(1_000 + number, level=logging.DEBUG)
    assert len(caplog.messages) == 50


def test_one_of_a_process_stands_before_all_of_the_library() -> None:
    logging.getLogger("aiokafka.test")
    assert installed() is installed()
    assert all(sum(isinstance(one, ClientLog) for one in logger.filters) == 1 for logger in library_loggers())
    logging.getLogger("aiokafka.test").removeFilter(installed())
