"""Tables of servers that send records when they like: `socket`, with the options of Flink's, `http` and `websocket`.

`registry.py` lists them beside the others. What was sent before a failure cannot be asked for again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.table_connectors.formats.options import (
    LIVE_FORMAT_OPTIONS,
    PLAIN,
    leaves_bad_out,
    record_format,
    value_format,
)
from penstock.table_connectors.options import TableOptions
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.catalog.connectors import ScannedTable, Stage
from penstock.tables.lower.base import schema_of
from penstock.tables.plan.nodes import INSERT_ONLY, ChangelogMode, Columns

if TYPE_CHECKING:
    from penstock.connectors.live import LiveSource, Restore
    from penstock.connectors.records.format import RecordFormat

_RESTORE: Final = "scan.restore"
_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "socket": {
        "hostname": "of the server",
        "port": "of the server",
        "byte-delimiter": "the number of the byte that ends a record; 10, a newline, without it",
    },
    "http": {
        "url": "http:// or https://",
        "poll-interval": "how long to wait between two requests; without it one answer is read while it comes",
        "headers.*": "headers of each request, such as headers.Authorization",
    },
    "websocket": {
        "url": "ws:// or wss://",
        "headers.*": "headers of the request, such as headers.Authorization",
        "subscribe": "a text that is sent when the connection is open",
    },
}


@dataclass(frozen=True, slots=True)
class LiveTable:
    """The records of one connection, each a row.

    Args:
        name: `socket`, `http` or `websocket`.
    """

    name: str

    @property
    def options(self) -> Mapping[str, str]:
        restore = "refuse (without it: no checkpoints), or skip: what is sent between a failure and the restart is lost"
        return {**_OPTIONS[self.name], _RESTORE: restore, **LIVE_FORMAT_OPTIONS}

    @property
    def choices(self) -> Mapping[str, Sequence[str]]:
        return {"format": PLAIN}

    def source_mode(self, table: CatalogTable) -> ChangelogMode:
        return INSERT_ONLY

    def bounded(self, table: CatalogTable) -> bool:
        return False

    def scan(self, table: CatalogTable, columns: Columns) -> ScannedTable:
        options, schema = TableOptions(table), schema_of(columns)
        name, prefix = value_format(options, PLAIN)
        form = record_format(options, name, prefix, schema, table.name)
        restore: Restore = options.choice(_RESTORE, ("refuse", "skip"), "refuse")
        with options.placed():
            if not leaves_bad_out(options, name, prefix):
                return ScannedTable(self._source(options, form, restore))
            from penstock.table_connectors.formats.mended_rows import KeptFormat, KeptRows, MendedRowsSpec

            stage = Stage(MendedRowsSpec(KeptRows(schema)), schema)
            return ScannedTable(self._source(options, KeptFormat(form), restore), stages=(stage,))

    def _source(self, options: TableOptions, form: RecordFormat, restore: Restore) -> LiveSource:
        headers = options.below("headers.")
        if self.name == "socket":
            from penstock.connectors.sockets.text import SocketTextSource

            ended = options.number("byte-delimiter", 10)
            if not 0 <= ended < 128:
                raise options.invalid("byte-delimiter", "'byte-delimiter' is the number of a character of ASCII")
            options.required("port")
            host, port = options.required("hostname"), options.number("port", 0)
            return SocketTextSource(host, port, delimiter=chr(ended), format=form, restore=restore)
        url = options.required("url")
        if self.name == "http":
            from penstock.connectors.http.source import HttpSource

            poll = options.get("poll-interval")
            return HttpSource(url, format=form, poll=poll, headers=headers, restore=restore)
        from penstock.connectors.sockets.web_socket import WebSocketSource

        first = options.get("subscribe")
        asked = () if first is None else (first,)
        return WebSocketSource(url, format=form, subscribe=asked, headers=headers, restore=restore)
