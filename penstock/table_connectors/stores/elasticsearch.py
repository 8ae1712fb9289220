"""`elasticsearch-7`: a table that keeps a document for each primary key, with the options of Flink's.

`registry.py` lists it beside the others. It takes updates and deletes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlsplit

from penstock.table_connectors.options import TableOptions
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.catalog.connectors import WrittenTable
from penstock.tables.plan.nodes import UPSERT, ChangelogMode, Columns

_SEARCH_OPTIONS: Final[Mapping[str, str]] = {
    "hosts": "http://host:port of one node",
    "index": "the name of the index",
    "format": "json, as it is without it",
    "username": "of the server",
    "password": "its password",
    "headers.*": "headers of each request, such as headers.Authorization",
}


@dataclass(frozen=True, slots=True)
class ElasticsearchTable:
    """`elasticsearch-7` and its successors: a document for each primary key."""

    name: str = "elasticsearch-7"

    @property
    def options(self) -> Mapping[str, str]:
        return _SEARCH_OPTIONS

    @property
    def choices(self) -> Mapping[str, Sequence[str]]:
        return {"format": ("json",)}

    def sink_mode(self, table: CatalogTable) -> ChangelogMode:
        return UPSERT

    def sink(self, table: CatalogTable, columns: Columns) -> WrittenTable:
        from penstock.connectors.elasticsearch.sink import ElasticsearchSink

        options = TableOptions(table)
        keys = options.primary_key()
        index = options.required("index")
        if "{" in index:
            raise options.invalid("index", "an index whose name is made of columns is not supported; give one index")
        url = _search_url(options)
        with options.placed():
            return WrittenTable(ElasticsearchSink(url, index, id=keys, headers=options.below("headers.")))


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
