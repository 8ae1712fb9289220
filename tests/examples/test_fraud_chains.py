"""The fraud chains example, confirmed alert by alert by plain Python, from memory and through Kafka."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import pyarrow as pa

import penstock as ps
from penstock.testing.services import Kafka

MINUTE_MS = 60_000

Alert: TypeAlias = tuple[str, str, int, int]
Events: TypeAlias = list[dict[str, Any]]


def alerts_of(events: pa.Table) -> list[Alert]:
    """Account, chain, beginning and end of each alert."""
    accounts = defaultdict(list)
    for row in sorted(events.to_pylist(), key=lambda row: row["at"]):
        accounts[row["account"]].append(row)
    found: list[Alert] = []
    for account, rows in accounts.items():
        for place in range(len(rows)):
            for chain, ended in (*_tried(rows[place:]), *_takeover(rows[place:]), *_climbing(rows[place:])):
                found.append((account, chain, rows[place]["at"], ended))
    return sorted(found)


def _paid(row: dict[str, Any], least: float, most: float = 1e9) -> bool:
    return row["kind"] == "payment" and least < row["amount"] < most


def _tried(rows: Events) -> Iterable[tuple[str, int]]:
    three = rows[:3]
    is_chain = len(three) == 3 and _paid(three[0], -1, 1) and _paid(three[1], -1, 1) and _paid(three[2], 500)
    if is_chain and three[2]["at"] - three[0]["at"] < 10 * MINUTE_MS:
        yield "tried card", three[2]["at"]


def _takeover(rows: Events) -> Iterable[tuple[str, int]]:
    if rows[0]["kind"] != "device":
        return
    bound = rows[0]["at"] + 5 * MINUTE_MS
    for row in rows[1:]:
        if row["at"] >= bound:
            break
        if row["kind"] == "confirmed":
            return
        if row["kind"] == "transfer" and row["amount"] > 1_000:
            yield "takeover", row["at"]
            return
    yield "unconfirmed device", bound


def _climbing(rows: Events) -> Iterable[tuple[str, int]]:
    if not (_paid(rows[0], 100) or (rows[0]["kind"] == "payment" and rows[0]["amount"] == 100)):
        return
    taken = 1
    least = 2 * rows[0]["amount"]
    for row in rows[1:]:
        if row["at"] - rows[0]["at"] >= MINUTE_MS:
            return
        if _paid(row, least):
            taken, least = taken + 1, 2 * row["amount"]
            if taken == 3:
                yield "climbing", row["at"]
                return


def _shown(alerts: Iterable[dict[str, Any]]) -> list[Alert]:
    return sorted((row["account"], row["chain"], row["began"], row["ended"]) for row in alerts)


def test_the_alerts_are_what_plain_python_finds(load: Callable[[str], ModuleType]) -> None:
    example = load("fraud_chains")
    events = example.events(4_000)
    strategy = ps.WatermarkStrategy.for_bounded_out_of_orderness(example.OUT_OF_ORDERNESS)
    env = ps.StreamEnvironment(runtime="local", parallelism=2)
    found = _shown(example.chains(env.from_collection(events).assign_timestamps("at", strategy)).collect())
    assert found == alerts_of(events)
    assert {chain for _, chain, _, _ in found} == {"tried card", "takeover", "unconfirmed device", "climbing"}


def test_a_reader_of_committed_records_sees_each_alert_once(
    load: Callable[[str], ModuleType], kafka: Kafka, tmp_path: Path
) -> None:
    example = load("fraud_chains")
    events, servers = example.events(4_000), kafka.bootstrap_servers
    for topic in (example.EVENTS, example.ALERTS):
        kafka.create_topic(topic, partitions=4)
    example.produce(ps.StreamEnvironment(runtime="local", parallelism=1), servers, events)
    env = ps.StreamEnvironment(runtime="local", parallelism=2, checkpoints=ps.checkpoints("100ms", str(tmp_path)))
    example.build(env, servers)
    env.execute("fraud chains")
    found = example.committed(ps.StreamEnvironment(runtime="local"), servers)
    assert _shown(found.to_pylist()) == alerts_of(events)
