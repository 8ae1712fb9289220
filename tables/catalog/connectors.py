"""What tables are made of: connectors by name, which give sources and sinks for the options of CREATE TABLE.

The front door registers them; planning and lowering see only this interface.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.engine.connectors import LookupTable, Sink, Source
from penstock.engine.errors import nearest
from penstock.engine.operators.spec import OperatorSpec
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.plan.nodes import ChangelogMode, Columns


@dataclass(frozen=True, slots=True)
class Stage:
    """An operator between a connector and its table.

    Args:
        spec: creates it.
        schema: of what it gives.
    """

    spec: OperatorSpec
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class ScannedTable:
    """How a table is read.

    Args:
        source: gives the table's physical columns, by their names, with the types of their SQL types.
        op: a column of the source, behind the table's, that says the kind of each change as `+I`, `-U`, `+U` or `-D`;
            None where all rows are inserts.
        stages: what makes these columns of others that the source gives.
    """

    source: Source
    op: str | None = None
    stages: tuple[Stage, ...] = ()


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """How a table is written to.

    Args:
        sink: takes the table's physical columns, and the changes that `sink_mode` says.
        stages: what makes rows that the sink takes of these.
        overwriting: takes the place of `sink` for INSERT OVERWRITE; None: the table cannot be overwritten.
    """

    sink: Sink
    stages: tuple[Stage, ...] = ()
    overwriting: Sink | None = None


class TableConnector(Protocol):
    """A kind of table, such as `kafka`."""

    @property
    def name(self) -> str:
        """The value of the option `connector`."""
        ...

    @property
    def options(self) -> Mapping[str, str]:
        """The options that it knows, each with what it means, for SHOW CONNECTORS; `x.*` stands for a prefix."""
        ...

    def source_mode(self, table: CatalogTable) -> ChangelogMode | None:
        """The changes that the table gives when it is read; None: it cannot be read."""
        ...

    def sink_mode(self, table: CatalogTable) -> ChangelogMode | None:
        """The changes that the table takes; None: it cannot be written to."""
        ...

    def bounded(self, table: CatalogTable) -> bool:
        """Whether the rows of a table that can be read end."""
        ...

    def scan(self, table: CatalogTable, columns: Columns) -> ScannedTable:
        """How it is read."""
        ...

    def sink(self, table: CatalogTable, columns: Columns) -> WrittenTable:
        """How it is written to."""
        ...

    def lookup(self, table: CatalogTable, columns: Columns, keys: tuple[str, ...]) -> LookupTable | None:
        """What looks rows up by the columns `keys`, and gives the table's columns; None: it cannot be looked up."""
        ...


class Connectors:
    """The connectors of one environment, by name."""

    def __init__(self, connectors: Iterable[TableConnector] = ()) -> None:
        self._connectors = {connector.name: connector for connector in connectors}

    def register(self, connector: TableConnector) -> None:
        """Add a connector, in the place of one with its name."""
        self._connectors[connector.name] = connector

    def names(self) -> list[str]:
        """All names, in order."""
        return sorted(self._connectors)

    def of(self, table: CatalogTable) -> TableConnector:
        """The connector of a table.

        Raises:
            SqlValidationError: it names none, or one that there is not, or an option that the connector does not know.
        """
        source, at = table.source, table.place_of("connector")
        known = ", ".join(self.names())
        if not table.connector:
            raise source.invalid(at, f"table {table.name!r} names no connector; add WITH ('connector' = ...): {known}")
        connector = self._connectors.get(table.connector)
        if connector is None:
            hint = nearest(table.connector, self._connectors)
            raise source.invalid(at, f"there is no connector {table.connector!r}{hint}; there are {known}")
        for option in table.options:
            if option != "connector" and not _is_known(option, connector.options):
                hint = nearest(option, connector.options)
                raise source.invalid(
                    table.place_of(option),
                    f"the connector {connector.name!r} has no option {option!r}{hint}; it has "
                    f"{', '.join(connector.options)}",
                )
        return connector

    def source_mode(self, table: CatalogTable) -> ChangelogMode:
        """The changes that a table gives.

        Raises:
            SqlValidationError: it cannot be read.
        """
        mode = self.of(table).source_mode(table)
        if mode is None:
            raise table.source.invalid(
                table.place_of("connector"),
                f"table {table.name!r} cannot be read: {table.connector!r} is for INSERT INTO only",
            )
        return mode

    def sink_mode(self, table: CatalogTable) -> ChangelogMode:
        """The changes that a table takes.

        Raises:
            SqlValidationError: it cannot be written to.
        """
        mode = self.of(table).sink_mode(table)
        if mode is None:
            raise table.source.invalid(
                table.place_of("connector"),
                f"table {table.name!r} cannot be written to: {table.connector!r} is read only",
            )
        return mode


def _is_known(option: str, known: Mapping[str, str]) -> bool:
    return option in known or any(key.endswith("*") and option.startswith(key[:-1]) for key in known)
