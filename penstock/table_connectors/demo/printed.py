"""`print`: a table that shows each change where it is written, with the options of Flink's.

`registry.py` lists it beside the others.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from penstock.engine.changelog import ANY_MODE
from penstock.engine.changelog import ChangelogMode as EngineMode
from penstock.engine.connectors import ConnectorContext, Sink, SinkWriter
from penstock.engine.elements import Batch
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.catalog.connectors import WrittenTable
from penstock.tables.plan.nodes import RETRACT, ChangelogMode, Columns

_OP: Final = ("+I", "-U", "+U", "-D")


class _PrintedRows(SinkWriter):
    def __init__(self, prefix: str, stream_name: str) -> None:
        self._prefix, self._stream_name = prefix, stream_name

    def write(self, batch: Batch) -> None:
        """Print each row on a line, behind its kind."""
        kinds = [0] * batch.num_rows if batch.kinds is None else batch.kinds.to_pylist()
        lines = [
            f"{self._prefix}{_OP[kind]}[{', '.join('null' if value is None else str(value) for value in row.values())}]"
            for kind, row in zip(kinds, batch.data.to_pylist(), strict=True)
        ]
        print("\n".join(lines), file=getattr(sys, self._stream_name), flush=True)


@dataclass(frozen=True, slots=True)
class _Printed(Sink):
    prefix: str
    stream_name: str

    def open(self, context: ConnectorContext) -> SinkWriter:
        return _PrintedRows(self.prefix, self.stream_name)

    def describe(self) -> str:
        return "print"

    @property
    def changelog_modes(self) -> AbstractSet[EngineMode]:
        return ANY_MODE


@dataclass(frozen=True, slots=True)
class PrintTable:
    """`print`: writes each change to the standard output of the process that its subtask is in."""

    name: str = "print"

    @property
    def options(self) -> Mapping[str, str]:
        return {
            "print-identifier": "stands before each row, with > behind it",
            "standard-error": "'true' prints to the standard error",
        }

    def sink_mode(self, table: CatalogTable) -> ChangelogMode:
        return RETRACT

    def sink(self, table: CatalogTable, columns: Columns) -> WrittenTable:
        identifier = table.options.get("print-identifier")
        is_error = table.options.get("standard-error", "false").lower() == "true"
        prefix = "" if identifier is None else f"{identifier}> "
        return WrittenTable(_Printed(prefix, "stderr" if is_error else "stdout"))
