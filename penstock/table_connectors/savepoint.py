"""`savepoint`: a state of a savepoint as a table, so that it is queried, joined and compared in SQL.

`registry.py` lists it beside the others. The state is read when the job is planned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.engine.connectors import LookupTable
from penstock.engine.errors import CheckpointError, StateError, nearest
from penstock.table_connectors.options import TableOptions
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.catalog.connectors import ScannedTable
from penstock.tables.catalog.loaded_tables import LoadedTable
from penstock.tables.lower.base import schema_of
from penstock.tables.plan.nodes import INSERT_ONLY, ChangelogMode, Columns
from penstock.tables.types import type_of_arrow


@dataclass(frozen=True, slots=True)
class SavepointTable:
    """`savepoint`: the rows of one state of one operator."""

    name: str = "savepoint"

    @property
    def options(self) -> Mapping[str, str]:
        return {
            "path": "the folder or URL of a savepoint or retained checkpoint",
            "operator": "the uid of the operator, as `penstock savepoint inspect` shows it",
            "state": "the name of the state; not needed where the operator has one",
        }

    def source_mode(self, table: CatalogTable) -> ChangelogMode:
        return INSERT_ONLY

    def bounded(self, table: CatalogTable) -> bool:
        return True

    def scan(self, table: CatalogTable, columns: Columns) -> ScannedTable:
        from penstock.connectors.collection import CollectionSource

        options, schema = TableOptions(table), schema_of(columns)
        rows = _rows(options)
        for column in table.definition.columns:
            if column.name in schema.names and column.name not in rows.column_names:
                known = ", ".join(f"{field.name} {_sql_type(field.type)}" for field in rows.schema)
                hint = nearest(column.name, rows.column_names)
                raise table.source.invalid(column.at, f"the state has no column {column.name!r}{hint}; it has {known}")
        try:
            chosen = rows.select(schema.names).cast(schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise options.invalid("state", f"the rows of the state do not fit the table's columns: {error}") from None
        return ScannedTable(CollectionSource.of(chosen, None))

    def lookup(self, table: CatalogTable, columns: Columns, keys: tuple[str, ...]) -> LookupTable:
        return LoadedTable(self.scan(table, columns).source, schema_of(columns), keys)


def _rows(options: TableOptions) -> pa.Table:
    """The rows of the state that the options name.

    Raises:
        SqlValidationError: there is no such savepoint, operator or state.
    """
    from penstock.savepoints.reader import read

    try:
        saved = read(options.required("path"))
    except CheckpointError as error:
        raise options.invalid("path", str(error)) from None
    try:
        operator = saved.operator(options.required("operator"))
    except CheckpointError as error:
        raise options.invalid("operator", str(error)) from None
    name = options.get("state")
    if name is None:
        names = [state.name for state in operator.states]
        if len(names) != 1:
            raise options.invalid("operator", f"the operator has {', '.join(names) or 'no state'}; name one by 'state'")
        name = names[0]
    try:
        return operator.state(name).to_arrow()
    except StateError as error:
        raise options.invalid("state", str(error)) from None


def _sql_type(kind: pa.DataType) -> str:
    found = type_of_arrow(kind)
    return str(kind) if found is None else str(found)
