"""An outage of Kafka is a line at its begin, one at its end, and not thousands between them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from penstock.connectors.kafka.client_log import ClientLog, installed, library_loggers
from tests.coming_loggers import coming_loggers


@pytest.fixture
def log() -> Iterator[ClientLog]:
    one = ClientLog()
    logger = logging.getLogger("aiokafka.test")
    logger.addFilter(one)
    yield one
    logger.removeFilter(one)


CONNECT = "Unable connect to node with id %s"


def said(at: float, node: int = 1, level: int = logging.ERROR, text: str = CONNECT) -> None:
    record = logging.LogRecord("aiokafka.test", level, "", 1, text, (node,), None)
    record.created = at
    logging.getLogger("aiokafka.test").handle(record)


def test_an_outage_is_told_when_it_begins_and_when_it_is_over(log: ClientLog, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(2_800):
        said(1_000 + number / 100)
    log.answered(1_030)
    log.answered(1_031)
    lines = caplog.messages
    assert len(lines) == 3
    assert lines[0] == "Unable connect to node with id 1"
    assert lines[1].startswith("Kafka does not answer as it should; a job that runs waits, and continues by itself")
    assert lines[2] == "Kafka answers again, after 30 s; 2799 messages of its client were left out"


def test_of_all_that_the_client_says_at_once_one_line_comes_before_ours(
    log: ClientLog, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(300):
        for text in (CONNECT, "Unable to request metadata from node with id %s", "Failed fetch messages from %s"):
            said(1_000 + number / 100, text=text)
    lines = caplog.messages
    assert len(lines) == 2
    assert lines[1].endswith("is limited until then: Unable to request metadata from node with id 1")


def test_in_a_long_outage_each_message_comes_now_and_then(log: ClientLog, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(200):
        said(1_000 + number / 2, node=number)
    assert "Unable connect to node with id 60 (and 59 more like it)" in caplog.messages
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


def test_other_threads_may_load_modules_meanwhile() -> None:
    with coming_loggers():
        for _ in range(200):
            assert logging.getLogger("aiokafka") in library_loggers()
