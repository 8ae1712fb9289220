"""Joins as users write them: whole programs against SQL, columns known in advance, and programs that are refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.aggregates.functions import count
from penstock.engine.api.streams import DataStream, KeyedStream
from penstock.engine.errors import ColumnTypeError, ConfigurationError, GraphError, MissingColumnError
from penstock.engine.functions import OutputTag
from penstock.engine.operators.joins.lookup_cache import LookupCache
from penstock.engine.operators.joins.lookup_tables import DictTable
from penstock.engine.windows.assigners import session, sliding, tumbling
from penstock.engine.windows.watermarks import WatermarkStrategy
from penstock.environment import StreamEnvironment
from tests.engine.helpers import Row, local_environment

DELAY = WatermarkStrategy.for_bounded_out_of_orderness("40ms")


def _rows(seed: int, value: str, key: str) -> list[Row]:
    """Rows up to 20 ms out of order, no two of them with one key and time; a fifth of the values is null."""
    draw = random.Random(seed)
    rows = [
        {"at": n * 3 + draw.randrange(20), key: f"k{draw.randrange(4)}", value: draw.choice([None, n, n, n, n])}
        for n in range(80)
    ]
    return list({(row["at"], row[key]): row for row in rows}.values())


LEFT = _rows(1, "n", "k")
RIGHT = _rows(2, "n", "id")


def _keyed(env: StreamEnvironment) -> tuple[KeyedStream, KeyedStream]:
    left = env.from_collection(LEFT).assign_timestamps("at", DELAY).key_by("k")
    right = env.from_collection(RIGHT).assign_timestamps("at", DELAY).key_by("id")
    return left, right


def _table(
    join: Callable[[KeyedStream, KeyedStream], DataStream], parallelism: int, seed: int, batch_rows: int
) -> pa.Table:
    env = local_environment(parallelism, seed, max_batch_rows=batch_rows)
    joined = join(*_keyed(env))
    schema = joined.schema
    table = joined.collect().to_arrow()
    if schema is not None:
        assert table.schema.equals(schema)
    return table


def _sorted(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


# Whole programs against SQL

SQL = {
    "inner window": """
        select l.at, l.k, l.n, r.at, r.n from l join r on k = id and l.at // 25 = r.at // 25""",
    "full window": """
        select l.at, coalesce(k, id), l.n, r.at, r.n from l full join r on k = id and l.at // 25 = r.at // 25""",
    "left window": """
        select l.at, k, l.n, r.at, r.n from l left join r on k = id and l.at // 25 = r.at // 25""",
    "interval": """
        select l.at, k, l.n, r.at, r.n from l join r on k = id and r.at >= l.at - 5 and r.at < l.at + 10""",
    "temporal": """
        select l.at, k, l.n, r.at, r.n from l asof left join r on k = id and l.at >= r.at""",
}
JOINS: dict[str, Callable[[KeyedStream, KeyedStream], DataStream]] = {
    "inner window": lambda left, right: left.window_join(right, tumbling("25ms")),
    "full window": lambda left, right: left.window_join(right, tumbling("25ms"), how="full"),
    "left window": lambda left, right: left.window_join(right, tumbling("25ms"), how="left"),
    "interval": lambda left, right: left.interval_join(right, "-5ms", "10ms", bounds="[)"),
    "temporal": lambda left, right: left.temporal_join(right, how="left"),
}


@pytest.mark.parametrize("name", SQL)
def test_joins_agree_with_sql(name: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.register("l", pa.Table.from_pylist(LEFT))
    connection.register("r", pa.Table.from_pylist(RIGHT))
    expected = _sorted(connection.execute(SQL[name]).fetchall())
    for parallelism, seed, batch_rows in ((1, 0, 1000), (3, 1, 1), (3, 2, 7)):
        table = _table(JOINS[name], parallelism, seed, batch_rows)
        columns = [table.column(column).to_pylist() for column in ("at", "k", "n", "at_right", "n_right")]
        assert _sorted(list(zip(*columns, strict=True))) == expected


@pytest.mark.parametrize("windows", [sliding("20ms", "8ms"), session("5ms")])
def test_windows_are_the_same_for_any_parallelism_and_any_batches(windows: Any) -> None:
    def counts(key: str, window: Any, left: list[Row], right: list[Row]) -> list[Row]:
        return [{"k": key, "start": window.start, "end": window.end, "pairs": len(left) * len(right)}]

    def grouped(left: KeyedStream, right: KeyedStream) -> DataStream:
        return left.co_group(right, windows, counts)

    def joined(left: KeyedStream, right: KeyedStream) -> DataStream:
        return left.window_join(right, windows)

    settings = ((1, 0, 1000), (3, 1, 1), (3, 2, 7))
    tables = [_table(joined, *setting).select(["k", "at", "n", "at_right", "n_right"]) for setting in settings]
    results = [_sorted([tuple(row.values()) for row in table.to_pylist()]) for table in tables]
    assert results[0] == results[1] == results[2]
    groups = [_table(grouped, *setting).to_pylist() for setting in settings]
    assert sum(row["pairs"] for row in groups[0]) == len(results[0]) > 0
    ordered = [_sorted([tuple(row.values()) for row in rows]) for rows in groups]
    assert ordered[0] == ordered[1] == ordered[2]


def test_joins_can_follow_each_other() -> None:
    env = local_environment(2)
    left, right = _keyed(env)
    pairs = left.interval_join(right, "-5ms", "10ms").key_by("k")
    again = pairs.window_join(pairs, tumbling("1s"), suffix="_again").collect().to_arrow()
    per_key: dict[str, int] = {}
    for row in LEFT:
        near = [r for r in RIGHT if r["id"] == row["k"] and -5 <= r["at"] - row["at"] <= 10]
        per_key[row["k"]] = per_key.get(row["k"], 0) + len(near)
    assert again.num_rows == sum(count**2 for count in per_key.values())
    assert "n_right_again" in again.column_names


def test_late_rows_can_be_read_from_side_outputs() -> None:
    env = local_environment(1, max_batch_rows=1)
    strict = WatermarkStrategy.for_monotonous_timestamps()
    left = env.from_collection([{"k": 1, "at": 10}, {"k": 1, "at": 3}]).assign_timestamps("at", strict).key_by("k")
    right = env.from_collection([{"k": 1, "at": 10}]).assign_timestamps("at", strict).key_by("k")
    joined = left.interval_join(right, "0s", "0s", left_late=OutputTag("late"))
    late = joined.get_side_output(OutputTag("late"))
    assert late.schema == pa.schema({"k": pa.int64(), "at": pa.int64()})
    assert {tuple(row.values()) for row in late.collect()} <= {(1, 3)}


def test_a_stream_is_enriched_from_a_table() -> None:
    table = DictTable({f"k{n}": {"name": f"name {n}"} for n in range(3)}, keys="key")
    env = local_environment(3)
    joined = env.from_collection(LEFT).lookup_join(table, {"k": "key"}, how="left", cache=LookupCache())
    assert joined.schema == pa.schema({"at": pa.int64(), "k": pa.string(), "n": pa.int64(), "name": pa.string()})
    rows = list(joined.collect())
    assert len(rows) == len(LEFT)
    assert all(row["name"] == (None if row["k"] == "k3" else f"name {row['k'][1]}") for row in rows)


# What explain() shows


def test_joins_say_what_they_join_on() -> None:
    left, right = _keyed(local_environment())
    table = DictTable({"k": {"x": 1}}, keys="key")
    names = [
        (left.window_join(right, tumbling("1h"), how="full"), "window_join(tumbling 1h, k = id, full)"),
        (left.interval_join(right, "-5s", "1m 10s", bounds="[)"), "interval_join([-5s, 1m 10s), k = id)"),
        (left.temporal_join(right), "temporal_join(k = id, inner)"),
        (left.co_group(right, session("5s"), max), "co_group(session gap 5s, k = id, max)"),
        (
            left._stream.lookup_join(table, {"k": "key"}, cache=LookupCache(100, "1m")),
            "lookup_join(DictTable, k = key, inner, cache of 100 rows for 1m)",
        ),
    ]
    for stream, name in names:
        assert stream._program.graph[stream._edges[0].source].name == name


def test_columns_of_the_right_side_give_way() -> None:
    left, right = _keyed(local_environment())
    schema = left.window_join(right, tumbling("1h")).schema
    assert schema is not None
    assert schema.names == ["at", "k", "n", "window_start", "window_end", "at_right", "n_right"]
    assert left.interval_join(right, "0s", "0s", suffix="2").schema.names == ["at", "k", "n", "at2", "n2"]  # type: ignore[union-attr]


# Programs that are refused


def _other(env: StreamEnvironment, rows: list[Row], key: str | tuple[str, ...]) -> KeyedStream:
    keys = (key,) if isinstance(key, str) else key
    return env.from_collection(rows).assign_timestamps("at").key_by(*keys)


@pytest.mark.parametrize(
    ("rows", "key", "error", "message"),
    [
        ([{"at": 1, "id": "a", "x": 1}], ("id", "x"), GraphError, r"keyed by \(k\), the right side by \(id, x\)"),
        ([{"at": 1, "id": 7}], "id", ColumnTypeError, "key 'k' of the left side is string, key 'id' of the right side"),
        ([{"at": 1, "id": "a", "at_right": 1}], "id", GraphError, "'at_right'; give another suffix="),
        ([{"at": 1, "id": "a", "__timestamp": 1}], "id", GraphError, "'__timestamp' is the name of an internal column"),
    ],
)
def test_inputs_that_cannot_be_joined_are_refused(
    rows: list[Row], key: Any, error: type[Exception], message: str
) -> None:
    env = local_environment()
    left, _ = _keyed(env)
    for join in JOINS.values():
        with pytest.raises(error, match=message):
            join(left, _other(env, rows, key))


def test_streams_without_timestamps_or_of_another_program_are_refused() -> None:
    env = local_environment()
    left, right = _keyed(env)
    untimed = env.from_collection(RIGHT).key_by("id")
    _, foreign = _keyed(local_environment())
    for join in (*JOINS.values(), lambda a, b: a.co_group(b, tumbling("1s"), max)):
        with pytest.raises(GraphError, match="the right side has no timestamps; call assign_timestamps before key_by"):
            join(left, untimed)
        with pytest.raises(GraphError, match="the left side has no timestamps"):
            join(untimed, right)
        with pytest.raises(GraphError, match="different programs"):
            join(left, foreign)
        with pytest.raises(GraphError, match=r"takes a stream with keys, not DataStream; call key_by"):
            join(left, right._stream)


def test_outer_joins_need_columns_that_are_known() -> None:
    env = local_environment()
    left, right = _keyed(env)
    unknown = env.from_collection(RIGHT).map(lambda row: row).assign_timestamps("at").key_by("id")
    assert left.window_join(unknown, tumbling("1s")).schema is None
    assert left.window_join(unknown, tumbling("1s"), how="right").schema is None
    for join in (
        lambda: left.window_join(unknown, tumbling("1s"), how="left"),
        lambda: unknown.window_join(right, tumbling("1s"), how="full"),
        lambda: left.temporal_join(unknown, how="left"),
    ):
        with pytest.raises(GraphError, match=r"needs to know the columns of the (left|right) side; declare them"):
            join()


def test_joins_of_streams_whose_columns_are_not_declared_give_the_same() -> None:
    def undeclared(stream: KeyedStream, key: str) -> KeyedStream:
        return stream._stream.map(lambda row: row).key_by(key)

    for name in ("inner window", "interval"):
        join = JOINS[name]
        known = _table(join, 3, 1, 7)
        inferred = _table(lambda a, b, join=join: join(undeclared(a, "k"), undeclared(b, "id")), 3, 1, 7)  # type: ignore[misc]
        assert inferred.schema.names == known.schema.names
        results = [_sorted([tuple(row.values()) for row in table.to_pylist()]) for table in (known, inferred)]
        assert results[0] == results[1]


def test_arguments_are_checked() -> None:
    env = local_environment()
    left, right = _keyed(env)
    stream = env.from_collection(LEFT)
    table = DictTable({"k": {"x": 1}}, keys="key")
    late = OutputTag("late")
    cases: list[tuple[type[Exception], str, Callable[[], object]]] = [
        (
            ConfigurationError,
            "how must be one of inner, left, right, full, not 'outer'",
            lambda: left.window_join(right, tumbling("1s"), how="outer"),
        ),  # type: ignore[arg-type]
        (
            ConfigurationError,
            r"not 'rigth' \(did you mean 'right'\?\)",
            lambda: left.window_join(right, tumbling("1s"), how="rigth"),
        ),  # type: ignore[arg-type]
        (
            ConfigurationError,
            "how must be one of inner, left, not 'full'",
            lambda: left.temporal_join(right, how="full"),
        ),  # type: ignore[arg-type]
        (ConfigurationError, "suffix must be a text", lambda: left.temporal_join(right, suffix="")),
        (GraphError, "takes tumbling", lambda: left.window_join(right, "1s")),  # type: ignore[arg-type]
        (GraphError, "takes tumbling", lambda: left.co_group(right, session(lambda row: 5), max)),
        (GraphError, "windows of event time alone", lambda: left.window_join(right, tumbling("1s", time="processing"))),
        (
            ConfigurationError,
            r"lower \(5s\) is more than upper \(-5s\)",
            lambda: left.interval_join(right, "5s", "-5s"),
        ),
        (ConfigurationError, "no time is between", lambda: left.interval_join(right, "1ms", "2ms", bounds="()")),
        (ConfigurationError, "bounds must be one of", lambda: left.interval_join(right, "1s", "2s", bounds="[[")),  # type: ignore[arg-type]
        (ConfigurationError, "bounds must be one of", lambda: left.interval_join(right, "1s", "2s", bounds=["["])),  # type: ignore[arg-type]
        (ConfigurationError, "how must be one of", lambda: left.temporal_join(right, how=["left"])),  # type: ignore[arg-type]
        (ConfigurationError, "is no duration", lambda: left.interval_join(right, -5, "2s")),  # type: ignore[arg-type]
        (ConfigurationError, r"within 2\*\*60", lambda: left.interval_join(right, "-99999999999w", "2s")),
        (
            GraphError,
            "both named 'late'",
            lambda: left.interval_join(right, "0s", "1s", left_late=late, right_late=late),
        ),
        (GraphError, "left_late takes an OutputTag", lambda: left.interval_join(right, "0s", "1s", left_late="late")),  # type: ignore[arg-type]
        (GraphError, "takes a LookupTable, not dict", lambda: stream.lookup_join({}, "k")),  # type: ignore[arg-type]
        (GraphError, r"is looked up by \(key\), not by \(k\)", lambda: stream.lookup_join(table, "k")),
        (MissingColumnError, "no column 'q'", lambda: stream.lookup_join(table, {"q": "key"})),
        (ColumnTypeError, "key 'at' of the left side is int64", lambda: stream.lookup_join(table, {"at": "key"})),
        (GraphError, "cache takes LookupCache", lambda: stream.lookup_join(table, {"k": "key"}, cache=100)),  # type: ignore[arg-type]
        *(
            (GraphError, "on takes a column, several, or", lambda on=on: stream.lookup_join(table, on))
            for on in ([], 5, None, [["k"]], {"k": ["key"]})
        ),
    ]
    for error, message, program in cases:
        with pytest.raises(error, match=message):
            program()


def test_window_columns_that_are_there_already_are_refused() -> None:
    left, right = _keyed(local_environment())
    counts = left.window(tumbling("1s")).aggregate(n=count()).key_by("k")
    with pytest.raises(GraphError, match="the left side has a column 'window_start', which is the name of a window's"):
        counts.window_join(right, tumbling("1s"))
    assert "window_start_right" in right.window_join(counts, tumbling("1s")).schema.names  # type: ignore[union-attr]
