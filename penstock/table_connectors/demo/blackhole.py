"""`blackhole`: a table that takes all changes and forgets them, with the options of Flink's.

`registry.py` lists it beside the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from penstock.engine.changelog import ANY_MODE
from penstock.engine.changelog import ChangelogMode as EngineMode
from penstock.engine.connectors import ConnectorContext, Sink, SinkWriter
from penstock.engine.elements import Batch
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.catalog.connectors import WrittenTable
from penstock.tables.plan.nodes import RETRACT, ChangelogMode, Columns


class _NoRows(SinkWriter):
    def write(self, batch: Batch) -> None:
        """Forget the rows."""


@dataclass(frozen=True, slots=True)
class _BlackHole(Sink):
    def open(self, context: ConnectorContext) -> SinkWriter:
        return _NoRows()

    def describe(self) -> str:
        return "blackhole"

    @property
    def changelog_modes(self) -> AbstractSet[EngineMode]:
        return ANY_MODE


@dataclass(frozen=True, slots=True)
class BlackHoleTable:
    """`blackhole`: takes all changes, and forgets them."""

    name: str = "blackhole"

    @property
    def options(self) -> Mapping[str, str]:
        return {}

    def sink_mode(self, table: CatalogTable) -> ChangelogMode:
        return RETRACT

    def sink(self, table: CatalogTable, columns: Columns) -> WrittenTable:
        return WrittenTable(_BlackHole())
