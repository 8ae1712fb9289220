"""Ray's own AWS provider launches what `deploy/ray/aws.yaml` says, on the servers of AWS that moto plays."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from moto import mock_aws

from tests.deploy.manifests import DEPLOY

_ROLE = "ray-autoscaler-v1"
_POLICY = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"},
    ],
}


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """An account in which `ray up` has made its role before: behind making it, it waits for half a minute."""
    monkeypatch.setenv("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")
    # The key of the nodes goes into ~/.ssh.
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "of-the-test")
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with mock_aws():
        iam = boto3.client("iam")
        iam.create_role(RoleName=_ROLE, AssumeRolePolicyDocument=json.dumps(_POLICY))
        iam.create_instance_profile(InstanceProfileName=_ROLE)
        iam.add_role_to_instance_profile(InstanceProfileName=_ROLE, RoleName=_ROLE)
        yield


@pytest.mark.long("test_ray_clusters.py holds the file to Ray's schema; this takes half a minute of moto's")
@pytest.mark.usefixtures("account")
def test_rays_aws_provider_launches_head_on_demand_and_spot_workers() -> None:
    from ray.autoscaler._private.aws.config import bootstrap_aws
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider
    from ray.autoscaler._private.util import prepare_config, validate_config

    config: dict[str, Any] = prepare_config(yaml.safe_load((DEPLOY / "ray" / "aws.yaml").read_text()))
    validate_config(config)
    config = bootstrap_aws(config)
    provider = AWSNodeProvider(config["provider"], config["cluster_name"])
    for name, kind in config["available_node_types"].items():
        tags = {"ray-user-node-type": name, "ray-node-kind": "head" if name == "head" else "worker"}
        provider.create_node(copy.deepcopy(kind["node_config"]), tags, 1)
    found = boto3.client("ec2", region_name=config["provider"]["region"]).describe_instances()["Reservations"]
    launched = {
        next(tag["Value"] for tag in one["Tags"] if tag["Key"] == "ray-user-node-type"): (
            one["InstanceType"],
            one.get("InstanceLifecycle", "on-demand"),
        )
        for reservation in found
        for one in reservation["Instances"]
    }
    assert launched == {
        "head": ("m7i.large", "on-demand"),
        "on-demand": ("m7i.xlarge", "on-demand"),
        "spot": ("m7i.xlarge", "spot"),
    }
