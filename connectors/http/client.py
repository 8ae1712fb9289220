"""Requests over HTTP, and URLs in messages.

The HTTP source and the Elasticsearch sink call it. No message shows user, password, query or headers.
"""

from __future__ import annotations

import http.client
import re
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from penstock.engine.errors import ConfigurationError

ANSWER_SECONDS: Final = 60.0
"""How long an answer may take from its first byte to its last."""
_SHOWN: Final = 300
_BLANK: Final = re.compile(r"[\x00-\x20\x7f]")
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered.

    Args:
        status: such as 200.
        headers: by name.
        body: all of it.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def shown(self) -> str:
        """The status and the beginning of the body, for messages."""
        text = " ".join(self.body[:_SHOWN].decode("utf-8", "replace").split())
        return f"HTTP {self.status}: {text}" if text else f"HTTP {self.status}"


def check_url(url: str, schemes: Sequence[str], where: str) -> None:
    """Refuse what is no URL with one of the schemes; a fragment is no part of one.

    Raises:
        ConfigurationError: shows nothing of it, as it may hold a password.
    """
    help_text = (
        f"{where}: the url cannot be read; give {schemes[0]}://host:port/path, or {schemes[-1]}:// for TLS, with "
        "blanks and special characters percent-encoded (urllib.parse.quote)"
    )
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except (ValueError, TypeError, AttributeError):
        raise ConfigurationError(help_text) from None
    if parts.scheme not in schemes or not host or parts.netloc.count("@") > 1:
        raise ConfigurationError(help_text)
    # The libraries refuse these in words that show the query.
    unsafe = _BLANK.search(url) or parts.fragment
    if unsafe or ("http" in schemes and not (parts.path + parts.query).isascii()):
        raise ConfigurationError(help_text)


def check_headers(headers: Mapping[str, str], where: str) -> None:
    """Refuse headers that cannot be sent.

    Raises:
        ConfigurationError: names the header, and shows no value, as it may be a password.
    """
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise ConfigurationError(f"{where}: headers: a name is none that a header can have; give {{name: value}}")
        if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
            raise ConfigurationError(
                f"{where}: the value of header {name!r} cannot be sent: it must be one line of text in Latin-1; take "
                "off a newline at its end"
            )


def shown_url(url: str) -> str:
    """The URL without user, password, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def ask(
    url: str,
    headers: Mapping[str, str],
    timeout: float,
    body: bytes | None = None,
    is_closed: Callable[[], bool] = lambda: False,
) -> Answer:
    """The answer to a GET, or to a POST of `body`, whatever its status.

    Args:
        url: user and password in it become an Authorization header.
        timeout: seconds for each step of the exchange.
        is_closed: asked now and then: whether nobody waits for the answer any more.

    Raises:
        ConnectionError: the server cannot be reached, or its answer breaks off or has not ended within a minute.
    """
    try:
        try:
            response = open_url(url, headers, timeout, body)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            return Answer(response.status, dict(response.headers), _whole(response, is_closed))
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        text = " ".join(str(reason).split()) or type(reason).__name__
        raise ConnectionError(f"{shown_url(url)} cannot be reached: {text}") from None


def _whole(response: Any, is_closed: Callable[[], bool]) -> bytes:
    """The body of an answer, which may never end."""
    end, parts = time.monotonic() + ANSWER_SECONDS, []
    while part := response.read1(_CHUNK):
        parts.append(part)
        if is_closed():
            raise ConnectionError("it was closed")
        if time.monotonic() > end:
            raise ConnectionError(f"its answer has not ended after {ANSWER_SECONDS:g} s")
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    return b"".join(parts)


def open_url(url: str, headers: Mapping[str, str], timeout: float, body: bytes | None = None) -> Any:
    """The answer as a file, to be closed; its body has not been read.

    Raises:
        urllib.error.HTTPError: a status of 400 or more, or 304; to be closed.
        OSError: the server cannot be reached.
    """
    parts = urlsplit(url)
    all_headers = dict(headers)
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        all_headers["Authorization"] = "Basic " + b64encode(pair.encode("utf-8")).decode("ascii")
    bare = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, parts.query, ""))
    # `check_url` has let http and https pass alone.
    request = urllib.request.Request(bare, body)  # noqa: S310
    for name, value in all_headers.items():
        # Headers may hold credentials, which another server that this one redirects to must not get.
        request.add_unredirected_header(name, value)
    return urllib.request.urlopen(request, timeout=timeout)  # noqa: S310
