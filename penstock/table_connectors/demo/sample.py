"""`sample`: a table of real data to try queries on.

`registry.py` lists it beside the others; `flights.py` reads the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.engine.connectors import LookupTable
from penstock.table_connectors.options import TableOptions
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.catalog.connectors import ScannedTable
from penstock.tables.catalog.loaded_tables import LoadedTable
from penstock.tables.lower.base import schema_of
from penstock.tables.plan.nodes import INSERT_ONLY, ChangelogMode, Columns


@dataclass(frozen=True, slots=True)
class SampleTable:
    """`sample`: real data to try queries on."""

    name: str = "sample"

    @property
    def options(self) -> Mapping[str, str]:
        return {"data": "flights: the 336,776 departures from New York in 2013 (pip install 'penstock[examples]')"}

    def source_mode(self, table: CatalogTable) -> ChangelogMode:
        return INSERT_ONLY

    def bounded(self, table: CatalogTable) -> bool:
        return True

    def scan(self, table: CatalogTable, columns: Columns) -> ScannedTable:
        from penstock.connectors.collection import CollectionSource
        from penstock.table_connectors.demo.flights import departures

        if TableOptions(table).required("data") != "flights":
            raise table.source.invalid(table.place_of("data"), "the sample data is 'flights'")
        rows = departures()
        for column in columns:
            if column.name not in rows.column_names:
                known = ", ".join(rows.column_names)
                raise table.source.invalid(table.at, f"the flights have no column {column.name!r}; they have {known}")
        schema = schema_of(columns)
        return ScannedTable(CollectionSource.of(rows.select(schema.names).cast(schema), None))

    def lookup(self, table: CatalogTable, columns: Columns, keys: tuple[str, ...]) -> LookupTable:
        return LoadedTable(self.scan(table, columns).source, schema_of(columns), keys)
