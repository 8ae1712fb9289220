"""The WebSocket source: each message of a server is a record.

Programs build a `WebSocketSource`; one subtask connects and reads. The library is websockets.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from penstock.connectors.http.client import check_headers, check_url, shown_url
from penstock.connectors.live import CONNECT_SECONDS, LiveSource, Records, Restore
from penstock.connectors.records.format import RecordFormat
from penstock.engine.connectors import ConnectorContext
from penstock.engine.errors import ConfigurationError

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

_CLOSE_SECONDS: Final = 1.0
"""How long the server may take to say goodbye."""


class WebSocketSource(LiveSource):
    """Connects to a WebSocket and reads its messages, text or binary; ends when the server closes as agreed.

    Guarantee: none over a failure, because the server sends each message once. So a job with checkpoints refuses it,
    unless `restore="skip"` says that what is sent between a failure and the next connection may be lost (at most once;
    messages that were read behind the last checkpoint are lost too). One subtask reads.

    Args:
        url: `ws://host:port/path` or `wss://...`; what stands behind `?`, and user and password, are never shown.
        format: how a message becomes a row, such as `JsonFormat({...})`.
        subscribe: messages that are sent once the connection stands, such as the channels to be told of.
        headers: of the request that opens the connection, such as `{"Authorization": "Bearer ..."}`; never shown.
        restore: "refuse" or "skip".

    Raises:
        ConfigurationError: no such URL, or a header that cannot be sent.

    Example:
        >>> from penstock.connectors.records import JsonFormat
        >>> trades = WebSocketSource("wss://feed.example/v1", format=JsonFormat({"price": "float64"}))
    """

    def __init__(
        self,
        url: str,
        *,
        format: RecordFormat,  # noqa: A002 - the word users look for
        subscribe: Sequence[str | bytes] = (),
        headers: Mapping[str, str] | None = None,
        restore: Restore = "refuse",
    ) -> None:
        check_url(url, ("ws", "wss"), "websocket")
        check_headers(headers or {}, "websocket")
        self._url, self._subscribe, self._headers = url, tuple(subscribe), dict(headers or {})
        super().__init__(format, restore, f"websocket {shown_url(url)}")

    def connect(self, context: ConnectorContext) -> Records:
        try:
            from websockets.exceptions import InvalidProxy, InvalidURI, WebSocketException
            from websockets.sync.client import connect
        except ImportError:
            raise ConfigurationError(
                "websocket: websockets is not installed; install it by `pip install 'penstock[websocket]'`, on every "
                "node"
            ) from None
        with ExitStack() as opened:
            try:
                connection = opened.enter_context(
                    connect(
                        self._url,
                        open_timeout=CONNECT_SECONDS,
                        close_timeout=_CLOSE_SECONDS,
                        additional_headers=self._headers,
                        max_size=None,
                        logger=_quiet_logger(),
                    )
                )
                for message in self._subscribe:
                    connection.send(message)
            except (InvalidURI, InvalidProxy) as error:
                # Their texts are URLs with all that they hold.
                which = "the proxy's url" if isinstance(error, InvalidProxy) else "the url"
                raise ConnectionError(f"{which} cannot be used: {error.msg}") from None
            except WebSocketException as error:
                raise ConnectionError(str(error)) from None
            return _Messages(connection, opened.pop_all())

    def describe(self) -> str:
        return f"websocket({shown_url(self._url)})"


def _quiet_logger() -> logging.Logger:
    """One that tells no details, for the library's are the request with its headers and query."""
    logger = logging.getLogger("websockets.client.penstock")
    logger.setLevel(logging.INFO)
    return logger


class _Messages:
    """The messages of a connection, as bytes.

    Args:
        opened: closes it.
    """

    def __init__(self, connection: ClientConnection, opened: ExitStack) -> None:
        self._connection, self._opened = connection, opened

    def __iter__(self) -> Iterator[bytes]:
        for message in self._connection:
            yield message.encode("utf-8") if isinstance(message, str) else message

    def close(self) -> None:
        self._opened.close()
