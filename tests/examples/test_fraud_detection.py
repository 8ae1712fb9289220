"""The fraud example: what both versions of the model say is what plain Python says of the same payments."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import penstock as ps

PAYMENTS = 8_000


def alerts_of(payments: list[dict], most: int, limit: float, window_ms: int) -> list[tuple[int, int, int]]:
    """Card, time and payments within the minute, of each alert."""
    by_card = defaultdict(list)
    alerts = []
    for row in payments:
        at = int(row["at"].timestamp() * 1000)
        recent = by_card[row["card"]] = [(when, paid) for when, paid in by_card[row["card"]] if when > at - window_ms]
        recent.append((at, row["amount"]))
        if len(recent) > most or sum(paid for _, paid in recent) > limit:
            alerts.append((row["card"], at, len(recent)))
    return sorted(alerts)


def test_both_models_resume_from_the_savepoint_as_if_they_had_seen_the_past_themselves(
    load: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    example = load("fraud_detection")
    env = ps.StreamEnvironment(
        runtime="local",
        parallelism=2,
        checkpoints=ps.checkpoints("1s", f"{tmp_path}/checkpoints", savepoints=f"{tmp_path}/savepoints"),
    )
    source = ps.DataGenSource(
        {
            "card": ps.Zipf(example.CARDS, 0.7),
            "amount": ps.RandomFloat(1.0, 200.0),
            "at": ps.EventTime(example.START_MS, example.PAYMENTS_PER_SECOND),
        },
        rows=PAYMENTS,
    )
    payments = sorted(env.from_source(source).collect(), key=lambda row: row["at"])
    before, savepoint = example.first_half(env, PAYMENTS)
    alerts = {
        model: {
            (row["card"], row["at"], row["payments"])
            for row in example.second_half(env, model, PAYMENTS, savepoint).to_pylist()
        }
        for model in example.MODELS
    }
    first = {(row["card"], row["at"], row["payments"]) for row in before.to_pylist()}
    whole = {
        model: set(alerts_of(payments, function.most, function.limit, example.WINDOW_MS))
        for model, function in example.MODELS.items()
    }
    assert first
    assert not first & alerts["1"]
    assert first | alerts["1"] == whole["1"]
    # The second model sees the first one's past: of the rest it says what it would have said anyway.
    rest = payments[_read(savepoint) :]
    behind = rest[0]["at"].timestamp() * 1000 if rest else math.inf
    assert alerts["2"] == {alert for alert in whole["2"] if alert[1] >= behind}


def _read(savepoint: str) -> int:
    """How many payments the source had given when it was taken."""
    [position] = ps.savepoints.read(savepoint).source_positions("payments")["position"].to_pylist()
    return PAYMENTS if position is None else int(json.loads(position)["row"])
