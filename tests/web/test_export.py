"""What receivers of OpenTelemetry and OpenLineage get, on loopback: each thing once, and again where they were away."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from penstock.engine.connectors import Dataset
from penstock.engine.errors import ConfigurationError
from penstock.engine.job.info import OperatorInfo, RestartInfo
from penstock.engine.job.status import JobStatus
from penstock.web.export.exporter import Exporter
from penstock.web.export.options import ExportOptions, export_options
from penstock.web.observed import JobView
from tests.web.fakes import ORDERS, viewed

READS, WRITES = Dataset("kafka://broker:9092", "orders"), Dataset("s3://lake", "totals")


@dataclass
class Receiver:
    """Keeps what it is sent, by path; refuses it while `away`, and sends it elsewhere while it has `moved`."""

    url: str = ""
    away: bool = False
    moved: bool = False
    got: dict[str, list[Any]] = field(default_factory=dict)
    headers: list[dict[str, str]] = field(default_factory=list)

    def take(self, path: str) -> list[Any]:
        return self.got.pop(path, [])


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    kept = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            if not kept.away:
                kept.got.setdefault(self.path, []).append(json.loads(content))
                kept.headers.append(dict(self.headers))
            self.send_response(503 if kept.away else 301 if kept.moved else 200)
            self.send_header("Location", f"{kept.url}/elsewhere")
            self.end_headers()

        def do_GET(self) -> None:
            kept.got.setdefault(self.path, []).append(None)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    kept.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield kept
    server.shutdown()
    thread.join()
    server.server_close()


def lineage_job(**changes: Any) -> JobView:
    """The job `orders`, which reads a topic and writes a folder."""
    source, sink = ORDERS.tasks
    tasks = (
        replace(source, operators=(OperatorInfo("events", "src", reads=(READS, READS)),)),
        replace(sink, operators=(OperatorInfo("count", "totals"), OperatorInfo("sink", "out", writes=(WRITES,)))),
    )
    return viewed(replace(ORDERS, tasks=tasks, **changes))


def by_name(values: list[dict[str, Any]]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in values}


def test_metrics_are_those_of_prometheus_and_come_once_a_minute(receiver: Receiver) -> None:
    exporter = Exporter(ExportOptions(otlp=receiver.url))
    for now in (0.0, 2.0, 60.0):
        exporter.send([viewed()], now, 30_000)
    first, second = receiver.take("/v1/metrics")
    assert first == second
    resource, scope = first["resourceMetrics"][0]["resource"], first["resourceMetrics"][0]["scopeMetrics"][0]
    assert by_name(resource["attributes"])["service.name"] == "penstock"
    metrics = {one["name"]: one for one in scope["metrics"]}
    rows = metrics["penstock_operator_rows_out"]["sum"]
    assert (rows["isMonotonic"], rows["aggregationTemporality"]) == (True, 2)
    told = {by_name(point["attributes"])["operator"]: point["asDouble"] for point in rows["dataPoints"]}
    assert told == {"0: events": 2000.0, "0: count": 2000.0, "1: sink": 2000.0}
    assert rows["dataPoints"][0]["timeUnixNano"] == "30000000000"
    assert metrics["penstock_job_last_checkpoint_duration_seconds"]["unit"] == "s"
    assert metrics["penstock_job_up"]["gauge"]["dataPoints"][0]["asDouble"] == 1.0


def test_a_histogram_is_one_summary_and_what_is_no_number_is_left_out(receiver: Receiver) -> None:
    view = viewed()
    group = view.tasks[1].subtasks[0].metrics.operators[0][1]
    group.histogram("sizes").update_many([1.0, 2.0, 3.0])
    group.gauge("nothing")
    Exporter(ExportOptions(otlp=receiver.url)).send([view], 0.0, 30_000)
    metrics = receiver.take("/v1/metrics")[0]["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    named = {one["name"]: one for one in metrics}
    (point,) = named["penstock_user_sizes"]["summary"]["dataPoints"]
    assert (point["count"], point["sum"]) == ("3", 6.0)
    assert [one["quantile"] for one in point["quantileValues"]] == [0.5, 0.95, 0.99]
    assert named["penstock_user_nothing"]["gauge"]["dataPoints"] == []


def test_checkpoints_restarts_and_rescales_are_spans_and_each_is_sent_once(receiver: Receiver) -> None:
    restarts = (
        RestartInfo("failure", "the process died", 5_000, attempt=2, checkpoint=7, restore_ms=40.0),
        RestartInfo("rescale", "parallelism 3", 6_000, restore_ms=20.0),
        RestartInfo("failure", "under way", 7_000),
    )
    exporter, job = Exporter(ExportOptions(otlp=receiver.url)), lineage_job(restart_history=restarts)
    for now in (0.0, 2.0):
        exporter.send([job], now, 30_000)
    (document,) = receiver.take("/v1/traces")
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert [span["name"] for span in spans] == ["Checkpoint"] * 3 + ["JobInitialization", "Rescale"]
    completed, _, failed, restart, _ = spans
    assert (completed["startTimeUnixNano"], completed["endTimeUnixNano"]) == ("1000000000", "1250000000")
    assert by_name(completed["attributes"]).items() >= {"checkpointId": "7", "jobName": "orders"}.items()
    assert (completed["status"]["code"], failed["status"]) == (1, {"code": 2, "message": "no disk"})
    assert by_name(restart["attributes"])["cause"] == "the process died"
    assert len({span["spanId"] for span in spans}) == len({span["traceId"] for span in spans}) == 5
    assert {(len(span["traceId"]), len(span["spanId"])) for span in spans} == {(32, 16)}
    Exporter(ExportOptions(otlp=receiver.url)).send([job], 0.0, 30_000)
    assert receiver.take("/v1/traces") == [document]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(JobStatus.FINISHED, "COMPLETE"), (JobStatus.CANCELLED, "ABORT"), (JobStatus.FAILED, "FAIL")],
)
def test_a_run_is_told_from_its_start_to_its_end(receiver: Receiver, status: JobStatus, kind: str) -> None:
    exporter = Exporter(ExportOptions(openlineage=receiver.url, openlineage_key="k", namespace="shop"))
    running = lineage_job()
    error = "no number\nline 3" if status is JobStatus.FAILED else None
    ended = lineage_job(status=status, since_ms=40_000, error=error)
    for now, view in ((0.0, running), (2.0, running), (70.0, running), (72.0, ended), (200.0, ended)):
        exporter.send([view], now, 30_000)
    events = receiver.take("/api/v1/lineage")
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "RUNNING", kind]
    assert len({event["run"]["runId"] for event in events}) == 1
    assert {(event["job"]["namespace"], event["job"]["name"]) for event in events} == {("shop", "orders")}
    for event in events:
        assert event["inputs"] == [{"namespace": "kafka://broker:9092", "name": "orders"}]
        assert event["outputs"] == [{"namespace": "s3://lake", "name": "totals"}]
    assert events[-1]["eventTime"] == "1970-01-01T00:00:40+00:00"
    told = events[-1]["run"]["facets"].get("errorMessage", {}).get("message")
    assert told == ("no number" if error else None)
    assert receiver.headers[0]["Authorization"] == "Bearer k"


def test_what_a_receiver_does_not_take_comes_when_it_is_back(receiver: Receiver) -> None:
    exporter = Exporter(ExportOptions(receiver.url, (("X-Tenant", "shop"),), receiver.url))
    receiver.away = True
    exporter.send([lineage_job()], 0.0, 30_000)
    receiver.away = False
    exporter.send([lineage_job()], 5.0, 30_000)
    assert not receiver.got
    exporter.send([lineage_job()], 15.0, 30_000)
    assert set(receiver.got) == {"/v1/metrics", "/v1/traces", "/api/v1/lineage"}
    assert len(receiver.got["/api/v1/lineage"]) == 2
    assert receiver.headers[0]["X-Tenant"] == "shop"


def test_a_redirect_is_not_followed_for_it_would_carry_keys_elsewhere(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    exporter = Exporter(ExportOptions(otlp=receiver.url, otlp_headers=(("X-Key", "k"),)))
    receiver.moved = True
    exporter.send([lineage_job()], 0.0, 30_000)
    assert "/elsewhere" not in receiver.got
    assert "does not take what is sent: HTTP Error 301" in caplog.text
    receiver.moved, receiver.got = False, {}
    exporter.send([lineage_job()], 15.0, 30_000)
    assert set(receiver.got) == {"/v1/metrics", "/v1/traces"}


def test_nobody_waits_for_a_receiver_and_its_outage_ends_nothing(receiver: Receiver) -> None:
    exporter = Exporter(ExportOptions(otlp=receiver.url))
    exporter.offer([viewed()])
    (thread,) = [one for one in threading.enumerate() if one.name == "export"] or [threading.current_thread()]
    if thread is not threading.current_thread():
        thread.join()
    assert len(receiver.got["/v1/metrics"]) == 1


def test_options_come_from_the_variables_that_others_read_too() -> None:
    environment = {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b, x=1", "OPENLINEAGE_API_KEY": "secret"}
    options = export_options("http://127.0.0.1:4318", "", environment)
    assert (options.otlp_headers, options.openlineage) == ((("api-key", "a b"), ("x", "1")), None)
    assert "secret" not in repr(options)
    assert "a b" not in repr(options)
    assert not export_options(None, None, {}).is_wanted
    for address in ("file:///etc/passwd", "http://host:port", "http://a b"):
        with pytest.raises(ConfigurationError, match="--otlp must be a URL"):
            export_options(address, None, {})
    with pytest.raises(ConfigurationError, match="--openlineage must be without user and password") as raised:
        export_options(None, "http://me:secret@host", {})
    assert "secret" not in str(raised.value)
    for headers in ("oops", "key=a%0d%0ab"):
        with pytest.raises(ConfigurationError, match="name=value"):
            export_options(None, None, {"OTEL_EXPORTER_OTLP_HEADERS": headers})
