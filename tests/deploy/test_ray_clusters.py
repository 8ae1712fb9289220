"""The files for `ray up`: Ray's schema, settings that there are, and a head that takes no tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import ray.autoscaler
import yaml
from jsonschema import Draft7Validator

import penstock
from penstock.configuration import Configuration
from penstock.configuration_keys import KEYS
from tests.deploy.manifests import DEPLOY

VARIABLES = {key.variable: key.name for key in KEYS.values()}
every_cluster = pytest.mark.parametrize("path", sorted((DEPLOY / "ray").glob("*.yaml")), ids=lambda path: path.stem)


def cluster(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@every_cluster
def test_it_has_rays_schema(path: Path) -> None:
    schema = json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text())
    assert [error.message for error in Draft7Validator(schema).iter_errors(cluster(path))] == []


@every_cluster
def test_the_image_and_its_settings_are_those_of_this_checkout(path: Path) -> None:
    docker = cluster(path)["docker"]
    assert docker["image"] == f"penstock:{penstock.__version__}"
    given = dict(option.removeprefix("-e ").split("=", 1) for option in docker["run_options"] if option[:3] == "-e ")
    settings = {VARIABLES[name]: value for name, value in given.items()}
    assert Configuration().over(settings, path.name).settings()
    assert settings["penstock.slot-labels"] == "ray.io/market-type=on-demand", "what has state belongs there"


@every_cluster
def test_the_head_takes_no_tasks_and_workers_stay_within_bounds(path: Path) -> None:
    found = cluster(path)
    kinds = found["available_node_types"]
    assert kinds[found["head_node_type"]]["resources"] == {"CPU": 0}
    workers = {name: kind for name, kind in kinds.items() if name != found["head_node_type"]}
    assert sum(kind["max_workers"] for kind in workers.values()) <= found["max_workers"]
    assert {kind["labels"]["ray.io/market-type"] for kind in workers.values()} == {"on-demand", "spot"}
    assert any("RAY_enable_autoscaler_v2=1 ray start --head" in one for one in found["head_start_ray_commands"])
