"""A server that gives the lines which are posted to it to whoever reads them: `POST /events`, `GET /events`.

`perf/run.py end_to_end` starts it between locust, which posts, and the job's `HttpSource`, which reads one answer
without end. What is posted while nobody reads is dropped.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

PATH: Final = "/events"
_WAIT_SECONDS: Final = 0.2


class _Feed(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.readers: list[queue.SimpleQueue[bytes]] = []
        self.closing = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Feed

    def do_POST(self) -> None:
        """Take lines."""
        lines = self.rfile.read(int(self.headers["Content-Length"]))
        for reader in self.server.readers:
            reader.put(lines)
        self.send_response(204)
        self.end_headers()

    def do_GET(self) -> None:
        """Give all that is posted from now on."""
        mine: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Connection", "close")
        self.end_headers()
        self.server.readers.append(mine)
        try:
            while not self.server.closing.is_set():
                try:
                    self.wfile.write(mine.get(timeout=_WAIT_SECONDS))
                    self.wfile.flush()
                except queue.Empty:
                    continue
        except OSError:
            pass  # The reader has gone.
        finally:
            self.server.readers.remove(mine)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """A line for each post would be most of the work."""


@contextmanager
def event_feed() -> Iterator[str]:
    """A feed on a free port of this machine; its address, without the path."""
    feed = _Feed()
    thread = threading.Thread(target=feed.serve_forever, name="event-feed")
    thread.start()
    try:
        yield f"http://127.0.0.1:{feed.server_port}"
    finally:
        feed.closing.set()
        feed.shutdown()
        thread.join()
        feed.server_close()
