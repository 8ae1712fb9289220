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


def test_prometheus_own_checker_takes_configuration_and_rules(tmp_path: Path) -> None:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "deploy"
    promtool = shutil.which("promtool") or shutil.which("promtool", path=str(cache))
    if promtool is None:
        pytest.skip("there is no promtool: make install-deploy-checks")
    folder = shutil.copytree(FOLDER, tmp_path / "monitoring")
    # It looks for what the configuration names, the rules and the token of the console.
    (folder / "penstock-token").write_text("secret")
    command = [promtool, "check", "config", str(folder / "prometheus.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rules = sum(len(group["rules"]) for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"])
    assert f"SUCCESS: {rules} rules found" in done.stdout
