"""`redis`: a table that keeps a hash for each primary key, and is looked up by it.

`registry.py` lists it beside the others. It takes updates and deletes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.engine.connectors import LookupTable
from penstock.table_connectors.options import TableOptions
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.catalog.connectors import WrittenTable
from penstock.tables.lower.base import schema_of
from penstock.tables.plan.nodes import UPSERT, ChangelogMode, Columns


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

    def sink_mode(self, table: CatalogTable) -> ChangelogMode:
        return UPSERT

    def sink(self, table: CatalogTable, columns: Columns) -> WrittenTable:
        from penstock.connectors.redis.sink import RedisSink

        options = TableOptions(table)
        keys = options.primary_key()
        url, ttl = options.required("url"), options.duration_ms("ttl", 0)
        with options.placed():
            lives = f"{ttl}ms" if options.get("ttl") is not None else None
            return WrittenTable(RedisSink(url, keys=keys, prefix=options.get("key-prefix") or "", ttl=lives))

    def lookup(self, table: CatalogTable, columns: Columns, keys: tuple[str, ...]) -> LookupTable:
        from penstock.connectors.redis.lookup import RedisLookup

        options = TableOptions(table)
        own = options.primary_key()
        if set(keys) != set(own):
            raise options.invalid(
                "connector", f"rows of Redis are looked up by the whole primary key ({', '.join(own)}): join by it"
            )
        with options.placed():
            prefix = options.get("key-prefix") or ""
            return RedisLookup(options.required("url"), keys=own, schema=schema_of(columns), prefix=prefix)
