"""Flink's paths: what its clients read of a job, and the operations that they begin and poll."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from penstock.actors.info import shown_settings
from penstock.engine.autoscaler.report import AutoscalerInfo, ScalingRecord
from penstock.engine.checkpoint_config import CheckpointConfig, FailoverConfig, FixedDelay
from penstock.engine.config import JobConfig
from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, LatencyMarker
from penstock.engine.job.status import JobStatus
from penstock.web.cluster import Node, Reading
from penstock.web.security import REQUEST_HEADER, Role
from tests.web.conftest import Serve
from tests.web.fakes import ORDERS, FakeCluster, orders_metrics

ASK = {REQUEST_HEADER: "1"}
JOB = "/jobs/orders-1"


def outcome(client: TestClient, path: str, trigger: str) -> dict[str, Any]:
    """Poll as Flink's clients do."""
    while True:
        answer: dict[str, Any] = client.get(f"{path}/{trigger}").json()
        if answer["status"]["id"] == "COMPLETED":
            return answer
        time.sleep(0)


def test_the_overviews_count_jobs_and_slots(serve: Serve) -> None:
    client = serve()
    overview = client.get("/overview").json()
    assert (overview["taskmanagers"], overview["slots-total"], overview["slots-available"]) == (1, 4, 1)
    assert overview["jobs-running"] == 1
    (job,) = client.get("/v1/jobs/overview").json()["jobs"]
    assert (job["jid"], job["name"], job["state"], job["tasks"]["running"]) == ("orders-1", "orders", "RUNNING", 3)
    assert client.get("/jobs").json() == {"jobs": [{"id": "orders-1", "status": "RUNNING"}]}


def test_nodes_that_have_gone_are_no_task_managers(serve: Serve, cluster: FakeCluster) -> None:
    gone = Node("n2", "10.0.0.2", 8.0, 8.0, 1 << 30, False)
    cluster.nodes = lambda: [Node("n1", "10.0.0.1", 4.0, 1.0, 1 << 30), gone]  # type: ignore[method-assign]
    client = serve()
    assert [one["id"] for one in client.get("/taskmanagers").json()["taskmanagers"]] == ["n1"]
    asked = ("numRegisteredTaskManagers", "taskSlotsTotal", "taskSlotsAvailable")
    told = client.get(f"/jobmanager/metrics?get={','.join(asked)}").json()
    assert [one["value"] for one in told] == ["1", "4", "1"]
    (slots,) = client.get("/taskmanagers/metrics?get=Status.Slots.Total").json()
    assert (slots["min"], slots["sum"]) == (4, 4)


def test_a_job_has_its_vertices_and_the_plan_that_joins_them(serve: Serve) -> None:
    job = serve().get(JOB).json()
    assert [(one["id"], one["name"], one["parallelism"]) for one in job["vertices"]] == [
        ("1", "events", 1),
        ("2", "count -> sink", 2),
    ]
    assert job["vertices"][1]["metrics"]["read-records"] == 1000
    assert job["plan"]["nodes"][1]["inputs"][0] == {
        "num": 0,
        "id": "1",
        "ship_strategy": "HASH",
        "exchange": "pipelined_bounded",
    }
    assert job["timestamps"]["RUNNING"] == 10_000


def test_checkpoints_have_their_outcome_and_where_they_are(serve: Serve) -> None:
    client = serve()
    found = client.get(f"{JOB}/checkpoints").json()
    assert found["counts"] == {"restored": 0, "total": 3, "in_progress": 0, "completed": 2, "failed": 1}
    assert [one["id"] for one in found["history"]] == [9, 8, 7]
    assert found["latest"]["savepoint"]["external_path"] == "file:///s/savepoint-8"
    assert found["latest"]["failed"]["failure_message"] == "no disk"
    assert found["summary"]["state_size"]["max"] == 5000
    assert client.get(f"{JOB}/checkpoints/details/7").json()["status"] == "COMPLETED"
    assert client.get(f"{JOB}/checkpoints/details/70").status_code == 404
    assert client.get(f"{JOB}/checkpoints/config").json()["interval"] == 1000


@pytest.mark.parametrize(
    ("config", "strategy"),
    [
        (JobConfig(), "none"),
        (JobConfig(failover=FailoverConfig(FixedDelay(2, 50))), "fixed-delay (attempts 2, delay_ms 50)"),
        (
            JobConfig(checkpoints=CheckpointConfig(1000, "file:///c")),
            "exponential-delay (initial_ms 100, largest_ms 60000, factor 2.0, reset_after_ms 600000, jitter 0.1, "
            "attempts None)",
        ),
    ],
)
def test_the_restart_strategy_is_the_one_that_the_job_has(
    serve: Serve, cluster: FakeCluster, config: JobConfig, strategy: str
) -> None:
    cluster.readings = [Reading(replace(ORDERS, settings=tuple(shown_settings(config))), [])]
    shown = serve().get(f"{JOB}/config").json()["execution-config"]
    assert shown["restart-strategy"] == strategy
    assert shown["user-config"]["failover.restart"] == strategy.partition(" ")[0]


def test_exceptions_are_those_that_the_job_got_over_in_whatever_it_was_restarted_for(serve: Serve) -> None:
    found = serve().get(f"{JOB}/exceptions").json()
    names = [entry["exceptionName"] for entry in found["exceptionHistory"]["entries"]]
    assert names == ["no broker can be used", "the process died"]
    assert serve().get(f"{JOB}/exceptions?maxExceptions=0").json()["truncated"] is True


def test_metrics_are_listed_and_given_by_name_and_over_subtasks(serve: Serve) -> None:
    client, vertex = serve(), f"{JOB}/vertices/2"
    listed = [one["id"] for one in client.get(f"{vertex}/metrics").json()]
    assert {"0.numRecordsIn", "1.busyTimeMsPerSecond", "0.count.numRecordsOut"} <= set(listed)
    assert client.get(f"{vertex}/metrics?get=0.numRecordsIn,nothing").json() == [
        {"id": "0.numRecordsIn", "value": "500"}
    ]
    both = f"{vertex}/subtasks/metrics?get=numRecordsIn"
    assert client.get(both).json() == [{"id": "numRecordsIn", "min": 500, "max": 500, "avg": 500, "sum": 1000}]
    assert client.get(f"{both}&agg=sum").json() == [{"id": "numRecordsIn", "sum": 1000}]
    assert client.get(f"{JOB}/metrics?get=numRestarts").json() == [{"id": "numRestarts", "value": "1"}]
    assert client.get("/jobs/metrics?get=numberOfCompletedCheckpoints&agg=max").json() == [
        {"id": "numberOfCompletedCheckpoints", "max": 2}
    ]
    assert client.get("/jobmanager/metrics?get=numRunningJobs").json() == [{"id": "numRunningJobs", "value": "1"}]
    assert client.get(f"{vertex}/watermarks").json()[0] == {"id": "0.currentInputWatermark", "value": "1600000"}


def test_latencies_are_metrics_of_the_job_by_source_and_operator(serve: Serve, cluster: FakeCluster) -> None:
    read = orders_metrics(10)
    for age_ms in (10, 30):
        read[2].operators[1][1].note_latency(LatencyMarker("events", 1_000), 1_000 + age_ms)
    # Its first marker is being noted.
    read[2].operators[1][1].latency.histogram("begun")
    cluster.readings = [Reading(ORDERS, read)]
    client, path = serve(), "/jobs/orders-1/metrics"
    name = "latency.source_id.events.operator_id.sink.operator_subtask_index.1.latency_"
    there = [one["id"] for one in client.get(path).json() if one["id"].startswith("latency.")]
    assert {one.removeprefix(name) for one in there} == {"count", "min", "max", "mean", "median", "p50", "p95", "p99"}
    (one,) = (one for one in client.get("/v1/jobs/orders-1/latency").json()["operators"] if one["source"] == "events")
    assert (one["operator"], one["count"], one["max"]) == ("sink", 2, 30)
    told = client.get(f"{path}?get={name}mean,{name}max,{name}count").json()
    assert [one["value"] for one in told] == ["20", "30", "2"]
    lines = [line for line in client.get("/metrics").text.splitlines() if "latency_seconds_sum" in line]
    lines = [line for line in lines if 'source="events"' in line]
    assert len(lines) == 1
    assert lines[0].endswith(" 0.04")


def test_metrics_say_how_long_barriers_were_on_their_way_and_for_how_long_a_job_has_been_down(
    serve: Serve, cluster: FakeCluster
) -> None:
    read = orders_metrics(10)
    read[1].start_delay_ms = 7.5
    restarting = replace(ORDERS, status=JobStatus.RESTARTING, since_ms=1)
    ended = replace(ORDERS, id="done-1", name="done", status=JobStatus.FAILED)
    cluster.readings = [Reading(restarting, read), Reading(ended, [])]
    client = serve()
    (delay,) = client.get(f"{JOB}/vertices/2/subtasks/metrics?get=checkpointStartDelayNanos&agg=max").json()
    assert delay == {"id": "checkpointStartDelayNanos", "max": 7.5e6}
    (down,) = client.get("/jobs/orders-1/metrics?get=downtime").json()
    assert int(down["value"]) > 0
    assert client.get("/jobs/done-1/metrics?get=downtime").json() == [{"id": "downtime", "value": "-1"}]


def test_backpressure_has_flinks_levels(serve: Serve) -> None:
    client = serve()
    assert client.get(f"{JOB}/vertices/1/backpressure").json()["backpressure-level"] == "high"
    assert client.get(f"{JOB}/vertices/2/backpressure").json()["subtasks"][0]["busyRatio"] == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("method", "path", "body", "asked", "polled", "operation"),
    [
        ("POST", "savepoints", {"target-directory": "s3://b/s"}, ("savepoint", "orders-1", "s3://b/s"), "savepoints",
         {"location": "file:///s/savepoint-10"}),
        ("POST", "savepoints", {"cancel-job": True}, ("stop", "orders-1", None), "savepoints",
         {"location": "file:///s/savepoint-11"}),
        ("POST", "checkpoints", None, ("checkpoint", "orders-1"), "checkpoints",
         {"checkpointId": 10, "location": "file:///c/chk-00000010"}),
        ("POST", "stop", {"drain": False}, ("stop", "orders-1", None), "savepoints", {"location": "file:///s/savepoint-11"}),
        ("POST", "stop", {"drain": True}, ("drain", "orders-1", None), "savepoints", {"location": "file:///s/savepoint-12"}),
        ("PATCH", "rescaling?parallelism=4", None, ("rescale", "orders-1", 4), "rescaling", {"seconds": 0.5}),
        ("PATCH", "rescaling?parallelism=4&operator=counts", None, ("rescale", "orders-1", {"counts": 4}), "rescaling",
         {"seconds": 0.5}),
    ],
)  # fmt: skip
def test_operations_are_begun_and_polled(
    serve: Serve,
    cluster: FakeCluster,
    method: str,
    path: str,
    body: Any,
    asked: tuple[Any, ...],
    polled: str,
    operation: dict[str, Any],
) -> None:
    client = serve(**ASK)
    begun = client.request(method, f"{JOB}/{path}", json=body)
    assert begun.status_code == 202
    done = outcome(client, f"{JOB}/{polled}", begun.json()["request-id"])
    assert cluster.asked == [asked]
    assert done == {"status": {"id": "COMPLETED"}, "operation": operation}


def test_a_refused_operation_says_why(serve: Serve, cluster: FakeCluster) -> None:
    cluster.refuses = "the job has no checkpoint storage"
    client = serve(**ASK)
    trigger = client.post(f"{JOB}/savepoints").json()["request-id"]
    cause = outcome(client, f"{JOB}/savepoints", trigger)["operation"]["failure-cause"]
    assert cause["stack-trace"] == "the job has no checkpoint storage"
    assert client.get("/jobs/other/savepoints/{trigger}").status_code == 404


def test_flinks_operator_scales_by_resource_requirements(serve: Serve, cluster: FakeCluster) -> None:
    client = serve(**ASK)
    assert client.get(f"{JOB}/resource-requirements").json()["2"] == {"parallelism": {"lowerBound": 1, "upperBound": 2}}
    body = {"1": {"parallelism": {"lowerBound": 1, "upperBound": 3}}}
    assert client.put(f"{JOB}/resource-requirements", json=body).status_code == 200
    client.get("/jobs")
    assert cluster.asked == [("rescale", "orders-1", {"src": 3})]
    same = {"2": {"parallelism": {"lowerBound": 1, "upperBound": 2}}}
    assert client.put(f"{JOB}/resource-requirements", json=same).status_code == 200
    assert client.put(f"{JOB}/resource-requirements", json={"7": same["2"]}).status_code == 400
    assert len(cluster.asked) == 1


@pytest.mark.parametrize("body", ["{", "[]", "[" * 9_000])
def test_a_body_that_is_no_object_is_refused(serve: Serve, body: str) -> None:
    assert serve(**ASK).post(f"{JOB}/savepoints", content=body).status_code == 400


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        ("POST", "stop", {"targetDirectroy": "s3://b/s"}, "member 'targetDirectroy' (did you mean 'targetDirectory'?)"),
        ("POST", "stop", {"target-directory": "s3://b/s"}, "'targetDirectory'?): targetDirectory, drain, formatType,"),
        ("POST", "savepoints", {"canceljob": True}, "there is no member 'canceljob' (did you mean 'cancel-job'?)"),
        ("POST", "checkpoints", {"type": "FULL"}, "there is no member 'type': checkpointType, triggerId"),
        ("PUT", "resource-requirements", {"1": {"parallelism": {"upperBound": 3, "lower": 1}}}, "member 'lower'"),
        ("PUT", "resource-requirements", {"1": {"parallelism": {"upperBound": 3}, "slots": 1}}, "member 'slots'"),
    ],
)
def test_what_a_body_has_that_nobody_knows_is_refused_by_name(
    serve: Serve, cluster: FakeCluster, method: str, path: str, body: Any, words: str
) -> None:
    for prefix in ("", "/v1"):
        refused = serve(**ASK).request(method, f"{prefix}{JOB}/{path}", json=body)
        assert refused.status_code == 400
        assert words in refused.text.replace('\\"', '"')
    assert cluster.asked == []


def test_a_request_of_flinks_own_client_is_taken(serve: Serve, cluster: FakeCluster) -> None:
    body = {"target-directory": "s3://b/s", "cancel-job": False, "formatType": "CANONICAL", "triggerId": None}
    assert serve(**ASK).post(f"{JOB}/savepoints", json=body).status_code == 202
    assert cluster.asked == [("savepoint", "orders-1", "s3://b/s")]


def test_what_a_client_asks_twice_under_one_id_is_done_once(serve: Serve, cluster: FakeCluster) -> None:
    client, body = serve(**ASK), {"triggerId": "0B" * 16}
    answers = [client.post(f"{JOB}/savepoints", json=body).json() for _ in range(2)]
    assert answers == [{"request-id": "0b" * 16}] * 2
    assert client.get(f"{JOB}/savepoints/{'0B' * 16}").json()["status"]["id"] in {"IN_PROGRESS", "COMPLETED"}
    assert cluster.asked == [("savepoint", "orders-1", None)]
    assert client.post(f"{JOB}/checkpoints", json=body).status_code == 409
    assert client.post(f"{JOB}/stop", json={"triggerId": "0b"}).status_code == 400


@pytest.mark.parametrize(("body", "status"), [('{"mode": "stop"}', 400), ("{", 400), ("", 202), ("{}", 202)])
def test_a_cancel_takes_no_body(serve: Serve, cluster: FakeCluster, body: str, status: int) -> None:
    client = serve(**ASK)
    assert client.patch(JOB, content=body).status_code == status
    client.get("/jobs")
    assert cluster.asked == ([("cancel", "orders-1")] if status == 202 else [])


def test_a_folder_whose_name_has_no_bytes_is_refused(serve: Serve) -> None:
    body = '{"target-directory": "s3://a/\\ud800"}'
    assert serve(**ASK).post(f"{JOB}/savepoints", content=body).status_code == 400


def test_what_the_autoscaler_has_done_is_told(serve: Serve, cluster: FakeCluster) -> None:
    assert serve().get("/v1/jobs/orders-1/autoscaler").status_code == 404
    record = ScalingRecord(5_000, "rescaled", (("src", 3),), ("src: 0.92 busy",), seconds=0.5)
    info = replace(ORDERS, autoscaler=AutoscalerInfo("nothing to change", False, history=(record,)))
    cluster.readings = [Reading(info, [])]
    told = serve().get("/v1/jobs/orders-1/autoscaler").json()
    assert (told["state"], told["history"][0]["wanted"], told["history"][0]["seconds"]) == (
        "nothing to change",
        [["src", 3]],
        0.5,
    )


def test_a_task_has_columns_with_a_value_for_each_of_its_subtasks(serve: Serve, cluster: FakeCluster) -> None:
    read = orders_metrics(10)
    read[1].operators[-1][1].watermark = MAX_TIMESTAMP
    read[2].operators[-1][1].watermark = MIN_TIMESTAMP
    read[2].alignment_ms = float("nan")
    cluster.readings = [Reading(ORDERS, read)]
    found = serve().get("/v1/jobs/orders-1/tasks/2").json()
    subtasks = found["subtasks"]
    first, second = ({name: values[place] for name, values in subtasks.items()} for place in (0, 1))
    assert {len(values) for values in subtasks.values()} == {2}
    assert (first["subtask"], first["status"], first["pid"]) == (0, "running", 12)
    assert (first["rows_in"], first["rows_out"], first["rows_in_per_second"]) == (500, 500, 0)
    assert (first["busy"], first["idle"]) == (pytest.approx(0.9), pytest.approx(0.1))
    assert (second["subtask"], second["pid"], second["busy"]) == (1, 13, pytest.approx(0.45))
    assert [one["watermark"] for one in (first, second)] == ["end", None]
    # JSON has no such number.
    assert second["alignment_ms"] is None


def test_rescales_are_previewed_by_ranges(serve: Serve, cluster: FakeCluster) -> None:
    path = "/v1/jobs/orders-1/preview-rescale"
    told = serve().get(f"{path}?operator=totals&parallelism=2..3").json()["previews"]
    assert cluster.asked[-1] == ("preview", "orders-1", {"totals": 2}, {"totals": 3})
    assert [one["wanted"] for one in told] == ["totals to 2", "totals to 3"]
    assert told[0]["tasks"] == [{"name": "count -> sink", "before": 2, "after": 3, "busy": 0.6}]
    serve().get(f"{path}?parallelism=4")
    assert cluster.asked[-1] == ("preview", "orders-1", 4)
    for query in ("", "parallelism=x", "parallelism=1..200", "operator=a&operator=b&parallelism=1", "number=3"):
        assert serve().get(f"{path}?{query}").status_code == 400


def test_the_channels_of_a_subtask_are_told_one_by_one(serve: Serve, cluster: FakeCluster) -> None:
    client = serve(Role.VIEWER)
    first, second = client.get("/v1/jobs/orders-1/tasks/1/0/channels").json()["channels"]
    assert first == {
        "task": 2,
        "subtask": 0,
        "rows": 700,
        "bytes_sent": 5_440,
        "messages_sent": 12,
        "buffered_rows": 20,
        "buffered_bytes": 160,
        "messages_under_way": 4,
        "credits": 0,
        "full": True,
    }
    assert (second["subtask"], second["credits"], second["full"]) == (1, 4, False)
    assert cluster.asked[-1] == ("channels", "orders-1", 1, 0)
    assert client.get("/v1/jobs/orders-1/tasks/1/1/channels").status_code == 400


def test_the_plan_that_runs_is_told_as_text(serve: Serve, cluster: FakeCluster) -> None:
    assert "source events" in serve().get("/v1/jobs/orders-1/explain").text
    cluster.refuses = "the job has ended"
    assert serve().get("/v1/jobs/orders-1/explain").status_code == 409


def test_a_job_that_has_ended_is_shown_and_not_changed(serve: Serve, cluster: FakeCluster) -> None:
    cluster.readings = [Reading(replace(ORDERS, status=JobStatus.FAILED, error="boom", since_ms=15_000), [])]
    client = serve(**ASK)
    assert client.get(JOB).json()["state"] == "FAILED"
    assert client.get(f"{JOB}/exceptions").json()["root-exception"] == "boom"
    assert client.patch(f"{JOB}?mode=cancel").status_code == 409


def test_the_openapi_document_has_every_path(serve: Serve) -> None:
    document = serve().get("/v1/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    for path in ("/jobs/{job}/vertices/{vertex}/subtasks/metrics", "/v1/jobs/{job}/stop", "/v1/events", "/metrics"):
        assert path in document["paths"]
    assert set(document["paths"]["/jobs/{job}"]) == {"get", "patch"}
    operations = [one["operationId"] for methods in document["paths"].values() for one in methods.values()]
    assert len(operations) == len(set(operations))


@pytest.mark.parametrize("number", ["0", "-1", "4.5", "32769", "000000000000000000014999999", "9" * 5000])
def test_a_parallelism_out_of_its_limits_is_refused(serve: Serve, cluster: FakeCluster, number: str) -> None:
    answer = serve().patch(f"{JOB}/rescaling", params={"parallelism": number}, headers=ASK)
    assert (answer.status_code, cluster.asked) == (400, [])
