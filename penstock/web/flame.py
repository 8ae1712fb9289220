"""Flame graphs of sampled stacks: a tree in which each call holds how often it was seen, as Flink's web UI draws it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


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


def dump_text(stacks: Sequence[tuple[tuple[str, ...], int]]) -> str:
    """A stack dump for people: each thread with its calls, the innermost last."""
    threads = ["\n".join([f"thread {stack[0]}", *(f"  {call}" for call in stack[1:])]) for stack, _ in stacks]
    return "\n\n".join(threads) + "\n"
