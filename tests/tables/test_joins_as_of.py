"""Joins AS OF a time: versions by event time, and lookups of what a table holds, with conditions beside the key."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from penstock import StreamEnvironment
from penstock.engine.clock import ManualClock
from penstock.engine.connectors import ConnectorContext, LookupTable
from penstock.engine.errors import PenstockError
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.catalog.loaded_tables import RenamedLookup
from penstock.tables.plan.nodes import Columns

_RATES = [
    ("EUR", 114, "2024-01-01 00:00:01"),
    ("YEN", 1, "2024-01-01 00:00:01"),
    ("EUR", 116, "2024-01-01 00:00:05"),
]
_PAYMENTS = [
    (2, "EUR", "2024-01-01 00:00:04"),
    (3, "EUR", "2024-01-01 00:00:05"),
    (1, "YEN", "2024-01-01 00:00:00"),
    (9, None, "2024-01-01 00:00:06"),
]


def _file(path: Path, columns: str, rows: list[tuple[Any, ...]]) -> str:
    names = columns.replace("`", "").split()
    path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    return f"WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'json')"


@pytest.fixture(params=[1, 1024])
def env(request: pytest.FixtureRequest, tmp_path: Path) -> StreamEnvironment:
    made = StreamEnvironment(runtime="local", max_batch_rows=request.param)
    rates = _file(tmp_path / "rates.json", "currency rate time", _RATES)
    payments = _file(tmp_path / "payments.json", "amount currency time", _PAYMENTS)
    made.sql(
        "CREATE TABLE rates (currency STRING, rate INT, `time` STRING, at AS TO_TIMESTAMP(`time`), "
        f"double_rate AS COALESCE(rate * 2, -1), WATERMARK FOR at AS at, PRIMARY KEY (currency) NOT ENFORCED) {rates}"
    )
    made.sql(
        "CREATE TABLE history (currency STRING, rate INT, `time` STRING, at AS TO_TIMESTAMP(`time`), "
        f"WATERMARK FOR at AS at) {rates}"
    )
    made.sql(
        "CREATE TABLE payments (amount INT, currency STRING, `time` STRING, at AS TO_TIMESTAMP(`time`), "
        f"now AS PROCTIME(), WATERMARK FOR at AS at - INTERVAL '10' SECOND) {payments}"
    )
    return made


def _rows(env: StreamEnvironment, query: str) -> Counter[tuple[Any, ...]]:
    result = env.sql(query)
    assert result is not None
    return Counter(tuple(row.values()) for row in result.collect())


JOIN = "JOIN {t} FOR SYSTEM_TIME AS OF p.{time} AS r ON p.currency = r.currency"


def test_a_row_meets_the_version_of_its_time(env: StreamEnvironment) -> None:
    join = JOIN.format(t="rates", time="at")
    assert _rows(env, f"SELECT p.amount, r.rate FROM payments p {join}") == Counter([(2, 114), (3, 116)])
    left = _rows(env, f"SELECT p.amount, r.rate, r.currency FROM payments p LEFT {join} AND r.rate > 115")
    assert left == Counter([(2, None, None), (3, 116, "EUR"), (1, None, None), (9, None, None)])


def test_the_last_row_of_each_key_has_versions(env: StreamEnvironment) -> None:
    env.sql(
        "CREATE VIEW latest AS SELECT currency, rate, at FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY currency "
        "ORDER BY at DESC) AS n FROM history) WHERE n = 1"
    )
    join = JOIN.format(t="latest", time="at")
    assert _rows(env, f"SELECT p.amount, r.rate FROM payments p {join}") == Counter([(2, 114), (3, 116)])


def test_a_lookup_finds_what_the_table_holds(env: StreamEnvironment) -> None:
    join = JOIN.format(t="rates", time="now")
    every = _rows(env, f"SELECT p.amount, r.rate, r.double_rate FROM payments p {join}")
    assert every == Counter([(2, 114, 228), (2, 116, 232), (3, 114, 228), (3, 116, 232), (1, 1, 2)])
    left = _rows(env, f"SELECT p.amount, r.rate, r.double_rate FROM payments p LEFT {join} AND r.rate + p.amount > 118")
    assert left == Counter([(2, None, None), (3, 116, 232), (1, None, None), (9, None, None)])


@pytest.mark.parametrize(
    ("join", "said"),
    [
        (JOIN.format(t="history", time="at"), "has no primary key"),
        ("JOIN rates FOR SYSTEM_TIME AS OF p.at AS r ON p.amount = r.rate", "currency has none"),
        ("JOIN rates FOR SYSTEM_TIME AS OF p.now AS r ON p.amount > r.rate", "needs an equality"),
        (JOIN.format(t="rates", time="`time`"), "takes a time attribute"),
        (f"RIGHT {JOIN.format(t='rates', time='at')}", "RIGHT JOIN .* has no meaning"),
    ],
)
def test_what_has_no_versions_is_refused(env: StreamEnvironment, join: str, said: str) -> None:
    with pytest.raises(PenstockError, match=said):
        _rows(env, f"SELECT p.amount FROM payments p {join}")


_LATE: Final = "'retry-predicate' = 'lookup_miss', 'retry-strategy' = 'fixed_delay', 'fixed-delay' = '10s'"


@dataclass
class _Slow:
    """A connector whose tables have a row from the third lookup on."""

    name: str = "slow"
    asked: Counter[str] = field(default_factory=Counter)

    @property
    def options(self) -> Mapping[str, str]:
        return {}

    def lookup(self, table: CatalogTable, columns: Columns, keys: tuple[str, ...]) -> LookupTable:
        return _SlowTable(self, table.name)


class _SlowTable(LookupTable):
    schema = pa.schema({"id": pa.int32()})
    keys = ("id",)

    def __init__(self, connector: _Slow, name: str) -> None:
        self._connector, self._name = connector, name

    def lookup(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        self._connector.asked[self._name] += 1
        return keys if self._connector.asked[self._name] > 2 else keys.slice(0, 0)


def test_each_lookup_is_made_again_as_its_own_hint_says() -> None:
    env = StreamEnvironment(runtime="local", clock=ManualClock(0))
    slow = _Slow()
    env.tables.register_connector(slow)
    for name in ("a", "b", "c"):
        env.sql(f"CREATE TABLE {name} (id INT) WITH ('connector' = 'slow')")
    env.sql("CREATE VIEW calls AS SELECT n, PROCTIME() AS now FROM (VALUES 7) AS t (n)")
    hints = [
        f"LOOKUP('table' = '{name}', {_LATE}, 'max-attempts' = '{attempts}')"
        for name, attempts in (("a", 5), ("second", 1))
    ]
    query = (
        f"SELECT /*+ {', '.join(hints)}, LOOKUP('table' = 'c', 'async' = 'true') */ a.id, second.id, c.id FROM calls "
        "LEFT JOIN a FOR SYSTEM_TIME AS OF now ON a.id = n LEFT JOIN b FOR SYSTEM_TIME AS OF now AS second "
        "ON second.id = n LEFT JOIN c FOR SYSTEM_TIME AS OF now ON c.id = n"
    )
    assert _rows(env, query) == Counter([(7, None, None)])
    assert slow.asked == Counter(a=3, b=2, c=1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("'table' = 'rate'", "LOOKUP names 'rate', and FROM has p, r"),
        ("'async' = 'true'", "LOOKUP lacks 'table'"),
        ("'table' = 'r', 'delay' = '1s'", "LOOKUP has no option 'delay'"),
        ("'table' = 'r', 'capacity' = '0'", "'capacity' of LOOKUP is a whole number of 1 or more, not '0'"),
        ("'table' = 'r', 'max-attempts' = '3'", "LOOKUP lacks 'retry-predicate'"),
    ],
)
def test_hints_that_say_nothing_are_refused(env: StreamEnvironment, options: str, said: str) -> None:
    with pytest.raises(PenstockError, match=said):
        _rows(env, f"SELECT /*+ LOOKUP({options}) */ p.amount FROM payments p {JOIN.format(t='rates', time='now')}")


def test_a_lookup_may_be_by_constants(env: StreamEnvironment) -> None:
    join = "JOIN rates FOR SYSTEM_TIME AS OF p.now AS r ON r.currency = 'YEN' AND p.amount > r.rate"
    assert _rows(env, f"SELECT p.amount, r.rate FROM payments p {join}") == Counter([(2, 1), (3, 1), (9, 1)])


class _Users(LookupTable):
    """Counts the clients that are open; each subtask must close its own."""

    schema = pa.schema({"id": pa.int64()})
    keys = ("id",)
    clients: list[list[str]]

    def __init__(self) -> None:
        self.clients = []

    def open(self, context: ConnectorContext) -> None:
        self._client = ["open"]
        self.clients.append(self._client)

    def lookup(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        assert self._client
        return keys

    def close(self) -> None:
        self._client.clear()


def test_each_subtask_has_a_client_of_its_own_and_closes_it() -> None:
    users = _Users()
    env = StreamEnvironment(runtime="local", parallelism=2)
    rows = env.from_collection([{"k": number} for number in range(8)])
    joined = rows.lookup_join(RenamedLookup(users, ("user",), (), ()), on={"k": "user"})
    assert sorted(row["k"] for row in joined.collect()) == list(range(8))
    assert users.clients == [[], []]
