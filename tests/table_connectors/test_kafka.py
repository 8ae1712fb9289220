"""Tables of Kafka and of databases without a server: what options mean, and rows of records and back."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest
from aiokafka import TopicPartition

from penstock import StreamEnvironment
from penstock.connectors.kafka import KafkaSink, KafkaSource
from penstock.connectors.kafka.fetched import HEADERS_TYPE, TIMESTAMP_TYPE, Records
from penstock.engine.api.streams import DataStream
from penstock.engine.errors import PenstockError, RecordError, SqlError, SqlValidationError
from penstock.table_connectors.kafka.formats import OP
from penstock.tables.bind.table_binder import physical_columns
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.catalog.connectors import ScannedTable, WrittenTable
from penstock.tables.environment import TableEnvironment

_KAFKA = {"connector": "kafka", "topic": "t", "properties.bootstrap.servers": "nowhere:9092"}
_UPSERT = {**_KAFKA, "connector": "upsert-kafka", "key.format": "json", "value.format": "json"}
_EARLIEST = {"scan.startup.mode": "earliest-offset"}
_DEBEZIUM = {**_KAFKA, **_EARLIEST, "format": "debezium-json"}


@pytest.fixture
def env() -> StreamEnvironment:
    return StreamEnvironment(runtime="local", parallelism=1)


def _create(tables: TableEnvironment, columns: str, options: dict[str, str]) -> CatalogTable:
    written = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    tables.sql(f"CREATE TABLE t ({columns}) WITH ({written})")
    entry = tables.catalog.find("t")
    assert isinstance(entry, CatalogTable)
    return entry


def _scanned(tables: TableEnvironment, columns: str, options: dict[str, str]) -> ScannedTable:
    table = _create(tables, columns, options)
    return tables.connectors.scan(table, physical_columns(table))


def _written(tables: TableEnvironment, columns: str, options: dict[str, str]) -> WrittenTable:
    table = _create(tables, columns, options)
    wanted = tuple(column for column in physical_columns(table) if column.name in table.persisted)
    return tables.connectors.sink(table, wanted)


def _through(env: StreamEnvironment, rows: pa.Table, scanned: ScannedTable) -> list[dict[str, Any]]:
    """The rows that a table has of what its source gives."""
    stream: DataStream = env.from_collection(rows)
    for stage in scanned.stages:
        stream = stream._add(stage.spec, stage.schema)
    return list(stream.collect())


def _given(scanned: ScannedTable, rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, scanned.source.schema)


def test_a_row_has_the_columns_of_the_record_and_its_metadata(env: StreamEnvironment) -> None:
    columns = """id INT, at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', place BIGINT METADATA FROM 'offset' VIRTUAL,
        headers MAP<STRING, BYTES> METADATA, name STRING"""
    scanned = _scanned(env.tables, columns, {**_KAFKA, **_EARLIEST, "format": "json"})
    assert scanned.source.schema.field("headers").type == HEADERS_TYPE
    assert scanned.source.describe() == "kafka(t, json, from earliest)"
    assert not scanned.source.bounded
    given = {"id": 1, "name": "ann", "at": 5, "place": 7, "headers": [{"key": "k", "value": b"v"}]}
    (row,) = _through(env, _given(scanned, [given]), scanned)
    assert list(row) == ["id", "at", "place", "headers", "name"]
    assert (row["id"], row["place"], row["headers"], row["name"]) == (1, 7, [("k", b"v")], "ann")


def test_keys_are_read_where_the_value_has_them_not(env: StreamEnvironment) -> None:
    options = {**_KAFKA, **_EARLIEST, "value.format": "csv", "key.format": "json", "key.fields": "k_id",
               "key.fields-prefix": "k_", "value.fields-include": "EXCEPT_KEY"}  # fmt: skip
    scanned = _scanned(env.tables, "name STRING, k_id INT", options)
    place = {"$topic": "t", "$partition": 0, "$offset": 5}
    rows = _given(scanned, [{"name": "ann", "$key": b'{"id": 3}', **place}])
    assert _through(env, rows, scanned) == [{"name": "ann", "k_id": 3}]
    with pytest.raises(
        PenstockError, match=r"topic 't', partition 0, offset 5: the record's key cannot be read as json"
    ):
        _through(StreamEnvironment(runtime="local"), _given(scanned, [{"name": "ann", "$key": b"3", **place}]), scanned)


def test_records_that_cannot_be_read_are_left_out_where_that_is_asked_for(env: StreamEnvironment) -> None:
    options = {**_KAFKA, **_EARLIEST, "format": "json", "json.ignore-parse-errors": "true"}
    scanned = _scanned(env.tables, "id INT", options)
    rows = _given(scanned, [{"id": 1}, {"id": None, "error": "no JSON", "raw": b"{"}, {"id": 2}])
    assert _through(env, rows, scanned) == [{"id": 1}, {"id": 2}]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("json", r"no valid JSON.*; mend what writes it, or set 'json.ignore-parse-errors' to 'true'$"),
        ("avro", r"; mend what writes it$"),
    ],
)
def test_a_record_that_cannot_be_read_names_the_table_and_the_option_that_helps(
    env: StreamEnvironment, name: str, says: str
) -> None:
    scanned = _scanned(env.tables, "id INT", {**_KAFKA, **_EARLIEST, "format": name})
    assert isinstance(scanned.source, KafkaSource)
    values = pa.array([b"{"], pa.large_binary())
    records = Records(
        pa.array([7]), pa.nulls(1, TIMESTAMP_TYPE), values, values, pa.array([[]], HEADERS_TYPE), next_offset=8
    )
    with pytest.raises(RecordError, match=f"^table 't': kafka: topic 't', partition 0, offset 7: .*{says}"):
        scanned.source._layout.rows(records, TopicPartition("t", 0))


@pytest.mark.parametrize("lenient", ["true", "false"])
def test_columns_may_have_the_names_of_what_tells_of_bad_records(env: StreamEnvironment, lenient: str) -> None:
    options = {**_KAFKA, **_EARLIEST, "format": "json", "json.ignore-parse-errors": lenient}
    scanned = _scanned(env.tables, "id INT, error STRING, raw BIGINT METADATA FROM 'offset' VIRTUAL", options)
    assert isinstance(scanned.source, KafkaSource)
    assert (scanned.source.error_column is not None) == (lenient == "true")
    value, offset = (
        next(name for name in scanned.source.schema.names if name.endswith(f".{own}")) for own in ("error", "raw")
    )
    rows = [{"id": 1, value: "full", offset: 7}, {"id": 2, value: None, offset: 8}]
    found = _through(env, _given(scanned, rows), scanned)
    assert found == [{"id": 1, "error": "full", "raw": 7}, {"id": 2, "error": None, "raw": 8}]


def test_records_whose_keys_cannot_be_read_are_left_out_where_that_is_asked_for(env: StreamEnvironment) -> None:
    options = {**_KAFKA, **_EARLIEST, "value.format": "csv", "key.format": "json", "key.fields": "id",
               "value.fields-include": "EXCEPT_KEY", "key.json.ignore-parse-errors": "true"}  # fmt: skip
    scanned = _scanned(env.tables, "id INT, name STRING", options)
    place = {"$topic": "t", "$partition": 0, "$offset": 5}
    keys = [b'{"id": 1}', b"{", None, b'{"id": 4}']
    rows = [{"name": str(number), "$key": key, **place} for number, key in enumerate(keys)]
    assert _through(env, _given(scanned, rows), scanned) == [{"id": 1, "name": "0"}, {"id": 4, "name": "3"}]


def test_settings_of_the_client_are_texts_but_for_numbers_and_flags(env: StreamEnvironment) -> None:
    properties = {"sasl.plain.password": "0123", "client.id": "7", "request.timeout.ms": "500", "check.crcs": "false"}
    options = {f"properties.{key}": value for key, value in properties.items()}
    source = _scanned(env.tables, "id INT", {**_KAFKA, **_EARLIEST, "format": "json", **options}).source
    assert isinstance(source, KafkaSource)
    assert source._connection.options == {
        "sasl_plain_password": "0123",
        "client_id": "7",
        "request_timeout_ms": 500,
        "check_crcs": False,
    }


def test_the_last_record_of_a_key_is_a_row_and_one_without_value_deletes_it(env: StreamEnvironment) -> None:
    scanned = _scanned(env.tables, "id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED", _UPSERT)
    assert isinstance(scanned.source, KafkaSource)
    value = scanned.source._layout.format
    decoded = value.decode(pa.array([b'{"id": 1, "name": "ann"}', b"{", None], pa.large_binary()))
    assert decoded.rows.to_pylist() == [{"id": 1, "name": "ann", OP: "+U"}, {"id": None, "name": None, OP: "-D"}]
    assert [bad.index for bad in decoded.bad] == [1]
    place = {"$topic": "t", "$partition": 0, "$offset": 5, "$key": b'{"id": 1}'}
    given = [{**row, **place} for row in decoded.rows.to_pylist()]
    assert _through(env, _given(scanned, given), scanned) == [
        {"id": 1, "name": "ann", OP: "+U"},
        {"id": 1, "name": None, OP: "-D"},
    ]


def test_upserts_are_records_by_key_without_a_value_for_what_is_deleted(env: StreamEnvironment) -> None:
    columns = "id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED"
    written = _written(env.tables, columns, {**_UPSERT, "value.fields-include": "EXCEPT_KEY"})
    assert isinstance(written.sink, KafkaSink)
    rows = env.from_collection(
        [("INSERT", 1, "ann"), ("UPDATE_BEFORE", 1, "ann"), ("UPDATE_AFTER", 1, "bob"), ("DELETE", 1, "bob")],
        ["op", "id", "name"],
    )
    env.tables.create_temporary_view("changes", rows)
    changes = env.sql("SELECT * FROM FROM_CHANGELOG(input => TABLE changes PARTITION BY id)")
    assert changes is not None
    stream = env.tables.lowered(changes.plan)
    for stage in written.stages:
        stream = stream._add(stage.spec, stage.schema)
    batches = [pa.RecordBatch.from_pylist([row], stream.schema) for row in stream.collect()]
    encoded = [written.sink._layout.encode(_batch(batch), 0).to_pylist()[0] for batch in batches]
    assert [(record["key"], record["value"]) for record in encoded] == [
        (b'{"id":1}', b'{"name":"ann"}'),
        (b'{"id":1}', b'{"name":"bob"}'),
        (b'{"id":1}', None),
    ]


def test_columns_of_the_key_of_upserts_may_have_other_names_than_in_the_record(env: StreamEnvironment) -> None:
    columns = "k_id INT, id STRING, PRIMARY KEY (k_id) NOT ENFORCED"
    options = {**_UPSERT, "key.fields-prefix": "k_", "value.fields-include": "EXCEPT_KEY",
               "sink.buffer-flush.max-rows": "10", "sink.buffer-flush.interval": "1 s"}  # fmt: skip
    written = _written(env.tables, columns, options)
    assert isinstance(written.sink, KafkaSink)
    rows = pa.RecordBatch.from_pylist([{OP: "+U", "k_id": 1, "id": "a"}], written.stages[-1].schema)
    (record,) = written.sink._layout.encode(_batch(rows), 0).to_pylist()
    assert (record["key"], record["value"]) == (b'{"id":1}', b'{"id":"a"}')
    env.sql("DROP TABLE t")
    scanned = _scanned(env.tables, columns, options)
    given = {"id": "a", OP: "+U", "$topic": "t", "$partition": 0, "$offset": 5, "$key": b'{"id": 1}'}
    assert _through(env, _given(scanned, [given]), scanned) == [{"k_id": 1, "id": "a", OP: "+U"}]


def _batch(data: pa.RecordBatch) -> Any:
    from penstock.engine.elements import Batch

    return Batch(data)


def _envelope(op: str | None, before: Any, after: Any) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, OP: "+U"}


def test_an_envelope_of_debezium_is_the_rows_before_and_after(env: StreamEnvironment) -> None:
    scanned = _scanned(env.tables, "id INT, name STRING, place BIGINT METADATA FROM 'offset' VIRTUAL", _DEBEZIUM)
    ann, bob = {"id": 1, "name": "ann"}, {"id": 1, "name": "bob"}
    records = [
        {**_envelope("c", None, ann), "place": 0},
        {**_envelope("u", ann, bob), "place": 1},
        {**_envelope("d", bob, None), "place": 2},
        {**_envelope(None, None, None), OP: "-D", "place": 3},
    ]
    rows = _through(env, _given(scanned, records), scanned)
    assert [(row[OP], row["name"], row["place"]) for row in rows] == [
        ("+I", "ann", 0),
        ("-U", "ann", 1),
        ("+U", "bob", 1),
        ("-D", "bob", 2),
    ]


def test_an_envelope_without_the_row_before_says_what_the_database_must_do(env: StreamEnvironment) -> None:
    scanned = _scanned(env.tables, "id INT", _DEBEZIUM)
    place = {"$topic": "t", "$partition": 0, "$offset": 5}
    with pytest.raises(PenstockError, match=r"topic 't', partition 0, offset 5: 'before' is null.*IDENTITY FULL"):
        _through(env, _given(scanned, [{**_envelope("u", None, {"id": 1}), **place}]), scanned)


def _decoded(scanned: ScannedTable, *records: bytes | None) -> pa.Table:
    assert isinstance(scanned.source, KafkaSource)
    rows = scanned.source._layout.format.decode(pa.array(records, pa.large_binary())).rows
    return _given(scanned, rows.to_pylist())


@pytest.mark.parametrize(
    ("record", "says"), [(b'{"id": 1}', "the record has no 'op'"), (b'{"op": "t"}', "'t' is no operation of Debezium")]
)
def test_a_record_that_is_no_envelope_fails_the_job_or_is_left_out(record: bytes, says: str) -> None:
    records = record, None, b'{"op": "c", "after": {"id": 2}}'
    strict, lenient = (StreamEnvironment(runtime="local", parallelism=1) for _ in range(2))
    scanned = _scanned(strict.tables, "id INT", _DEBEZIUM)
    with pytest.raises(PenstockError, match=says):
        _through(strict, _decoded(scanned, *records), scanned)
    scanned = _scanned(lenient.tables, "id INT", {**_DEBEZIUM, "debezium-json.ignore-parse-errors": "true"})
    assert _through(lenient, _decoded(scanned, *records), scanned) == [{"id": 2, OP: "+I"}]


def test_fields_of_an_envelope_that_cannot_be_read_are_null_where_that_is_asked_for(env: StreamEnvironment) -> None:
    scanned = _scanned(env.tables, "id INT, n BIGINT", {**_DEBEZIUM, "debezium-json.ignore-parse-errors": "true"})
    update = b'{"op": "u", "before": {"id": 1, "n": "?"}, "after": {"id": "1", "n": {}}, "ts_ms": []}'
    records = _decoded(scanned, update, b"{", b'{"op": "d", "before": [2]}', b'{"op": "c", "after": {"id": 3, "n": 4}}')
    assert _through(env, records, scanned) == [
        {"id": 1, "n": None, OP: "-U"},
        {"id": 1, "n": None, OP: "+U"},
        {"id": 3, "n": 4, OP: "+I"},
    ]


def test_changes_are_written_as_envelopes(env: StreamEnvironment) -> None:
    written = _written(env.tables, "id INT, n BIGINT", _DEBEZIUM)
    counts = env.sql("SELECT id, COUNT(*) AS n FROM (VALUES (1), (2)) AS t (id) GROUP BY id")
    assert counts is not None
    (stage,) = written.stages
    rows = list(env.tables.lowered(counts.plan)._add(stage.spec, stage.schema).collect())
    assert sorted(row["after"]["id"] for row in rows if row["op"] == "c") == [1, 2]


def test_changes_are_written_in_the_form_of_json_that_is_asked_for(env: StreamEnvironment) -> None:
    form = {"timestamp-format.standard": "SQL", "encode.decimal-as-plain-number": "true",
            "encode.ignore-null-fields": "true", "map-null-key.mode": "DROP"}  # fmt: skip
    options = {**_DEBEZIUM, **{f"debezium-json.{key}": value for key, value in form.items()}}
    sink = _written(env.tables, "at TIMESTAMP(3), d DECIMAL(3, 1)", options).sink
    assert isinstance(sink, KafkaSink)
    image = {"at": datetime.datetime(2020, 1, 2, 3, 4, 5), "d": decimal.Decimal("1.5")}
    row = {"before": None, "after": image, "op": "c"}
    rows = pa.RecordBatch.from_pylist([row], sink._layout.format.schema)
    (record,) = sink._layout.encode(_batch(rows), 0).to_pylist()
    assert record["value"] == b'{"after":{"at":"2020-01-02 03:04:05.000","d":1.5},"op":"c"}'


@pytest.mark.parametrize(("name", "rows"), [("json", 1), ("csv", 1), ("raw", 2)])
def test_a_record_without_a_value_is_no_row_but_of_the_raw_format(env: StreamEnvironment, name: str, rows: int) -> None:
    scanned = _scanned(env.tables, "word STRING", {**_KAFKA, **_EARLIEST, "format": name})
    value = b'{"word": "a"}' if name == "json" else b"a"
    found = _through(env, _decoded(scanned, value, None), scanned)
    assert found == [{"word": "a"}, {"word": None}][:rows]


@pytest.mark.parametrize("name", ["json", "csv", "avro"])
def test_a_format_gives_back_what_it_wrote(env: StreamEnvironment, name: str) -> None:
    columns = "id INT, price DECIMAL(10, 2), at TIMESTAMP(3), name STRING"
    scanned = _scanned(env.tables, columns, {**_KAFKA, **_EARLIEST, "format": name})
    assert isinstance(scanned.source, KafkaSource)
    fmt = scanned.source._layout.format
    given = [{"id": 1, "name": "a,b", OP: "+U"}, {"id": None, "name": "c", OP: "+U"}]
    rows = pa.RecordBatch.from_pylist(given, fmt.schema)
    assert fmt.decode(fmt.encode(rows)).rows == rows


_WRONG: tuple[tuple[dict[str, str], str, str], ...] = (
    ({"format": "jsno"}, "id INT", "the option 'format' takes json"),
    ({}, "id INT", "the option 'format' takes json"),
    ({"format": "json", "value.format": "json"}, "id INT", "mean the same"),
    ({"format": "csv", "json.ignore-parse-errors": "true"}, "id INT", "an option of the format 'json'"),
    ({"format": "csv", "csv.field-delimiter": "ab"}, "id INT", "takes one ASCII character on a line, not 'ab'"),
    ({"format": "csv"}, "ids MAP<INT, INT>", "column 'ids' cannot be"),
    ({"format": "raw"}, "id INT, name STRING", "the format 'raw' has one column, not 2"),
    ({"format": "json", "key.format": "json"}, "id INT", "'key.format' needs 'key.fields'"),
    ({"format": "json", "key.fields": "id"}, "id INT", "needs the option 'key.format'"),
    ({"format": "json", "key.fields": "ib", "key.format": "raw"}, "id INT", "'key.fields' names 'ib'"),
    ({"format": "json", "scan.startup.mode": "group-offsets"}, "id INT", "needs the option 'properties.group.id'"),
    ({"format": "json", "scan.startup.mode": "earliest"}, "id INT", "did you mean 'earliest-offset'"),
    ({"format": "json", "scan.startup.mode": "timestamp"}, "id INT", "the option 'scan.startup.timestamp-millis'"),
    ({"format": "json", "scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": "0:3"}, "id INT",
     "is written as partition:0,offset:42"),
    ({"format": "json", "topic": "t;u", "scan.startup.mode": "specific-offsets",
      "scan.startup.specific-offsets": "partition:0,offset:3"}, "id INT", "is of one topic"),
    ({"format": "json", "properties.sasl.mechanim": "PLAIN"}, "id INT", "did you mean 'sasl_mechanism'"),
    ({"format": "json", "properties.sasl.jaas.config": "x"}, "id INT", "give 'properties.sasl.plain.username'"),
    ({"format": "json"}, "id INT, v INT METADATA FROM 'leader' VIRTUAL", "'leader' is no metadata of Kafka's records"),
    ({"format": "json"}, "id INT, `offset` BIGINT METADATA", "cannot be written; declare offset METADATA VIRTUAL"),
    ({"format": "debezium-json", "key.format": "raw", "key.fields": "op"}, "op STRING, id INT", "rename it"),
    ({"connector": "upsert-kafka", "value.format": "json", "key.format": "json"}, "id INT", "needs PRIMARY KEY"),
    ({"connector": "jdbc", "url": "jdbc:mysql://db/shop", "table-name": "t"}, "id INT, PRIMARY KEY (id) NOT ENFORCED",
     "there is PostgreSQL only"),
    ({"connector": "jdbc", "url": "jdbc:postgresql://db/shop", "table-name": "t"}, "id INT", "declare PRIMARY KEY"),
    ({"connector": "jdbc", "url": "jdbc:postgresql://me:pw@db/shop", "table-name": "t"},
     "id INT, PRIMARY KEY (id) NOT ENFORCED", "give 'username' and 'password'"),
)  # fmt: skip


@pytest.mark.parametrize(("options", "columns", "says"), _WRONG, ids=[says for _, _, says in _WRONG])
def test_a_wrong_option_is_refused_at_its_place(
    env: StreamEnvironment, options: dict[str, str], columns: str, says: str
) -> None:
    base = {} if options.get("connector") == "jdbc" else {**_KAFKA, **_EARLIEST}
    if options.get("connector") == "upsert-kafka":
        base = _KAFKA
    with pytest.raises(SqlError) as raised:
        _scanned(env.tables, columns, {**base, **options})
    assert says in str(raised.value)
    assert raised.value.line >= 1


def test_an_unknown_option_names_the_nearest(env: StreamEnvironment) -> None:
    with pytest.raises(SqlValidationError, match=r"no option 'scan.startup.mod' \(did you mean 'scan.startup.mode'"):
        _scanned(env.tables, "id INT", {**_KAFKA, "format": "json", "scan.startup.mod": "x"})


def test_a_password_is_in_no_text_of_a_table_of_a_database(env: StreamEnvironment) -> None:
    options = {"connector": "jdbc", "url": "jdbc:postgresql://db:5432/shop", "table-name": "public.t",
               "username": "me", "password": "s/e:cret"}  # fmt: skip
    sink = _written(env.tables, "id INT, PRIMARY KEY (id) NOT ENFORCED", options).sink
    assert sink.describe() == "postgres(public.t, upsert)"
    assert "cret" not in repr(sink)
