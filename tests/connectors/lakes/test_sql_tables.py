"""Tables of SQL with the connectors `delta` and `iceberg`."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from penstock import StreamEnvironment

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


def test_rows_are_appended_to_an_iceberg_table(tmp_path: Path) -> None:
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
