"""Flame graphs of sampled stacks: a tree in which each call holds how often it was seen, as Flink's web UI draws it."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Any

from penstock.actors.stacks import SampledStack


class FlameKind(enum.Enum):
    """Which samples a flame graph shows, as Flink names them."""

    FULL = "FULL"
    ON_CPU = "ON_CPU"
    OFF_CPU = "OFF_CPU"

    def of(self, stacks: Iterable[SampledStack]) -> list[tuple[tuple[str, ...], int]]:
        """The stacks that have such samples, with how many."""
        counted = [(one.stack, self._count(one)) for one in stacks]
        return [(stack, count) for stack, count in counted if count]

    def _count(self, one: SampledStack) -> int:
        match self:
            case FlameKind.FULL:
                return one.count
            case FlameKind.ON_CPU:
                return one.on_cpu
        return one.count - one.on_cpu


def flame_document(stacks: Sequence[tuple[tuple[str, ...], int]]) -> dict[str, Any]:
    """The tree.

    Example:
        >>> flame_document([(("loop", "a"), 2), (("loop", "b"), 1)])["children"][0]["value"]
        3
    """
    root: dict[str, Any] = {"name": "root", "value": 0, "children": []}
    for stack, count in stacks:
        node = root
        node["value"] += count
        for call in stack:
            child = next((one for one in node["children"] if one["name"] == call), None)
            if child is None:
                child = {"name": call, "value": 0, "children": []}
                node["children"].append(child)
            child["value"] += count
            node = child
    return root


def dump_text(stacks: Sequence[SampledStack]) -> str:
    """A stack dump for people: each thread with its calls, the innermost last."""
    threads = ["\n".join([f"thread {one.stack[0]}", *(f"  {call}" for call in one.stack[1:])]) for one in stacks]
    return "\n\n".join(threads) + "\n"
