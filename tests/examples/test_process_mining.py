"""The process mining example: what the patterns find is what plain Python finds in the same history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from types import ModuleType
from typing import Any

import penstock as ps

DAY_MS = 86_400_000


def _by_file(example: ModuleType) -> dict[str, list[dict[str, Any]]]:
    files = defaultdict(list)
    for row in sorted(example.read(example.HISTORY).to_pylist(), key=lambda row: row["at"]):
        files[row["path"]].append(row)
    return files


def test_the_patterns_find_what_plain_python_finds(load: Callable[[str], ModuleType]) -> None:
    example = load("process_mining")
    env = ps.StreamEnvironment(runtime="local", parallelism=2)
    results = example.mine(env, example.read(example.HISTORY))
    env.execute()
    found = {name: sorted(row["path"] for row in rows) for name, rows in results.items()}
    short, outlived, busy = [], [], []
    for path, rows in _by_file(example).items():
        for place, row in enumerate(rows):
            later = next((r for r in rows[place + 1 :] if r["op"] == "D"), None)
            if row["op"] == "A":
                (short if later is not None and later["at"] < row["at"] + 30 * DAY_MS else outlived).append(path)
        place = 0
        while place + 3 <= len(rows):
            three = rows[place : place + 3]
            is_busy = all(row["op"] == "M" for row in three) and three[2]["at"] - three[0]["at"] < DAY_MS
            busy += [path] * is_busy
            place += 3 if is_busy else 1
    assert found["short-lived"] == sorted(short)
    assert found["outlived a month"] == sorted(outlived)
    assert found["busy days"] == sorted(busy)
    assert found["ping-pong"]
