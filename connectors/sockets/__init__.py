"""Sockets and WebSockets as sources.

Programs use the two classes; `live.py` is what they share with streams over HTTP.
"""

from penstock.connectors.sockets.text import SocketTextSource
from penstock.connectors.sockets.web_socket import WebSocketSource

__all__ = ["SocketTextSource", "WebSocketSource"]
