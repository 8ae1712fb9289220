"""Tables of stores that keep one row for each key: `redis`, and `elasticsearch` with the options of Flink's.

`table_connectors.py` lists them beside the others. Both take updates and deletes by the primary key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlsplit

from penstock.engine.connectors import LookupTable
from penstock.table_options import TableOptions
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.catalog.connectors import ScannedTable, WrittenTable
from penstock.tables.lower.lowering import schema_of
from penstock.tables.plan.nodes import INSERT_ONLY, UPSERT, ChangelogMode, Columns

_SEARCH_OPTIONS: Final[Mapping[str, str]] = {
    "hosts": "http://host:port of one node",
    "index": "the name of the index",
    "format": "json, as it is without it",
    "username": "of the server",
    "password": "its password",
    "headers.*": "headers of each request, such as headers.Authorization",
}


@dataclass(frozen=True, slots=True)
class RedisTable:
    """`redis`: a hash for each primary key."""

    name: str = "redis"

    @property
    def options(self) -> Mapping[str, str]:
        return {
            "url": "redis://user:password@host:port/0, or rediss://",
            "key-prefix": "before each key, such as 'user:'",
            "ttl": "how long a key lives after it was written; for ever without it",
        }

    def source_mode(self, table: CatalogTable) -> ChangelogMode:
        # What a lookup gives; `scan` refuses all else.
        return INSERT_ONLY

    def sink_mode(self, table: CatalogTable) -> ChangelogMode:
        return UPSERT

    def bounded(self, table: CatalogTable) -> bool:
        return True

    def scan(self, table: CatalogTable, columns: Columns) -> ScannedTable:
        raise TableOptions(table).invalid(
            "connector",
            f"table {table.name!r} cannot be read: rows of Redis are looked up by JOIN ... FOR SYSTEM_TIME AS OF a "
            "column of PROCTIME()",
        )

    def sink(self, table: CatalogTable, columns: Columns) -> WrittenTable:
        from penstock.connectors.redis.sink import RedisSink

        options, keys = TableOptions(table), _keys(table)
        url, ttl = options.required("url"), options.duration_ms("ttl", 0)
        with options.placed():
            lives = f"{ttl}ms" if options.get("ttl") is not None else None
            return WrittenTable(RedisSink(url, keys=keys, prefix=options.get("key-prefix") or "", ttl=lives))

    def lookup(self, table: CatalogTable, columns: Columns, keys: tuple[str, ...]) -> LookupTable:
        from penstock.connectors.redis.lookup import RedisLookup

        options, own = TableOptions(table), _keys(table)
        if set(keys) != set(own):
            raise options.invalid(
                "connector", f"rows of Redis are looked up by the whole primary key ({', '.join(own)}): join by it"
            )
        with options.placed():
            prefix = options.get("key-prefix") or ""
            return RedisLookup(options.required("url"), keys=own, schema=schema_of(columns), prefix=prefix)


@dataclass(frozen=True, slots=True)
class ElasticsearchTable:
    """`elasticsearch-7` and its successors: a document for each primary key."""

    name: str = "elasticsearch-7"

    @property
    def options(self) -> Mapping[str, str]:
        return _SEARCH_OPTIONS

    def source_mode(self, table: CatalogTable) -> None:
        return None

    def sink_mode(self, table: CatalogTable) -> ChangelogMode:
        return UPSERT

    def bounded(self, table: CatalogTable) -> bool:
        return True

    def scan(self, table: CatalogTable, columns: Columns) -> ScannedTable:
        raise NotImplementedError("source_mode says that it cannot be read")

    def sink(self, table: CatalogTable, columns: Columns) -> WrittenTable:
        from penstock.connectors.elasticsearch.sink import ElasticsearchSink

        options, keys = TableOptions(table), _keys(table)
        index = options.required("index")
        if "{" in index:
            raise options.invalid("index", "an index whose name is made of columns is not supported; give one index")
        options.choice("format", ("json",), "json")
        url = _search_url(options)
        with options.placed():
            return WrittenTable(ElasticsearchSink(url, index, id=keys, headers=options.below("headers.")))

    def lookup(self, table: CatalogTable, columns: Columns, keys: tuple[str, ...]) -> None:
        return None


def _search_url(options: TableOptions) -> str:
    """The address of the server, with user and password."""
    hosts = options.required("hosts").strip(";")
    if ";" in hosts:
        raise options.invalid("hosts", "give one host; a proxy before them shares requests out")
    user, parts = options.get("username"), urlsplit(hosts)
    if user is None:
        return hosts
    if "@" in parts.netloc:
        raise options.invalid("hosts", "'hosts' has a user; leave it out, or 'username'")
    secret = quote(options.required("password", "'username'"), safe="")
    return parts._replace(netloc=f"{quote(user, safe='')}:{secret}@{parts.netloc}").geturl()


def _keys(table: CatalogTable) -> tuple[str, ...]:
    """The columns of the primary key.

    Raises:
        SqlValidationError: there is none.
    """
    if not table.definition.primary_key:
        raise TableOptions(table).invalid(
            "connector", f"{table.connector!r} keeps a row for each key; declare PRIMARY KEY (...) NOT ENFORCED"
        )
    return tuple(column.name for column in table.definition.primary_key)
