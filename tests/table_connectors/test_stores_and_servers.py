"""Tables of connectors that need no server of their own: what they read, and how wrong options are refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from penstock import StreamEnvironment
from penstock.engine.errors import SqlError
from penstock.table_connectors.formats.options import record_format
from penstock.table_connectors.options import TableOptions
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.environment import TableEnvironment
from tests.connectors.http.servers import answer, serve
from tests.connectors.sockets.test_text import serving

_KEY = "k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED"
_REDIS = "'connector' = 'redis', 'url' = 'redis://nowhere'"
_SEARCH = "'connector' = 'elasticsearch-7', 'hosts' = 'http://nowhere:1', 'index' = 'i'"
_HTTP = "'connector' = 'http', 'url' = 'http://nowhere:1', 'format' = 'json'"
_SOCKET = "'connector' = 'socket', 'hostname' = 'nowhere', 'port' = '1', 'format' = 'csv'"

WRONG: tuple[tuple[str, str, str, str], ...] = (
    ("k STRING", _REDIS, "connector", "declare PRIMARY KEY"),
    (_KEY, _REDIS.replace("redis://", "http://"), "connector", "redis://"),
    (_KEY, f"{_REDIS}, 'ttl' = 'long'", "ttl", "ttl"),
    (_KEY, f"{_REDIS}, 'ttl' = '0 s'", "connector", "a millisecond at least"),
    (_KEY, "'connector' = 'redis'", "connector", "needs the option 'url'"),
    (_KEY, f"{_SEARCH}, 'idnex' = 'i'", "idnex", "did you mean 'index'"),
    (_KEY, _SEARCH.replace("'i'", "'{k}'"), "index", "give one index"),
    (_KEY, _SEARCH.replace("nowhere:1", "a:1;http://b:1"), "hosts", "give one host"),
    (_KEY, f"{_SEARCH}, 'username' = 'u'", "connector", "'username' needs the option 'password'"),
    (_KEY, f"{_SEARCH}, 'format' = 'csv'", "format", "takes json"),
    ("k STRING", "'connector' = 'delta'", "connector", "needs the option 'table-path'"),
)
UNREADABLE: tuple[tuple[str, str, str, str], ...] = (
    ("k STRING", f"{_HTTP}, 'poll-interval' = '0 s'", "connector", "poll must be a millisecond at least"),
    ("k STRING", _HTTP.replace("http://", "ftp://"), "connector", "http"),
    ("k STRING", _HTTP.replace("json", "debezium-json"), "format", "takes json, csv"),
    ("k STRING", _SOCKET.replace("'1'", "'x'"), "port", "takes a whole number"),
    ("k STRING", f"{_SOCKET}, 'byte-delimiter' = '300'", "byte-delimiter", "a character of ASCII"),
    ("k STRING", f"{_SOCKET}, 'scan.restore' = 'no'", "scan.restore", "takes refuse, skip"),
    ("k STRING", "'connector' = 'websocket', 'url' = 'http://x', 'format' = 'json'", "connector", "ws"),
    ("k STRING", _REDIS, "connector", "are looked up by JOIN"),
)


@pytest.fixture
def tables() -> TableEnvironment:
    return StreamEnvironment(runtime="local", parallelism=1).tables


def _run(tables: TableEnvironment, script: str) -> None:
    for parsed, source in tables.script(script):
        table = tables.run(parsed, source)
        if table is not None:
            table.rows()


def _refused(tables: TableEnvironment, columns: str, options: str, statement: str) -> SqlError:
    script = f"CREATE TABLE t ({columns}) WITH (\n  {options.replace(', ', ',' + chr(10) + '  ')}\n); {statement}"
    with pytest.raises(SqlError) as raised:
        _run(tables, script)
    return raised.value


@pytest.mark.parametrize(("columns", "options", "place", "says"), WRONG)
def test_a_wrong_option_of_a_sink_is_pointed_at(
    tables: TableEnvironment, columns: str, options: str, place: str, says: str
) -> None:
    values = "'a'" if columns == "k STRING" else "'a', CAST(1 AS BIGINT)"
    error = _refused(tables, columns, options, f"INSERT INTO t SELECT {values}")
    assert says in str(error)
    assert error.excerpt.strip().startswith(f"'{place}'")


@pytest.mark.parametrize(("columns", "options", "place", "says"), UNREADABLE)
def test_a_wrong_option_of_a_source_is_pointed_at(
    tables: TableEnvironment, columns: str, options: str, place: str, says: str
) -> None:
    error = _refused(tables, columns, options, "SELECT * FROM t")
    assert says in str(error)
    assert error.excerpt.strip().startswith(f"'{place}'")


def test_an_answer_of_http_is_a_table(tables: TableEnvironment) -> None:
    lines = b'{"k": "a", "n": 1}\n{"k": "b", "n": 2}\n'
    with serve(lambda request: answer(request, lines)) as url:
        tables.sql(
            f"CREATE TABLE t (k STRING, n INT) WITH ('connector' = 'http', 'url' = '{url}', 'format' = 'json', "
            "'headers.Accept' = 'application/x-ndjson')"
        )
        table = tables.sql("SELECT k, n * 2 AS n FROM t WHERE n > 1")
        assert table is not None
        assert list(table.collect()) == [{"k": "b", "n": 4}]


def test_records_of_a_socket_are_a_table_without_those_that_are_no_rows(tables: TableEnvironment) -> None:
    with serving([b"a,1|1,2,3|b,", b"2|c,?|"]) as port:
        tables.sql(
            "CREATE TABLE t (k STRING, n INT) WITH ('connector' = 'socket', 'hostname' = '127.0.0.1', "
            f"'port' = '{port}', 'byte-delimiter' = '124', 'format' = 'csv', 'csv.ignore-parse-errors' = 'true')"
        )
        table = tables.sql("SELECT * FROM t")
        assert table is not None
        assert list(table.collect()) == [{"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "c", "n": None}]


def _described(tables: TableEnvironment, file: Path, columns: str, message: str = "shop.Order") -> CatalogTable:
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    shop = files.file.add(name="shop.proto", package="shop", syntax="proto3")
    shop.dependency.append("google/protobuf/timestamp.proto")
    order = shop.message_type.add(name="Order")
    kinds = descriptor_pb2.FieldDescriptorProto
    order.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    order.field.add(name="item", number=2, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    order.field.add(
        name="at", number=3, type=kinds.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=kinds.LABEL_OPTIONAL
    )
    file.write_bytes(files.SerializeToString())
    tables.sql(
        f"CREATE TABLE t ({columns}) WITH ('connector' = 'http', 'url' = 'http://nowhere:1', 'format' = 'protobuf', "
        f"'protobuf.message-class-name' = '{message}', 'protobuf.descriptor-file' = '{file}')"
    )
    table = tables.catalog.find("t")
    assert isinstance(table, CatalogTable)
    return table


def test_fields_of_messages_are_columns_in_the_order_of_the_table(tables: TableEnvironment, tmp_path: Path) -> None:
    table = _described(tables, tmp_path / "shop.desc", "at TIMESTAMP_LTZ(3), id BIGINT")
    schema = pa.schema([("at", pa.timestamp("ms", "UTC")), ("id", pa.int64())])
    form = record_format(TableOptions(table), "protobuf", "", schema, "t")
    rows = pa.RecordBatch.from_pylist([{"at": 1_700_000_000_123, "id": 7}, {"at": None, "id": 8}], schema)
    assert form.decode(form.encode(rows)).rows.equals(rows)


def test_a_number_that_its_column_cannot_hold_makes_a_message_bad(tables: TableEnvironment, tmp_path: Path) -> None:
    table = _described(tables, tmp_path / "shop.desc", "id INT")
    wide, narrow = (
        record_format(TableOptions(table), "protobuf", "", pa.schema([("id", kind)]), "t")
        for kind in (pa.int64(), pa.int32())
    )
    messages = wide.encode(pa.RecordBatch.from_pylist([{"id": 1}, {"id": 2**40}, {"id": 3}], wide.schema)).to_pylist()
    found = narrow.decode(pa.array([b"no message", *messages], pa.large_binary()))
    assert found.rows.to_pylist() == [{"id": 1}, {"id": 3}]
    assert [bad.index for bad in found.bad] == [0, 2]
    assert "a field does not fit its column" in found.bad[1].reason


@pytest.mark.parametrize(
    ("columns", "message", "says"),
    [
        ("idd BIGINT", "shop.Order", "has no field 'idd' (did you mean 'id'?)"),
        ("id ARRAY<INT>", "shop.Order", "the field 'id' of shop.Order is int64"),
        ("id BIGINT", "shop.Ordre", "shop.Ordre"),
    ],
)
def test_what_a_message_does_not_have_is_refused(
    tables: TableEnvironment, tmp_path: Path, columns: str, message: str, says: str
) -> None:
    _described(tables, tmp_path / "shop.desc", columns, message)
    with pytest.raises(SqlError) as raised:
        _run(tables, "SELECT * FROM t")
    assert says in str(raised.value)
    assert raised.value.column > 40
