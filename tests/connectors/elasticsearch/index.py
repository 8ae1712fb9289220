"""A server of the standard library that speaks the bulk API, since no Elasticsearch can be had here."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.connectors.http.servers import answer


class Index:
    """What a cluster with one index does with bulk requests.

    Attributes:
        documents: by id.
        busy: how many of the next actions it has no room for.
        sizes: of the requests, in bytes.
        is_blocked: whether it may be read only, as where its disk is full.
    """

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {}
        self.busy = 0
        self.busy_requests = 0
        self.sizes: list[int] = []
        self.token: str | None = None
        self.is_blocked = False
        self._lock = threading.Lock()

    def respond(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        if self.token is not None and request.headers["Authorization"] != f"ApiKey {self.token}":
            answer(request, b'{"error": "who are you?"}', 401)
        elif request.path == "/":
            answer(request, b'{"tagline": "You Know, for Search"}')
        elif request.path != "/_bulk" or request.headers["Content-Type"] != "application/x-ndjson":
            answer(request, b"no such path", 400)
        else:
            with self._lock:
                self._bulk(request, body)

    def _bulk(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        assert body.endswith(b"\n")
        if self.busy_requests:
            self.busy_requests -= 1
            answer(request, b"too many requests", 429)
            return
        self.sizes.append(len(body))
        lines, items = iter(body.splitlines()), []
        for line in lines:
            ((action, target),) = json.loads(line).items()
            assert target["_index"] == "clicks"
            items.append({action: self._do(action, target["_id"], lines)})
        answer(request, json.dumps({"errors": True, "items": items}).encode())

    def _do(self, action: str, name: str, lines: Iterator[bytes]) -> dict[str, Any]:
        document = None if action == "delete" else json.loads(next(lines))
        if self.busy:
            self.busy -= 1
            return {"status": 429, "error": {"type": "es_rejected_execution_exception", "reason": "full"}}
        if self.is_blocked:
            blocked = "index [clicks] blocked by: [FORBIDDEN/12/index read-only / allow delete (api)];"
            return {"status": 403, "error": {"type": "cluster_block_exception", "reason": blocked}}
        if document is None:
            return {"status": 200 if self.documents.pop(name, None) is not None else 404}
        if document.get("v") == "refuse me":
            return {"status": 400, "error": {"type": "mapper_parsing_exception", "reason": "failed to parse [v]"}}
        self.documents[name] = document
        return {"status": 201}
