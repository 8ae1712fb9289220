"""Metrics and spans as OpenTelemetry's protocol has them: the JSON of OTLP over HTTP, which needs no library.

The exporter posts it. Metrics are those of Prometheus, under the same names without `_total`.

Source of the form: the OpenTelemetry specification, "OTLP/HTTP", "JSON Protobuf encoding", and its `.proto` files.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

from penstock.web.export.spans import Span, Value
from penstock.web.prometheus import Family, Sample

_CUMULATIVE: Final = 2
_INTERNAL: Final = 1
_OK: Final = 1
_ERROR: Final = 2


def metrics_document(families: Iterable[Family], since_ms: int, now_ms: int) -> dict[str, Any]:
    """An `ExportMetricsServiceRequest`.

    Args:
        families: what to send.
        since_ms: civil time since when counters may have counted.
        now_ms: civil time of the values.
    """
    times = {"startTimeUnixNano": _nanoseconds(since_ms), "timeUnixNano": _nanoseconds(now_ms)}
    metrics = [_metric(family, times) for family in families]
    return {"resourceMetrics": [{"resource": _resource(), "scopeMetrics": [{"scope": _scope(), "metrics": metrics}]}]}


def spans_document(spans: Iterable[Span]) -> dict[str, Any]:
    """An `ExportTraceServiceRequest`."""
    made = [_span(span) for span in spans]
    return {"resourceSpans": [{"resource": _resource(), "scopeSpans": [{"scope": _scope(), "spans": made}]}]}


def _metric(family: Family, times: Mapping[str, str]) -> dict[str, Any]:
    name = family.name.removesuffix("_total")
    unit = next((unit for end, unit in (("_seconds", "s"), ("_bytes", "By")) if name.endswith(end)), "1")
    head = {"name": name, "description": family.meaning, "unit": unit}
    if family.kind == "summary":
        return {**head, "summary": {"dataPoints": _summaries(family.samples, times)}}
    points = [
        {"attributes": _attributes(one.labels), **times, "asDouble": float(one.value)}
        for one in family.samples
        if math.isfinite(one.value)
    ]
    if family.kind == "counter":
        return {**head, "sum": {"dataPoints": points, "aggregationTemporality": _CUMULATIVE, "isMonotonic": True}}
    return {**head, "gauge": {"dataPoints": points}}


def _summaries(samples: Sequence[Sample], times: Mapping[str, str]) -> list[dict[str, Any]]:
    """One point for each set of labels: its quantiles, sum and count are samples of their own in Prometheus."""
    points: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for one in samples:
        if not math.isfinite(one.value):
            continue
        labels = {label: text for label, text in one.labels.items() if label != "quantile"}
        point = points.setdefault(
            tuple(labels.items()), {"attributes": _attributes(labels), **times, "quantileValues": []}
        )
        match one.suffix:
            case "_sum":
                point["sum"] = float(one.value)
            case "_count":
                point["count"] = str(int(one.value))
            case _:
                point["quantileValues"].append({"quantile": float(one.labels["quantile"]), "value": float(one.value)})
    return list(points.values())


def _span(span: Span) -> dict[str, Any]:
    status = {"code": _OK} if span.error is None else {"code": _ERROR, "message": span.error}
    return {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "name": span.name,
        "kind": _INTERNAL,
        "startTimeUnixNano": _nanoseconds(span.start_ms),
        "endTimeUnixNano": _nanoseconds(span.end_ms),
        "attributes": _attributes(span.attributes),
        "status": status,
    }


def _resource() -> dict[str, Any]:
    return {"attributes": _attributes({"service.name": "penstock", "service.version": version("penstock")})}


def _scope() -> dict[str, str]:
    return {"name": "penstock", "version": version("penstock")}


def _attributes(values: Mapping[str, Value]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in values.items()]


def _value(value: Value) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            # 64-bit numbers are texts in the JSON of protocol buffers.
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case _:
            return {"stringValue": value}


def _nanoseconds(time_ms: int) -> str:
    return str(time_ms * 1_000_000)
