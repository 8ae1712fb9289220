"""Tables of SQL with the connectors `delta` and `iceberg`."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from penstock import StreamEnvironment
from penstock.engine.errors import SqlError

_ROWS = "SELECT * FROM (VALUES (CAST(1 AS BIGINT), 'pen'), (2, 'cup')) AS t (i, name)"
_COLUMNS = pa.schema({"i": pa.int64(), "name": pa.string()})


def test_rows_are_appended_to_a_delta_table(tmp_path: Path) -> None:
    deltalake.DeltaTable.create(tmp_path, deltalake.Schema.from_arrow(_COLUMNS))
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.sql(f"CREATE TABLE t (i BIGINT, name STRING) WITH ('connector' = 'delta', 'table-path' = '{tmp_path}')")
    env.sql(f"INSERT INTO t {_ROWS}")
    env.execute()
    assert deltalake.DeltaTable(tmp_path).to_pyarrow_table().to_pylist() == [
        {"i": 1, "name": "pen"},
        {"i": 2, "name": "cup"},
    ]
    assert _read(env) == [{"name": "pen", "i": 1}, {"name": "cup", "i": 2}]


def _read(env: StreamEnvironment) -> list[dict[str, object]]:
    table = env.sql("SELECT name, i FROM t ORDER BY i LIMIT 9")
    assert table is not None
    return [{"name": row["name"], "i": row["i"]} for row in table.to_changelog().collect() if row["op"] == "+I"]


def test_what_the_files_of_a_delta_table_do_not_have_is_refused(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path, pa.table({"i": [1], "by": ["x"]}), partition_by=["by"])
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.sql(f"CREATE TABLE t (i INT, `by` STRING) WITH ('connector' = 'delta', 'table-path' = '{tmp_path}')")
    table = env.sql("SELECT i FROM t")
    assert table is not None
    with pytest.raises(SqlError, match="the values of 'by', by which it is partitioned, are in the names of folders"):
        table.collect()
    env.sql(f"CREATE TABLE u (i INT) WITH ('connector' = 'delta', 'table-path' = '{tmp_path}')")
    found = env.sql("SELECT * FROM u")
    assert found is not None
    assert list(found.collect()) == [{"i": 1}]


def test_rows_are_appended_to_an_iceberg_table(tmp_path: Path) -> None:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.types import StringType

    uri = f"sqlite:///{tmp_path}/catalog.db"
    with SqlCatalog("c", uri=uri, warehouse=f"file://{tmp_path}") as catalog:
        catalog.create_namespace("sales")
        catalog.create_table("sales.t", _COLUMNS)
        env = StreamEnvironment(runtime="local", parallelism=1)
        env.sql(
            "CREATE TABLE t (i BIGINT, name STRING) WITH ('connector' = 'iceberg', 'catalog-name' = 'c', "
            f"'catalog-type' = 'sql', 'uri' = '{uri}', 'warehouse' = 'file://{tmp_path}', 'catalog-database' = 'sales')"
        )
        env.sql(f"INSERT INTO t {_ROWS}")
        env.execute()
        assert catalog.load_table("sales.t").scan().to_arrow().to_pylist() == [
            {"i": 1, "name": "pen"},
            {"i": 2, "name": "cup"},
        ]
        assert _read(env) == [{"name": "pen", "i": 1}, {"name": "cup", "i": 2}]
        with catalog.load_table("sales.t").update_schema() as changed:
            changed.delete_column("name")
        with catalog.load_table("sales.t").update_schema() as changed:
            changed.add_column("name", StringType())
        with pytest.raises(SqlError, match="'name' was another column before"):
            _read(env)
