"""What tables are made of: connectors by name, which give sources and sinks for the options of CREATE TABLE.

The front door registers them; planning and lowering see only this interface.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

import pyarrow as pa

from penstock.engine.connectors import LookupTable, Sink, Source
from penstock.engine.errors import SqlValidationError, nearest
from penstock.engine.operators.spec import OperatorSpec
from penstock.engine.windows.watermarks import WatermarkStrategy
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.plan.nodes import INSERT_ONLY, ChangelogMode, Columns
from penstock.tables.types import Kind


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
        stages: what makes these columns of others that the source gives, each row by itself, of a batch one at most.
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
    """A kind of table, such as `kafka`: it is scanned, written to, looked up, or several of these (as below)."""

    @property
    def name(self) -> str:
        """The value of the option `connector`."""
        ...

    @property
    def options(self) -> Mapping[str, str]:
        """The options that it knows, each with what it means, for SHOW CONNECTORS; `x.*` stands for a prefix."""
        ...


@runtime_checkable
class ChoosingConnector(TableConnector, Protocol):
    """One with options that take some values alone, which CREATE TABLE checks."""

    @property
    def choices(self) -> Mapping[str, Sequence[str]]:
        """These options, with the values that they take wherever they are given."""
        ...


@runtime_checkable
class ScanConnector(TableConnector, Protocol):
    """One whose tables FROM reads."""

    def source_mode(self, table: CatalogTable) -> ChangelogMode:
        """The changes that the table gives."""
        ...

    def bounded(self, table: CatalogTable) -> bool:
        """Whether its rows end."""
        ...

    def scan(self, table: CatalogTable, columns: Columns) -> ScannedTable:
        """How it is read."""
        ...


@runtime_checkable
class ColumnsConnector(ScanConnector, Protocol):
    """One that may read some of a table's columns, as files keep them apart."""

    def leaves_out(self, table: CatalogTable) -> bool:
        """Whether `scan` may be asked for some of the columns of this table."""
        ...


@runtime_checkable
class LogConnector(ScanConnector, Protocol):
    """One whose splits may be apart in time, each in order, so that event time is taken for each by itself."""

    def times_by_split(self, table: CatalogTable) -> bool:
        """Whether those of this table are; then `scan` gives rows that are only added."""
        ...


@runtime_checkable
class WatermarkConnector(ScanConnector, Protocol):
    """One whose tables may have WATERMARK FOR a column AS SOURCE_WATERMARK()."""

    def source_watermarks(self, table: CatalogTable) -> WatermarkStrategy:
        """How far the event time of the column has come."""
        ...


@runtime_checkable
class SinkConnector(TableConnector, Protocol):
    """One whose tables INSERT INTO writes to."""

    def sink_mode(self, table: CatalogTable) -> ChangelogMode:
        """The changes that the table takes."""
        ...

    def sink(self, table: CatalogTable, columns: Columns) -> WrittenTable:
        """How it is written to."""
        ...


@runtime_checkable
class LookupConnector(TableConnector, Protocol):
    """One whose tables FOR SYSTEM_TIME AS OF a column of PROCTIME() asks for rows by key."""

    def lookup(self, table: CatalogTable, columns: Columns, keys: tuple[str, ...]) -> LookupTable:
        """What looks rows up by the columns `keys`, and gives the table's columns."""
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
            SqlValidationError: it names none, or one that there is not, or an option or a value that the connector does
                not know.
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
        if isinstance(connector, ChoosingConnector):
            _check_choices(table, connector.choices)
        return connector

    def source_mode(self, table: CatalogTable) -> ChangelogMode:
        """The changes that a table gives to FROM; what is only looked up gives inserts.

        Raises:
            SqlValidationError: it cannot be read.
        """
        connector = self.of(table)
        if isinstance(connector, ScanConnector):
            return connector.source_mode(table)
        if isinstance(connector, LookupConnector):
            return INSERT_ONLY
        raise _refused(table, f"cannot be read: {table.connector!r} is for INSERT INTO only")

    def bounded(self, table: CatalogTable) -> bool:
        """Whether the rows that a table gives end."""
        connector = self.of(table)
        return not isinstance(connector, ScanConnector) or connector.bounded(table)

    def scan(self, table: CatalogTable, columns: Columns) -> ScannedTable:
        """How a table is read as a whole.

        Raises:
            SqlValidationError: it is only looked up.
        """
        connector = self.of(table)
        _check_read(table, columns)
        if isinstance(connector, ScanConnector):
            return connector.scan(table, columns)
        raise _refused(
            table,
            f"cannot be read: rows of {table.connector!r} are looked up by JOIN ... FOR SYSTEM_TIME AS OF a column of "
            "PROCTIME()",
        )

    def leaves_out(self, table: CatalogTable) -> bool:
        """Whether `scan` may be asked for some of a table's columns."""
        connector = self.of(table)
        return isinstance(connector, ColumnsConnector) and connector.leaves_out(table)

    def times_by_split(self, table: CatalogTable) -> bool:
        """Whether event time is taken for each split of a table by itself."""
        connector = self.of(table)
        return isinstance(connector, LogConnector) and connector.times_by_split(table)

    def source_watermarks(self, table: CatalogTable) -> WatermarkStrategy:
        """What SOURCE_WATERMARK() is for a table.

        Raises:
            SqlValidationError: its connector knows nothing of watermarks.
        """
        connector = self.of(table)
        if isinstance(connector, WatermarkConnector):
            return connector.source_watermarks(table)
        raise _refused(
            table,
            f"has no SOURCE_WATERMARK(): the connector {table.connector!r} knows nothing of watermarks; write one over "
            "the columns, such as `ts - INTERVAL '5' SECOND`",
        )

    def sink_mode(self, table: CatalogTable) -> ChangelogMode:
        """The changes that a table takes.

        Raises:
            SqlValidationError: it cannot be written to.
        """
        return self._written(table).sink_mode(table)

    def sink(self, table: CatalogTable, columns: Columns) -> WrittenTable:
        """How a table is written to.

        Raises:
            SqlValidationError: it cannot be.
        """
        found = _without_format(columns)
        if found is not None and any(key.endswith("format") for key in table.options):
            kind, column = found
            instead, function = _INSTEAD[kind][0], _INSTEAD[kind][2]
            raise _refused(
                table,
                f"cannot be written to: no format has {kind.value}, which column {column!r} is; declare it {instead} "
                f"and write {function}(...)",
            )
        return self._written(table).sink(table, columns)

    def lookup(self, table: CatalogTable, columns: Columns, keys: tuple[str, ...]) -> LookupTable:
        """What looks rows of a table up by the columns `keys`.

        Raises:
            SqlValidationError: it cannot be asked for rows by key.
        """
        connector = self.of(table)
        _check_read(table, columns)
        if isinstance(connector, LookupConnector):
            return connector.lookup(table, columns, keys)
        raise _refused(
            table,
            f"cannot be looked up: the connector {table.connector!r} cannot be asked for rows by key; join AS OF event "
            "time, or without FOR SYSTEM_TIME AS OF",
        )

    def _written(self, table: CatalogTable) -> SinkConnector:
        connector = self.of(table)
        if isinstance(connector, SinkConnector):
            return connector
        raise _refused(table, f"cannot be written to: {table.connector!r} is read only")


_INSTEAD: Final = {
    Kind.VARIANT: ("STRING", "PARSE_JSON", "JSON_STRING"),
    Kind.BITMAP: ("BYTES", "BITMAP_FROM_BYTES", "BITMAP_TO_BYTES"),
}
"""What columns are in connectors in the place of types that they do not have, and the functions to and fro."""


def _without_format(columns: Columns) -> tuple[Kind, str] | None:
    """The first column of a type that no connector has."""
    found = ((kind, column.name) for column in columns for kind in _INSTEAD if column.type.has(kind))
    return next(found, None)


def _check_read(table: CatalogTable, columns: Columns) -> None:
    found = _without_format(columns)
    if found is not None:
        kind, column = found
        instead, function, _ = _INSTEAD[kind]
        raise _refused(
            table,
            f"cannot be read: no connector gives {kind.value}, which column {column!r} is; declare it {instead} and "
            f"compute {function}(...)",
        )


def _check_choices(table: CatalogTable, choices: Mapping[str, Sequence[str]]) -> None:
    for option, known in choices.items():
        value = table.options.get(option)
        if value is not None and value not in known:
            raise table.source.invalid(
                table.place_of(option),
                f"the option {option!r} takes {', '.join(known)}, not {value!r}{nearest(value, known)}",
            )


def _refused(table: CatalogTable, problem: str) -> SqlValidationError:
    return table.source.invalid(table.place_of("connector"), f"table {table.name!r} {problem}")


def _is_known(option: str, known: Mapping[str, str]) -> bool:
    return option in known or any(key.endswith("*") and option.startswith(key[:-1]) for key in known)
