"""Sends what is observed to OpenTelemetry and OpenLineage, in a thread of its own, so that nobody waits for it.

The collector offers each reading. What a receiver does not take is offered to it again some seconds later; nothing is
queued but what jobs know themselves, so an outage costs no memory. Metrics have no past: only the newest are sent.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Final

from penstock.web.export.lineage import begin_event, state_event
from penstock.web.export.options import ExportOptions
from penstock.web.export.otlp import metrics_document, spans_document
from penstock.web.export.spans import spans_of
from penstock.web.observed import JobView
from penstock.web.prometheus import families_of

_LOG = logging.getLogger(__name__)
_PATIENCE_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 15.0


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: it would make a POST a GET, and carry keys to another server."""

    def redirect_request(self, *_: object) -> None:
        return None


class _Receiver:
    """One address that takes documents; one that does not is left alone for a while.

    Args:
        url: of the server.
        path: below it.
        headers: of each request.
    """

    def __init__(self, url: str, path: str, headers: Mapping[str, str]) -> None:
        self._url = url.rstrip("/") + path
        self._headers = {**headers, "Content-Type": "application/json"}
        self._opener = urllib.request.build_opener(_NoRedirects)
        self._retry_at: float | None = None

    def takes(self, document: Mapping[str, Any], now: float) -> bool:
        """Whether it has taken the document."""
        if self._retry_at is not None and now < self._retry_at:
            return False
        content = json.dumps(document, allow_nan=False).encode()
        # The options take http and https alone.
        request = urllib.request.Request(self._url, content, self._headers)  # noqa: S310
        try:
            with self._opener.open(request, timeout=_PATIENCE_SECONDS):
                self._retry_at = None
                return True
        except (OSError, HTTPException) as error:
            if self._retry_at is None:
                _LOG.warning("%s does not take what is sent: %s; it is tried again", self._url, error)
            self._retry_at = now + _RETRY_SECONDS
            return False


class _Telemetry:
    """Sends metrics each `every` seconds, and each span once."""

    def __init__(self, url: str, headers: Mapping[str, str], every: float) -> None:
        self._metrics = _Receiver(url, "/v1/metrics", headers)
        self._traces = _Receiver(url, "/v1/traces", headers)
        self._every = every
        self._metrics_at = -every
        self._spans: set[str] = set()

    def send(self, views: Sequence[JobView], now: float, now_ms: int) -> None:
        """Send what is due; arguments as for `Exporter.send`."""
        if now - self._metrics_at >= self._every:
            since_ms = min((view.began_ms for view in views), default=now_ms)
            if self._metrics.takes(metrics_document(families_of(views), since_ms, now_ms), now):
                self._metrics_at = now
        spans = {span.key: span for view in views for span in spans_of(view.info)}
        # What no job knows any more is not offered again.
        self._spans &= spans.keys()
        new = [span for key, span in spans.items() if key not in self._spans]
        if new and self._traces.takes(spans_document(new), now):
            self._spans.update(span.key for span in new)


@dataclass(slots=True)
class _Sent:
    """What a lineage server knows of a job: the kind of the last event, and when that was sent; at first its begin."""

    kind: str
    at: float


class _Lineage:
    """Sends the begin of each job, what becomes of it, and a sign of life each `every` seconds."""

    def __init__(self, url: str, key: str | None, namespace: str, every: float) -> None:
        self._receiver = _Receiver(url, "/api/v1/lineage", {} if key is None else {"Authorization": f"Bearer {key}"})
        self._namespace = namespace
        self._every = every
        self._sent: dict[str, _Sent] = {}

    def send(self, views: Sequence[JobView], now: float, now_ms: int) -> None:
        """Send what is due; arguments as for `Exporter.send`."""
        for view in views:
            self._send_job(view, now, now_ms)
        known = {view.info.id for view in views}
        self._sent = {job: sent for job, sent in self._sent.items() if job in known}

    def _send_job(self, view: JobView, now: float, now_ms: int) -> None:
        info = view.info
        if not info.tasks and not info.status.ended:
            # It reads and writes nothing yet that could be sent.
            return
        if info.id not in self._sent:
            if not self._receiver.takes(begin_event(info, view.began_ms, self._namespace), now):
                return
            self._sent[info.id] = _Sent("", now - self._every)
        sent, event = self._sent[info.id], state_event(info, now_ms, self._namespace)
        is_due = now - sent.at >= self._every and not info.status.ended
        if (event["eventType"] != sent.kind or is_due) and self._receiver.takes(event, now):
            sent.kind, sent.at = event["eventType"], now


class Exporter:
    """Remembers what was taken, and sends the rest.

    Args:
        options: where to.
    """

    def __init__(self, options: ExportOptions) -> None:
        self._senders: list[_Telemetry | _Lineage] = []
        if options.otlp is not None:
            self._senders.append(_Telemetry(options.otlp, dict(options.otlp_headers), options.every))
        if options.openlineage is not None:
            key, namespace = options.openlineage_key, options.namespace
            self._senders.append(_Lineage(options.openlineage, key, namespace, options.every))
        self._busy = threading.Lock()

    def offer(self, views: Sequence[JobView]) -> None:
        """Send in another thread what is new; where the last sending is not over, the next reading will do."""
        if self._busy.acquire(blocking=False):
            threading.Thread(target=self._send_and_release, args=(views,), name="export", daemon=True).start()

    def _send_and_release(self, views: Sequence[JobView]) -> None:
        try:
            self.send(views, time.monotonic(), time.time_ns() // 1_000_000)
        except Exception:
            # Those who only watch end nothing.
            _LOG.exception("what was observed cannot be sent")
        finally:
            self._busy.release()

    def send(self, views: Sequence[JobView], now: float, now_ms: int) -> None:
        """Send what is new.

        Args:
            views: all jobs.
            now: monotonic seconds.
            now_ms: civil time.
        """
        for sender in self._senders:
            sender.send(views, now, now_ms)
