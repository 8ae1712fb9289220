"""What is in deploy/, read for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "penstock"
KUBERNETES = "1.35"
"""The version of the schemas that documents are held to."""

Document: TypeAlias = Mapping[str, Any]


def documents(text: str) -> list[Document]:
    """All of a file."""
    return [one for one in yaml.safe_load_all(text) if one is not None]


def clusters(found: list[Document]) -> Iterator[Document]:
    """The specifications of all Ray clusters."""
    for one in found:
        if one["kind"] == "RayCluster":
            yield one["spec"]
        if one["kind"] == "RayJob" and "rayClusterSpec" in one["spec"]:
            yield one["spec"]["rayClusterSpec"]


def templates(found: list[Document]) -> Iterator[Document]:
    """The templates of all pods."""
    for spec in clusters(found):
        yield spec["headGroupSpec"]["template"]
        yield from (group["template"] for group in spec["workerGroupSpecs"])
    for one in found:
        if one["kind"] == "RayJob":
            yield one["spec"]["submitterPodTemplate"]


def containers(found: list[Document]) -> Iterator[Document]:
    """All containers."""
    for template in templates(found):
        yield from template["spec"]["containers"]
