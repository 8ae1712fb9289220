"""What operators of bounded input have in common: they give their rows when the last one has come."""

from __future__ import annotations

from abc import abstractmethod

from penstock.engine.elements import MAX_TIMESTAMP, Watermark, WatermarkStatus
from penstock.engine.operators.base import Collector, Operator


class EmitsAtEnd(Operator):
    """Holds event time back, and emits before the last watermark passes, or when the input ends without one.

    Rows of any time may be among the results, and behind that watermark they would be late.
    """

    @abstractmethod
    def emit(self, out: Collector) -> None:
        """Give all rows and hold none; called again, it gives none."""

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        if watermark.timestamp < MAX_TIMESTAMP:
            return None
        self.emit(out)
        return watermark

    def on_watermark_status(self, status: WatermarkStatus, out: Collector) -> WatermarkStatus | None:
        """Idle or not, event time waits here for the end."""
        return None

    def finish(self, out: Collector) -> None:
        self.emit(out)
