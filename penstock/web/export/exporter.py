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


class Exporter:
    """Remembers what was taken, and sends the rest.

    Args:
        options: where to.
    """

    def __init__(self, options: ExportOptions) -> None:
        self._options = options
        self._opener = urllib.request.build_opener(_NoRedirects)
        self._busy = threading.Lock()
        self._spans: set[str] = set()
        self._begun: set[str] = set()
        self._told: dict[str, tuple[str, float]] = {}
        self._metrics_at = -options.every
        self._retry_at: dict[str, float] = {}
        self._now = 0.0

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
        self._now = now
        if self._options.otlp is not None:
            self._send_metrics(self._options.otlp, views, now, now_ms)
            self._send_spans(self._options.otlp, views)
        if self._options.openlineage is not None:
            for view in views:
                self._send_lineage(self._options.openlineage, view, now, now_ms)
        known = {view.info.id for view in views}
        self._begun &= known
        self._told = {job: told for job, told in self._told.items() if job in known}

    def _send_metrics(self, url: str, views: Sequence[JobView], now: float, now_ms: int) -> None:
        if now - self._metrics_at >= self._options.every:
            since_ms = min((view.began_ms for view in views), default=now_ms)
            document = metrics_document(families_of(views), since_ms, now_ms)
            if self._post(f"{url.rstrip('/')}/v1/metrics", document, dict(self._options.otlp_headers)):
                self._metrics_at = now

    def _send_spans(self, url: str, views: Sequence[JobView]) -> None:
        spans = {span.key: span for view in views for span in spans_of(view.info)}
        # What no job knows any more is not offered again.
        self._spans &= spans.keys()
        new = [span for key, span in spans.items() if key not in self._spans]
        if new and self._post(f"{url.rstrip('/')}/v1/traces", spans_document(new), dict(self._options.otlp_headers)):
            self._spans.update(span.key for span in new)

    def _send_lineage(self, url: str, view: JobView, now: float, now_ms: int) -> None:
        info, namespace = view.info, self._options.namespace
        if not info.tasks and not info.status.ended:
            # It reads and writes nothing yet that could be told.
            return
        if info.id not in self._begun:
            if not self._post_event(url, begin_event(info, view.began_ms, namespace)):
                return
            self._begun.add(info.id)
        event = state_event(info, now_ms, namespace)
        kind, at = self._told.get(info.id, ("", -self._options.every))
        is_due = now - at >= self._options.every and not info.status.ended
        if (event["eventType"] != kind or is_due) and self._post_event(url, event):
            self._told[info.id] = (event["eventType"], now)

    def _post_event(self, url: str, event: Mapping[str, Any]) -> bool:
        key = self._options.openlineage_key
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return self._post(f"{url.rstrip('/')}/api/v1/lineage", event, headers)

    def _post(self, url: str, document: Mapping[str, Any], headers: Mapping[str, str]) -> bool:
        """Whether the receiver has taken the document; one that does not is left alone for a while."""
        if self._now < self._retry_at.get(url, self._now):
            return False
        content = json.dumps(document, allow_nan=False).encode()
        # The options take http and https alone.
        request = urllib.request.Request(url, content, {**headers, "Content-Type": "application/json"})  # noqa: S310
        try:
            with self._opener.open(request, timeout=_PATIENCE_SECONDS):
                self._retry_at.pop(url, None)
                return True
        except (OSError, HTTPException) as error:
            if url not in self._retry_at:
                _LOG.warning("%s does not take what is sent: %s; it is tried again", url, error)
            self._retry_at[url] = self._now + _RETRY_SECONDS
            return False
