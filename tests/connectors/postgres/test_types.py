"""Values on their way into a table and back: what the sink writes, psycopg and the source read."""

from __future__ import annotations

import datetime
import decimal
import json
import math
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.connectors.postgres import PostgresLookup, PostgresSink, PostgresSource
from penstock.engine.elements import Batch
from penstock.engine.errors import PenstockError, RecordError
from tests.connectors.postgres.tables import Database, context
from tests.connectors.reading import read_table
from tests.draws import drawn

UTC = datetime.timezone.utc
text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
json_text = st.recursive(
    st.none() | st.booleans() | st.integers() | text, lambda inner: st.lists(inner) | st.dictionaries(text, inner)
).map(json.dumps)
latin = st.text(st.characters(codec="latin-1", exclude_characters="\0"), max_size=3)
three = st.text(st.characters(codec="latin-1", exclude_characters="\0"), min_size=3, max_size=3)
int32 = st.integers(-(2**31), 2**31 - 1)
float32 = st.floats(width=32)
money = st.decimals(1 - 10**8, 10**8 - 1, places=2)
naive = st.datetimes()
zoned = st.datetimes(timezones=st.just(UTC))

# Name: the table's type, the stream's, values.
KINDS: dict[str, tuple[str, pa.DataType, st.SearchStrategy[Any]]] = {
    "flag": ("boolean", pa.bool_(), st.booleans()),
    "tiny": ("smallint", pa.int8(), st.integers(-128, 127)),
    "small": ("integer", pa.uint16(), st.integers(0, 65_535)),
    "whole": ("integer", pa.int64(), int32),
    "large": ("bigint", pa.uint64(), st.integers(0, 2**63 - 1)),
    "half": ("real", pa.float32(), float32),
    "double": ("double precision", pa.float64(), st.floats()),
    "money": ("numeric(12,2)", pa.decimal128(10, 2), money),
    "counted": ("numeric(20,0)", pa.uint64(), st.integers(0, 2**64 - 1)),
    "words": ("text", pa.string(), text),
    "short": ("varchar(3)", pa.large_string(), latin),
    "code": ("char(3)", pa.string(), three),
    "said": ("text", pa.dictionary(pa.int32(), pa.string()), text),
    "raw": ("bytea", pa.binary(), st.binary()),
    "day": ("date", pa.date32(), st.dates()),
    "clock": ("time", pa.time64("us"), st.times()),
    "local": ("timestamp", pa.timestamp("us"), naive),
    "instant": ("timestamptz", pa.timestamp("us", tz="Europe/Paris"), zoned),
    "coarse": ("timestamptz", pa.timestamp("s", tz="UTC"), zoned.map(lambda at: at.replace(microsecond=0))),
    "document": ("json", pa.string(), json_text),
    "binary_document": ("jsonb", pa.string(), json_text),
    "id": ("uuid", pa.string(), st.uuids().map(str)),
    "numbers": ("bigint[]", pa.list_(pa.int64()), st.lists(st.none() | st.integers(-(2**63), 2**63 - 1))),
    "names": ("text[]", pa.large_list(pa.string()), st.lists(st.none() | text)),
    "codes": ("char(3)[]", pa.list_(pa.string()), st.lists(st.none() | three)),
    "blobs": ("bytea[]", pa.list_(pa.binary()), st.lists(st.none() | st.binary())),
    "instants": ("timestamptz[]", pa.list_(pa.timestamp("us", tz="UTC")), st.lists(zoned)),
    "amounts": ("numeric(12,2)[]", pa.list_(pa.decimal128(12, 2)), st.lists(money)),
    "nothing": ("text", pa.null(), st.none()),
}  # fmt: skip

records = st.lists(st.fixed_dictionaries({name: st.none() | kind[2] for name, kind in KINDS.items()}), max_size=4)


@pytest.fixture(scope="module")
def kinds_table(database: Database) -> str:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in KINDS.items())
    return database.create(f"row bigint primary key, {columns}")


@settings(max_examples=drawn(16), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=records, spoiled=st.integers(0, 4))
def test_values_come_back_as_they_went(
    database: Database, kinds_table: str, rows: list[dict[str, Any]], spoiled: int
) -> None:
    database.run(f"TRUNCATE {kinds_table}")
    fields = [("row", pa.int64()), *((name, kind) for name, (_, kind, _) in KINDS.items())]
    data = pa.Table.from_pylist([{"row": place, **row} for place, row in enumerate(rows)], pa.schema(fields))
    # Slices, as they come from operators before.
    parts = [data.slice(0, spoiled), data.slice(spoiled)]
    sink = PostgresSink(database.dsn, kinds_table, mode="append", markers=database.new_name("m"))
    sink.check(data.schema)
    writer = sink.open(context())
    sink.prepare()
    for part in parts:
        for batch in part.combine_chunks().to_batches():
            writer.write(Batch(batch))
    sink.commit(writer.prepare(1), context())
    back = read_table(PostgresSource(database.dsn, kinds_table, column="row"))
    looked_up = PostgresLookup(database.dsn, kinds_table, keys="row")
    looked_up.open(context())
    found = looked_up.lookup(pa.record_batch({"row": pa.array(range(len(rows)), pa.int64())}))
    looked_up.close()
    assert back.num_rows == len(rows)
    for source in (back.to_pylist(), sorted(found.to_pylist(), key=lambda one: one["row"])):
        for row, came in zip(rows, source, strict=True):
            assert {name: _comparable(name, came[name]) for name in KINDS} == {
                name: _comparable(name, row[name]) for name in KINDS
            }


def _comparable(name: str, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, float):
        return "nan" if math.isnan(value) else (math.copysign(1, value), value)
    if name == "binary_document":
        return json.loads(value)
    if isinstance(value, (int, decimal.Decimal)) and not isinstance(value, bool):
        return decimal.Decimal(value)
    return value


@pytest.mark.parametrize(
    ("column", "array", "message"),
    [
        ("smallint", pa.array([1, 40_000], pa.int64()), "does not fit the table's smallint"),
        ("bigint", pa.array([2**63], pa.uint64()), "does not fit the table's bigint"),
        ("numeric(4,2)", pa.array([100], pa.int64()), "does not fit the table's numeric"),
        ("numeric(4,2)", pa.array([decimal.Decimal("100.00")]), "does not fit the table's numeric"),
        ("numeric(40,38)", pa.array([decimal.Decimal("-123.4")]), "more than 2 digits before the point"),
        ("numeric(40,38)", pa.array([100], pa.int64()), "more than 2 digits before the point"),
        ("numeric(39,30)[]", pa.array([[1, 10**9]], pa.list_(pa.int64())), "more than 9 digits before the point"),
        ("text", pa.array(["a\0b"]), "zero character"),
        ("text[]", pa.array([["a", "\0"]]), "zero character"),
        ("varchar(2)", pa.array(["abc"]), r"3 characters does not fit .*varying\(2\)"),
        ("uuid", pa.array(["x"]), "is no UUID"),
        ("jsonb", pa.array(["1", "{"]), "row 1 of the batch: the text is no JSON"),
        ("json", pa.array(["NaN"]), "NaN is no JSON"),
        ("jsonb", pa.array(['"\\ud800"']), "no JSON that PostgreSQL takes"),
        ("jsonb", pa.array(['"\\u0000"']), "zero character"),
        ("jsonb", pa.array(['"\\\\\\u0000"']), "zero character"),
        ("jsonb", pa.array(["[1e400000]"]), "131,072 digits before the point"),
        ("jsonb", pa.array(["1e999999999999999999999"]), "no JSON that PostgreSQL takes: a number"),
        ("timestamp", pa.array([2**62], pa.timestamp("us")), "years 1 to 9999"),
        ("date", pa.array([-(2**30)], pa.date32()), "years 1 to 9999"),
        ("timestamp", pa.array([1], pa.timestamp("ns")), "does not fit the table's timestamp"),
        ("int not null", pa.array([None], pa.int32()), r"a value is null in row \{.*'v': None\}"),
    ],
)
def test_a_value_that_the_table_cannot_hold_fails_before_the_checkpoint(
    database: Database, column: str, array: pa.Array, message: str
) -> None:
    table = database.create(f"k serial primary key, v {column}")
    sink = PostgresSink(database.dsn, table, mode="append")
    batch = pa.record_batch({"v": array})
    sink.check(batch.schema)
    with pytest.raises(RecordError, match=rf"operator 'out', subtask 0: postgres sink, column 'v'.*{message}"):
        sink.open(context()).write(Batch(batch))


@pytest.mark.parametrize("kind", ["json", "jsonb"])
@pytest.mark.parametrize("text", ['"\\\\u0000"', '"a\\\\\\\\u0000"'])
def test_a_backslash_before_what_would_be_a_zero_character_is_stored(database: Database, kind: str, text: str) -> None:
    table = database.create(f"k int primary key, v {kind}")
    sink = PostgresSink(database.dsn, table, mode="append", markers=database.new_name("m"))
    batch = pa.record_batch({"k": pa.array([1], pa.int32()), "v": [text]})
    sink.check(batch.schema)
    sink.prepare()
    writer = sink.open(context())
    writer.write(Batch(batch))
    sink.commit(writer.prepare(1), context())
    assert database.ask(f"SELECT v::text FROM {table}") == [(text,)]


NUMBERS = ["9" * 131_072, "9" * 131_073, "1e131071", "1e131072", "-12.5e131070", "-12.5e131071", "0.00e-16381"]
NUMBERS += ["1e-16383", "1e-16384", "0e-16384", "1.5e-16382", "1.5e-16383", f"0.{'1' * 16_383}", f"0.{'1' * 16_384}"]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number if len(number) < 20 else f"{len(number)} digits")
def test_numbers_in_json_that_are_refused_are_those_that_the_server_refuses(database: Database, number: str) -> None:
    table = database.create("k serial primary key, v jsonb, w json")
    sink = PostgresSink(database.dsn, table, mode="append")
    writer = sink.open(context())
    writer.write(Batch(pa.record_batch({"v": ["1"], "w": [f'{{"a": {number}}}']})))
    try:
        database.connection.execute("SELECT %s::jsonb", [number])
    except psycopg.DataError:
        with pytest.raises(RecordError, match="v', row 0 of the batch: the text is no JSON that PostgreSQL takes"):
            writer.write(Batch(pa.record_batch({"v": [number], "w": ["1"]})))
    else:
        writer.write(Batch(pa.record_batch({"v": [number], "w": ["1"]})))
    writer.close()


@pytest.fixture(scope="module")
def latin_dsn(database: Database) -> str:
    """Of a database that cannot hold every text."""
    name = database.new_name("latin")
    database.run(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    return f"{database.dsn.rpartition('/')[0]}/{name}"


def test_texts_are_the_same_in_a_database_of_another_encoding(latin_dsn: str) -> None:
    with psycopg.connect(latin_dsn, autocommit=True, client_encoding="utf8") as connection:
        connection.execute("CREATE TABLE t (k text PRIMARY KEY, v jsonb)")
        sink = PostgresSink(f"{latin_dsn}?client_encoding=latin1", "t")
        sink.prepare()
        writer = sink.open(context())
        writer.write(Batch(pa.record_batch({"k": ["\u00e9", "e"], "v": ['"\\u00e9"', None]})))
        sink.commit(writer.prepare(1), context())
        assert connection.execute("SELECT k, v FROM t ORDER BY k").fetchall() == [("e", None), ("\u00e9", "\u00e9")]
    source = PostgresSource(latin_dsn, "t", column="k", start_after="e")
    assert read_table(source).to_pylist() == [{"k": "\u00e9", "v": '"\u00e9"'}]


@pytest.mark.parametrize(
    ("column", "value"),
    [("text", "a\u20ac"), ("text[]", ["a", "\u20ac"]), ("jsonb", '"\\u20ac"'), ("json", '"\u20ac"')],
)
def test_a_text_that_the_database_cannot_hold_fails_before_the_checkpoint(
    latin_dsn: str, column: str, value: Any
) -> None:
    with psycopg.connect(latin_dsn, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS u")
        connection.execute(f"CREATE TABLE u (v {column})")  # type: ignore[arg-type]
    writer = PostgresSink(latin_dsn, "u", mode="append").open(context())
    with pytest.raises(RecordError, match=r"column 'v'.*: a text has the character '\u20ac', .*its encoding LATIN1"):
        writer.write(Batch(pa.record_batch({"v": [value]})))
    writer.close()


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("integer", pa.string()),
        ("integer", pa.float64()),
        ("real", pa.float64()),
        ("text", pa.int64()),
        ("bigint", pa.list_(pa.int64())),
        ("bigint[]", pa.int64()),
        ("numeric(10,2)", pa.decimal128(10, 3)),
        ("numeric(10,2)", pa.float64()),
        ("timestamptz", pa.timestamp("us")),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("date", pa.timestamp("us")),
        ("interval", pa.duration("us")),
        ("text", pa.struct([("a", pa.int64())])),
        ("inet", pa.string()),
    ],
)
def test_a_type_that_does_not_fit_is_refused_when_the_job_is_planned(
    database: Database, column: str, kind: pa.DataType
) -> None:
    table = database.create(f"k serial primary key, v {column}")
    with pytest.raises(
        PenstockError, match=r"column 'v' is .* in the stream and .* in the table, which cannot hold it"
    ):
        PostgresSink(database.dsn, table, mode="append").check(pa.schema([("v", kind)]))


def test_types_without_an_arrow_type_say_how_to_cast(database: Database) -> None:
    table = database.create("k serial primary key, v numeric")
    with pytest.raises(PenstockError, match=r"column 'v' is numeric, .* SELECT v::numeric\(38, 10\)"):
        PostgresSource(database.dsn, table, column="k")
    query = f"SELECT k, v::numeric(38, 10) FROM {table}"
    assert PostgresSource(database.dsn, query, column="k", tie_breaker=()).schema.types[1] == pa.decimal128(38, 10)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("timestamptz", "infinity", "years 1 to 9999"),
        ("date", "20000-01-01", "years 1 to 9999"),
        ("numeric(4,2)", "NaN", r"a value is no decimal128\(4, 2\)"),
    ],
)
def test_values_that_arrow_cannot_hold_are_an_error(database: Database, kind: str, value: str, message: str) -> None:
    table = database.create(f"k serial primary key, v {kind}")
    database.run(f"INSERT INTO {table} (v) VALUES ('{value}')")
    with pytest.raises(RecordError, match=f"operator 'test', subtask 0: postgres source.*{message}"):
        read_table(PostgresSource(database.dsn, table, column="k"))
