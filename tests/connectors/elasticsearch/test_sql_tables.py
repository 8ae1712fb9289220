"""Tables of SQL with the connector `elasticsearch-7`."""

from __future__ import annotations

from penstock import StreamEnvironment
from tests.connectors.elasticsearch.index import Index
from tests.connectors.http.servers import serve


def test_a_result_is_kept_up_to_date() -> None:
    index = Index()
    index.token = "k"
    with serve(index.respond) as url:
        env = StreamEnvironment(runtime="local", parallelism=1)
        env.sql(
            "CREATE TABLE totals (item STRING, n BIGINT, PRIMARY KEY (item) NOT ENFORCED) WITH ('connector' = "
            f"'elasticsearch-7', 'hosts' = '{url}', 'index' = 'clicks', 'headers.Authorization' = 'ApiKey k')"
        )
        env.sql(
            "INSERT INTO totals SELECT item, COUNT(*) FROM (VALUES ('pen'), ('cup'), ('pen')) AS t (item) GROUP BY item"
        )
        env.execute()
    assert index.documents == {"pen": {"item": "pen", "n": 2}, "cup": {"item": "cup", "n": 1}}
