"""Tables of SQL with the connectors `kafka` and `upsert-kafka`, on a broker."""

from __future__ import annotations

import json
from collections.abc import Callable

from penstock import StreamEnvironment
from penstock.testing.services.kafka import Kafka
from tests.connectors.kafka.topics import produce
from tests.connectors.kafka.written import records


def test_rows_changes_and_upserts_go_through_topics(kafka: Kafka, new_topic: Callable[..., str]) -> None:
    servers, orders, totals = kafka.bootstrap_servers, new_topic(2, "orders"), new_topic(1, "totals")
    ann = {"who": "ann", "n": 3}
    changes = [
        {"op": "c", "before": None, "after": ann},
        {"op": "u", "before": ann, "after": {"who": "ann", "n": 5}},
        {"op": "c", "before": None, "after": {"who": "bob", "n": 1}},
        {"op": "d", "before": {"who": "bob", "n": 1}, "after": None},
    ]
    produce(servers, orders, [json.dumps(change).encode() for change in changes])
    common = f"'properties.bootstrap.servers' = '{servers}', 'scan.bounded.mode' = 'latest-offset'"
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.sql(
        "CREATE TABLE orders (who STRING, n INT, place BIGINT METADATA FROM 'offset' VIRTUAL) WITH ("
        f"'connector' = 'kafka', 'topic' = '{orders}', 'format' = 'debezium-json', "
        f"'scan.startup.mode' = 'earliest-offset', {common})"
    )
    upserts = (
        "CREATE TABLE totals (who STRING, total INT, PRIMARY KEY (who) NOT ENFORCED) WITH ("
        f"'connector' = 'upsert-kafka', 'topic' = '{totals}', 'key.format' = 'json', 'value.format' = 'json', {common})"
    )
    env.sql(upserts)
    env.sql("INSERT INTO totals SELECT who, SUM(n) FROM orders GROUP BY who")
    env.execute()
    assert {record.key for record in records(servers, totals)} >= {b'{"who":"ann"}'}
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.sql(upserts)
    table = env.sql("SELECT who, total FROM totals")
    assert table is not None
    held: dict[str, int] = {}
    for row in table.to_changelog().collect():
        if row["op"] in ("+I", "+U"):
            held[row["who"]] = row["total"]
        elif row["op"] == "-D":
            del held[row["who"]]
    assert held == {"ann": 5}


def test_no_row_is_late_by_the_watermark_of_another_partition(kafka: Kafka, new_topic: Callable[..., str]) -> None:
    servers, topic = kafka.bootstrap_servers, new_topic(3)
    rows = [{"n": n, "seconds": 1_700_000_000 + n} for n in range(600)]
    for partition in range(2):
        produce(servers, topic, [json.dumps(row).encode() for row in rows[partition::2]], partition)
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.sql(
        "CREATE TABLE t (n INT, seconds BIGINT, ts AS TO_TIMESTAMP_LTZ(seconds, 0), "
        "WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH ("
        f"'connector' = 'kafka', 'topic' = '{topic}', 'format' = 'json', 'properties.bootstrap.servers' = '{servers}', "
        "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset')"
    )
    table = env.sql(
        "SELECT window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) "
        "GROUP BY window_start, window_end"
    )
    assert table is not None
    assert sum(row["n"] for row in table.collect()) == len(rows)
