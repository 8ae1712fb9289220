"""The manifests and the chart: their schemas, that they name what there is, and that their pods have no rights.

The schema of Kubernetes' own kinds comes with `kubernetes-validate`; that of RayCluster and RayJob is KubeRay's, which
`make install-deploy-checks` fetches. The chart's documents are kept as `helm template` gives them, and compared where
there is a helm.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft7Validator

import penstock
from penstock.configuration import Configuration
from penstock.configuration_keys import KEYS
from penstock.console.command_line import run_command
from penstock.engine.durations import parse_duration
from tests.deploy.manifests import CHART, DEPLOY, KUBERNETES, ROOT, clusters, containers, documents, templates

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "deploy"
RENDERED = {
    "default": (),
    "full": ("--values", str(Path(__file__).parent / "full-values.yaml")),
}
FILES = {
    **{path.name: path for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))},
    **{f"helm {name}": Path(__file__).parent / f"rendered-{name}.yaml" for name in RENDERED},
}
VARIABLES = {key.variable: key for key in KEYS.values()}
every_file = pytest.mark.parametrize("path", FILES.values(), ids=FILES)


def strict(schema: Any) -> Any:
    """The schema as the API server takes it with strict validation: members that it does not know are refused."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: strict(one) for name, one in schema.items()}
    if found.get("x-kubernetes-int-or-string"):
        found.pop("type", None)
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        found.setdefault("additionalProperties", False)
    return found


@functools.cache
def kuberays_schema(kind: str) -> Draft7Validator:
    """Of RayCluster or RayJob."""
    schema = strict(json.loads((CACHE / f"{kind.lower()}.json").read_text()))
    schema["properties"]["metadata"] = {"type": "object"}
    return Draft7Validator(schema)


@every_file
def test_kubernetes_own_kinds_have_their_schema(path: Path) -> None:
    found = documents(path.read_text())
    assert found
    for one in found:
        if not one["apiVersion"].startswith("ray.io/"):
            kubernetes_validate.validate(one, KUBERNETES, strict=True)
    for template in templates(found):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", **template.get("metadata", {})}}
        kubernetes_validate.validate({**pod, "spec": template["spec"]}, KUBERNETES, strict=True)


@every_file
def test_rays_kinds_have_kuberays_schema(path: Path) -> None:
    if not CACHE.is_dir():
        pytest.skip("KubeRay's schemas are not here: make install-deploy-checks")
    for one in documents(path.read_text()):
        if one["apiVersion"] == "ray.io/v1":
            assert [error.message for error in kuberays_schema(one["kind"]).iter_errors(one)] == []


@every_file
def test_settings_are_keys_with_values_that_they_take(path: Path) -> None:
    for container in containers(documents(path.read_text())):
        given = {one["name"]: one["value"] for one in container.get("env", ()) if one["name"].startswith("PENSTOCK_")}
        values = {VARIABLES[name].name: value for name, value in given.items()}
        assert Configuration().over(values, "manifest").settings()


@every_file
def test_the_image_and_rays_version_are_those_of_this_checkout(path: Path) -> None:
    found = documents(path.read_text())
    locked = next(line for line in (ROOT / "requirements" / "dev.txt").read_text().splitlines() if line[:5] == "ray==")
    assert {one["image"] for one in containers(found)} == {f"penstock:{penstock.__version__}"}
    for spec in clusters(found):
        assert spec["rayVersion"] == locked.split("==")[1].split()[0]


@every_file
def test_the_head_takes_no_tasks_and_the_cluster_grows_by_itself(path: Path) -> None:
    for spec in clusters(documents(path.read_text())):
        assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
        assert (spec["enableInTreeAutoscaling"], spec["autoscalerOptions"]["version"]) == (True, "v2")
        assert spec["authOptions"]["mode"] == "token"
        for group in spec["workerGroupSpecs"]:
            assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]


@every_file
def test_rays_pods_run_without_rights_and_are_never_restarted_in_place(path: Path) -> None:
    for spec in clusters(documents(path.read_text())):
        for template in (spec["headGroupSpec"]["template"], *(one["template"] for one in spec["workerGroupSpecs"])):
            pod = template["spec"]
            assert pod["restartPolicy"] == "Never", "the second version of Ray's autoscaler needs it"
            assert pod["securityContext"]["runAsNonRoot"] is True
            assert all("memory" in container["resources"]["limits"] for container in pod["containers"])


@every_file
def test_workers_that_are_to_leave_wait_until_jobs_have_moved(path: Path) -> None:
    for spec in clusters(documents(path.read_text())):
        for group in spec["workerGroupSpecs"]:
            pod = group["template"]["spec"]
            (container,) = pod["containers"]
            program, *words = container["lifecycle"]["preStop"]["exec"]["command"]
            assert (program, run_command([*words, "--help"])) == ("penstock", 0)
            assert words[:-1] == ["drain", "--this-node", "--wait", "--timeout"]
            assert parse_duration(words[-1], "--timeout") < 1000 * pod["terminationGracePeriodSeconds"]


@pytest.mark.parametrize(
    "path", [path for name, path in FILES.items() if name != "rayjob.yaml"], ids=lambda path: path.stem
)
def test_pods_can_be_evicted_and_of_the_fewest_one_at_a_time(path: Path) -> None:
    found = documents(path.read_text())
    (budget,) = (one["spec"] for one in found if one["kind"] == "PodDisruptionBudget")
    (spec,) = clusters(found)
    # RayCluster has no scale: with maxUnavailable, or a share, the API server refuses every eviction.
    assert "maxUnavailable" not in budget
    assert budget["minAvailable"] == sum(group["minReplicas"] for group in spec["workerGroupSpecs"])


@pytest.fixture
def rendered() -> Callable[..., subprocess.CompletedProcess[str]]:
    """What helm makes of the chart with more arguments."""
    helm = shutil.which("helm") or shutil.which("helm", path=str(CACHE))
    if helm is None:
        pytest.skip("there is no helm: make install-deploy-checks")
    command = [helm, "template", "penstock", str(CHART), "--kube-version", KUBERNETES]
    return lambda *more: subprocess.run([*command, *more], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", RENDERED)
def test_the_chart_gives_what_is_kept(name: str, rendered: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = rendered(*RENDERED[name])
    assert done.returncode == 0, done.stderr
    assert done.stdout == FILES[f"helm {name}"].read_text()


def test_a_setting_that_no_variable_gives_is_refused(
    rendered: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = rendered("--set", r"settings.penstock\.operator-storage\.window=s3://other/checkpoints")
    assert done.returncode != 0
    assert "penstock.operator-storage.window has no variable of the environment" in done.stderr


def test_the_chart_and_the_manifest_are_one_cluster() -> None:
    (manifest,) = clusters(documents(FILES["raycluster.yaml"].read_text()))
    (chart,) = clusters(documents(FILES["helm default"].read_text()))
    for spec in (manifest, chart):
        for template in (spec["headGroupSpec"]["template"], *(one["template"] for one in spec["workerGroupSpecs"])):
            template["metadata"]["labels"].pop("app.kubernetes.io/instance", None)
            for container in template["spec"]["containers"]:
                container["env"].sort(key=lambda one: one["name"])
                container.pop("imagePullPolicy", None)
            template["spec"].setdefault("terminationGracePeriodSeconds", 60)
    assert chart == manifest


def test_a_chart_carries_the_projects_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == penstock.__version__
