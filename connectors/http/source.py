"""The HTTP source: asks a URL again and again, or reads one answer that never ends.

Programs build an `HttpSource`; one subtask asks.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import urllib.error
from collections.abc import Iterator, Mapping
from typing import Any, Final

from penstock.connectors.http.client import Answer, ask, check_headers, check_url, open_url, shown_url
from penstock.connectors.live import CONNECT_SECONDS, LiveSource, Records, Restore
from penstock.connectors.records.format import RecordFormat
from penstock.engine.connectors import ConnectorContext
from penstock.engine.durations import Duration, parse_duration
from penstock.engine.errors import ConfigurationError

_NOT_MODIFIED: Final = 304
_ATTEMPTS: Final = 4
_JSON: Final = "application/json"


class HttpSource(LiveSource):
    """Reads records over HTTP.

    With `poll`, the URL is asked again and again. Each answer is a JSON array (an element is a record), or lines (a
    line is a record; a JSON object over several lines must stand in an array); all its records are given, also those
    that were in the answer before, unless the server says that nothing has changed (it is asked with the ETag of the
    last answer). A poll that fails, or has not ended after a minute, is tried four times. Without `poll`, one answer is
    read line by line while it comes, such as JSON lines that never end; the source ends when it does. One that is said
    to be `application/json` and begins with a bracket is read whole, as an answer to a poll is.

    Guarantee: none over a failure, because what the server has sent cannot be asked for again. So a job with
    checkpoints refuses it, unless `restore="skip"` says that records may be lost then (at most once). One subtask
    reads.

    Args:
        url: `http://` or `https://`; what stands behind `?`, and user and password, are never shown.
        format: how a record becomes a row, such as `JsonFormat({...})`.
        poll: how long to wait between two polls; None reads one answer.
        headers: of each request, such as `{"Authorization": "Bearer ..."}`; never shown.
        restore: "refuse" or "skip".

    Raises:
        ConfigurationError: no such URL, a header that cannot be sent, or polls without a pause.

    Example:
        >>> from penstock.connectors.records import JsonFormat
        >>> HttpSource("http://localhost:8000/events", format=JsonFormat({"id": "int64"}), poll="5s").describe()
        'http(http://localhost:8000/events)'
    """

    def __init__(
        self,
        url: str,
        *,
        format: RecordFormat,  # noqa: A002 - the word users look for
        poll: Duration | None = None,
        headers: Mapping[str, str] | None = None,
        restore: Restore = "refuse",
    ) -> None:
        check_url(url, ("http", "https"), "http")
        check_headers(headers or {}, "http")
        self._url, self._headers = url, dict(headers or {})
        self._poll = None if poll is None else parse_duration(poll, "poll") / 1000
        if self._poll == 0:
            raise ConfigurationError("http: poll must be a millisecond at least")
        super().__init__(format, restore, f"http {shown_url(url)}")

    def connect(self, context: ConnectorContext) -> Records:
        if self._poll is not None:
            return _Polls(self._url, self._headers, self._poll)
        try:
            return _Lines(open_url(self._url, self._headers, CONNECT_SECONDS))
        except urllib.error.HTTPError as error:
            with error:
                raise ConnectionError(Answer(error.code, {}, error.read()).shown) from None
        except http.client.HTTPException as error:
            raise ConnectionError(f"no answer of HTTP: {type(error).__name__}: {error}") from None

    def describe(self) -> str:
        return f"http({shown_url(self._url)})"


class _Lines:
    """The lines of an answer that still comes, empty ones left out; the elements of one that is a JSON array."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self._may_be_array = response.headers.get_content_type() == _JSON
        self._socket: socket.socket = response.fp.raw._sock
        self._socket.settimeout(None)

    def __iter__(self) -> Iterator[bytes]:
        with self._response:
            for line in self._response:
                if self._may_be_array and line.strip():
                    self._may_be_array = False
                    if line.lstrip()[:1] == b"[":
                        yield from _records(line + self._response.read())
                        break
                if record := line.rstrip(b"\r\n"):
                    yield record
            if self._response.length:
                # Lines are read to the end of the connection, which is not that of the answer.
                raise http.client.IncompleteRead(b"", self._response.length)

    def close(self) -> None:
        # Closing the response would wait for the thread that reads it.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


class _Polls:
    """The records of one answer after the other, until it is closed. The first poll is made at once."""

    def __init__(self, url: str, headers: Mapping[str, str], poll: float) -> None:
        self._url, self._headers, self._poll = url, dict(headers), poll
        self._closed = threading.Event()
        self._first: Answer | None = self._ask()

    def __iter__(self) -> Iterator[bytes]:
        answer = self._first
        self._first = None
        while answer is not None:
            if answer.status != _NOT_MODIFIED:
                yield from _records(answer.body)
            if self._closed.wait(self._poll):
                return
            answer = self._ask_patiently()

    def _ask_patiently(self) -> Answer:
        from tenacity import (
            Retrying,
            retry_if_exception_type,
            stop_after_attempt,
            stop_when_event_set,
            wait_exponential,
        )

        retrying = Retrying(
            retry=retry_if_exception_type(ConnectionError),
            stop=stop_after_attempt(_ATTEMPTS) | stop_when_event_set(self._closed),
            wait=wait_exponential(0.1),
            sleep=self._wait,
            reraise=True,
        )
        return retrying(self._ask)

    def _wait(self, seconds: float) -> None:
        self._closed.wait(seconds)

    def _ask(self) -> Answer:
        answer = ask(self._url, self._headers, CONNECT_SECONDS, is_closed=self._closed.is_set)
        if answer.status not in (200, _NOT_MODIFIED):
            raise ConnectionError(answer.shown)
        if etag := {name.lower(): value for name, value in answer.headers.items()}.get("etag"):
            self._headers["If-None-Match"] = etag
        return answer

    def close(self) -> None:
        self._closed.set()


def _records(body: bytes) -> list[bytes]:
    """The elements of a JSON array, or the lines that are not empty."""
    if body.lstrip()[:1] == b"[":
        # Lines may begin with a bracket too; the format then says what is wrong with one.
        with contextlib.suppress(ValueError, RecursionError):
            return _elements(body.decode("utf-8"))
    return [line for line in body.splitlines() if line]


def _elements(text: str) -> list[bytes]:
    """The elements of a JSON array as they stand there, numbers digit for digit.

    Raises:
        ValueError: the text is no JSON array.
    """
    json.loads(text)
    decoder, elements = json.JSONDecoder(), []
    place = _skip(text, text.index("[") + 1)
    while text[place] != "]":
        _, end = decoder.raw_decode(text, place)
        elements.append(text[place:end].encode("utf-8"))
        place = _skip(text, _skip(text, end) + (text[_skip(text, end)] == ","))
    return elements


def _skip(text: str, place: int) -> int:
    """The place of the next character that is no white space."""
    while text[place] in " \t\r\n":
        place += 1
    return place
