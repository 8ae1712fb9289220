"""The text that Prometheus scrapes."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from penstock.engine.job.status import JobStatus
from penstock.web.observed import Observed
from penstock.web.prometheus import prometheus_text
from tests.web.conftest import Serve
from tests.web.fakes import ORDERS, orders_metrics, viewed

_SAMPLE = re.compile(
    r'^[a-z_0-9]+\{([a-z_]+="(?:[^"\\\n]|\\.)*"(,[a-z_]+="(?:[^"\\\n]|\\.)*")*)?\} (NaN|[+-]Inf|[-+0-9.e]+)$'
)


def samples(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_every_line_is_of_the_format_and_every_family_has_its_type_once() -> None:
    observed = Observed()
    read = orders_metrics(10)
    read[1].operators[0][1].group.counter("rejected").inc(3)
    read[1].operators[0][1].group.histogram("sizes").update_many([1.0, 10.0])
    view = observed.see(replace(ORDERS, name='a "job"\n\\'), read, 1.0, 1)
    text = prometheus_text([view])
    assert all(_SAMPLE.match(line) for line in samples(text)), text
    types = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    named = [re.split(r"[{]", line)[0] for line in samples(text)]
    assert all(any(name in (one, f"{one}_sum", f"{one}_count") for one in types) for name in named)
    assert 'penstock_user_rejected{job="a \\"job\\"\\n\\\\",task="2: count -> sink",operator="0: count"} 3' in text


def test_tasks_are_added_up_unless_subtasks_are_asked_for(serve: Serve) -> None:
    name = 'penstock_operator_rows_in_total{job="orders",task="2: count -> sink",operator="0: count"} 2000'
    assert name in prometheus_text([viewed()])
    client = serve()
    assert 'subtask="1"' not in client.get("/metrics").text
    assert 'subtask="1"' in client.get("/metrics?subtasks=1").text
    assert client.get("/metrics").headers["content-type"].startswith("text/plain; version=0.0.4")


def test_jobs_that_have_ended_are_only_counted() -> None:
    text = prometheus_text([viewed(replace(ORDERS, status=JobStatus.FAILED))])
    assert 'penstock_jobs{status="failed"} 1' in text
    assert "penstock_task" not in text


@pytest.mark.parametrize("outcome", [("completed", 2), ("failed", 1)])
def test_checkpoints_are_counted_by_outcome(outcome: tuple[str, int]) -> None:
    name, count = outcome
    assert f'penstock_job_checkpoints_total{{job="orders",outcome="{name}"}} {count}' in prometheus_text([viewed()])


def test_a_subtask_that_is_being_started_is_left_out_of_the_sums_of_operators() -> None:
    read = orders_metrics(10)
    text = prometheus_text([Observed().see(ORDERS, [*read[:2], replace(read[2], operators=())], 1.0, 1)])
    assert 'penstock_operator_rows_in_total{job="orders",task="2: count -> sink",operator="0: count"} 500' in text


def test_two_jobs_of_one_name_are_told_apart() -> None:
    text = prometheus_text([viewed(), viewed(replace(ORDERS, id="orders-2"))])
    series = [line.rpartition(" ")[0] for line in samples(text)]
    assert len(series) == len(set(series))
    assert 'penstock_job_up{job="orders (orders-2)"} 1' in text
