"""The dashboard and the alert rules that are shipped ask for metrics that there are, with labels that they have."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from penstock.web.prometheus import prometheus_text
from penstock.web.serve import DEFAULT_PORT
from tests.web.fakes import viewed

FOLDER = Path(__file__).parents[2] / "deploy" / "monitoring"


def dashboard() -> list[str]:
    document = json.loads((FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8"))
    return [target["expr"] for panel in document["panels"] for target in panel["targets"]]


def alerts() -> list[str]:
    document = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))
    return [rule["expr"] for group in document["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("expression", [*dashboard(), *alerts()])
def test_every_expression_asks_for_what_there_is(expression: str) -> None:
    samples = re.findall(r"^(\w+)\{(.*)\} ", prometheus_text([viewed()]), re.MULTILINE)
    labels = {name: set(re.findall(r"(\w+)=", found)) for name, found in samples}
    asked = re.findall(r"(penstock_\w+)(?:\{([^}]*)\})?", expression)
    assert asked
    for name, matchers in asked:
        assert name in labels
        assert set(re.findall(r"(\w+)=", matchers)) <= labels[name]
    grouped = {label.strip() for found in re.findall(r"by \(([^)]*)\)", expression) for label in found.split(",")}
    assert grouped <= {label for name, _ in asked for label in labels[name]}


def test_prometheus_asks_the_console_and_reads_the_rules_beside_it() -> None:
    document = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
    (scraped,) = document["scrape_configs"]
    assert scraped["metrics_path"] == "/metrics"
    # Prometheus gives each target a label job of its own, and renames ours otherwise.
    assert scraped["honor_labels"]
    assert scraped["static_configs"][0]["targets"][0].endswith(f":{DEFAULT_PORT}")
    assert all((FOLDER / name).is_file() for name in document["rule_files"])


@pytest.fixture
def promtool() -> str:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "deploy"
    found = shutil.which("promtool") or shutil.which("promtool", path=str(cache))
    if found is None:
        pytest.skip("there is no promtool: make install-deploy-checks")
    return found


def test_prometheus_own_checker_takes_configuration_and_rules(tmp_path: Path, promtool: str) -> None:
    folder = shutil.copytree(FOLDER, tmp_path / "monitoring")
    # It looks for what the configuration names, the rules and the token of the console.
    (folder / "penstock-token").write_text("secret")
    command = [promtool, "check", "config", str(folder / "prometheus.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rules = sum(len(group["rules"]) for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"])
    assert f"SUCCESS: {rules} rules found" in done.stdout


def test_a_job_without_a_checkpoint_for_half_an_hour_is_told_of(tmp_path: Path, promtool: str) -> None:
    def series(job: str, checkpoints: str) -> list[dict[str, str]]:
        counted = f'penstock_job_checkpoints_total{{job="{job}",outcome="completed",instance="c"}}'
        running = f'penstock_job_status_seconds{{job="{job}",status="running",instance="c"}}'
        return [{"series": counted, "values": checkpoints}, {"series": running, "values": "0+60x60"}]

    expected = {
        "exp_labels": {"job": "stuck", "outcome": "completed", "instance": "c", "severity": "warn"},
        "exp_annotations": {"summary": "Job stuck has completed no checkpoint for half an hour"},
    }
    asked = {"eval_time": "45m", "alertname": "PenstockNoCheckpoint", "exp_alerts": [expected]}
    test = {
        "rule_files": [str(FOLDER / "alerts.yml")],
        "tests": [
            {
                "interval": "1m",
                "input_series": [*series("stuck", "5x60"), *series("well", "0+6x60")],
                "alert_rule_test": [asked],
            }
        ],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump(test))
    command = [promtool, "test", "rules", str(tmp_path / "test.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
