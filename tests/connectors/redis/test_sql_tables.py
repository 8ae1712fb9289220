"""Tables of SQL with the connector `redis`, on a server."""

from __future__ import annotations

import uuid

import redis as redis_py

from penstock import StreamEnvironment
from penstock.testing.services import Redis


def test_a_result_is_kept_up_to_date_and_looked_up(redis: Redis) -> None:
    prefix = f"{uuid.uuid4().hex[:10]}:"
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.sql(
        "CREATE TABLE totals (item STRING, n BIGINT, PRIMARY KEY (item) NOT ENFORCED) "
        f"WITH ('connector' = 'redis', 'url' = '{redis.url}', 'key-prefix' = '{prefix}', 'ttl' = '1 min')"
    )
    env.sql("CREATE VIEW orders AS SELECT *, PROCTIME() AS now FROM (VALUES ('pen'), ('cup'), ('pen')) AS t (item)")
    env.sql("INSERT INTO totals SELECT item, COUNT(*) FROM orders GROUP BY item")
    env.execute()
    with redis_py.Redis.from_url(redis.url, decode_responses=True) as client:
        assert client.hgetall(f"{prefix}pen") == {"n": "2"}
        assert 0 < client.pttl(f"{prefix}cup") <= 60_000
    table = env.sql(
        "SELECT o.item, t.n FROM orders o JOIN totals FOR SYSTEM_TIME AS OF o.now AS t ON o.item = t.item WHERE t.n > 1"
    )
    assert table is not None
    assert [(row["item"], row["n"]) for row in table.collect()] == [("pen", 2), ("pen", 2)]


def test_a_key_of_several_columns_is_looked_up_in_any_order_of_the_condition(redis: Redis) -> None:
    prefix = f"{uuid.uuid4().hex[:10]}:"
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.sql(
        "CREATE TABLE roads (origin STRING, goal STRING, km INT, PRIMARY KEY (origin, goal) NOT ENFORCED) "
        f"WITH ('connector' = 'redis', 'url' = '{redis.url}', 'key-prefix' = '{prefix}')"
    )
    env.sql("INSERT INTO roads VALUES ('a', 'b', 5), ('b', 'a', 7)")
    env.execute()
    env.sql("CREATE VIEW trips AS SELECT *, PROCTIME() AS now FROM (VALUES ('a', 'b')) AS t (origin, goal)")
    table = env.sql(
        "SELECT r.origin, r.goal, r.km FROM trips t JOIN roads FOR SYSTEM_TIME AS OF t.now AS r "
        "ON t.goal = r.goal AND t.origin = r.origin"
    )
    assert table is not None
    assert list(table.collect()) == [{"origin": "a", "goal": "b", "km": 5}]
