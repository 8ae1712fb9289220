"""The catalog: tables, views and streams by name, for one environment.

The binder resolves names in it; DDL statements and `TableEnvironment` change it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from penstock.engine.api.streams import DataStream
from penstock.engine.errors import nearest
from penstock.tables.parse.nodes import Identifier, Name
from penstock.tables.parse.queries import Query
from penstock.tables.parse.statements import MetadataColumn, TableDefinition
from penstock.tables.parse.text import SqlText
from penstock.tables.plan.nodes import Columns

CATALOG = "default_catalog"
DATABASE = "default_database"


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table of CREATE TABLE.

    Args:
        name: its own name.
        definition: its columns, keys and watermark.
        options: of WITH.
        source: the text of the statement, for errors and SHOW CREATE TABLE.
    """

    name: str
    definition: TableDefinition
    options: Mapping[str, str]
    source: SqlText

    @property
    def connector(self) -> str:
        """The option `connector`, or an empty text."""
        return self.options.get("connector", "")

    def with_options(self, options: Mapping[str, str]) -> CatalogTable:
        """The table with some options changed, as the hint OPTIONS does."""
        return replace(self, options={**self.options, **options}) if options else self

    @property
    def persisted(self) -> tuple[str, ...]:
        """The columns that INSERT INTO writes: the physical ones, and metadata that is not virtual."""
        return tuple(
            column.name
            for column in self.definition.columns
            if hasattr(column, "type") and not (isinstance(column, MetadataColumn) and column.virtual)
        )


@dataclass(frozen=True, slots=True)
class CatalogView:
    """A view: a query by name.

    Args:
        columns: new names for its columns; none keeps them.
    """

    name: str
    query: Query
    columns: tuple[Identifier, ...]
    source: SqlText


@dataclass(frozen=True, slots=True)
class StreamTable:
    """A stream of the program, as a table.

    Args:
        columns: of its rows.
        is_named: whether the user gave it the name, so that it is shown among the tables.
    """

    name: str
    stream: DataStream
    columns: Columns
    is_named: bool = True


Entry: TypeAlias = CatalogTable | CatalogView | StreamTable


class Catalog:
    """What there is by name. Names are as they are written: `Orders` is not `orders`."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    def __iter__(self) -> Iterator[Entry]:
        return (entry for entry in self._entries.values() if not isinstance(entry, StreamTable) or entry.is_named)

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, name: str) -> Entry | None:
        """The entry of that name, if there is one."""
        return self._entries.get(name)

    def add(self, entry: Entry) -> None:
        """Keep an entry, in the place of one with its name."""
        self._entries[entry.name] = entry

    def remove(self, name: str) -> None:
        """Forget an entry."""
        del self._entries[name]

    def own_name(self, name: Name, source: SqlText) -> str:
        """The table's own name, of one that may have catalog and database before it.

        Raises:
            SqlValidationError: another catalog or database.
        """
        known = {(): True, (DATABASE,): True, (CATALOG, DATABASE): True}
        before = tuple(part.name for part in name.parts[:-1])
        if before not in known:
            raise source.invalid(
                name.at, f"there is no {'.'.join(before)}: the only database is {CATALOG}.{DATABASE}; leave it out"
            )
        return name.parts[-1].name

    def check_use(self, kind: str, name: Name, source: SqlText) -> None:
        """Check that USE names what is there.

        Args:
            kind: CATALOG or DATABASE.
            name: of it.
            source: the text, for errors.

        Raises:
            SqlValidationError: another catalog or database.
        """
        given = tuple(part.name for part in name.parts)
        if given not in ({(CATALOG,)} if kind == "CATALOG" else {(DATABASE,), (CATALOG, DATABASE)}):
            raise source.invalid(
                name.at, f"there is no {kind.lower()} {name.text!r}: the only one is {CATALOG}.{DATABASE}"
            )

    def resolve(self, name: Name, source: SqlText) -> Entry:
        """The entry that a name in a statement means.

        Raises:
            SqlValidationError: there is none.
        """
        own = self.own_name(name, source)
        found = self._entries.get(own)
        if found is None:
            known = ", ".join(self._entries) or "none yet: CREATE TABLE makes one"
            raise source.invalid(name.at, f"there is no table {own!r}{nearest(own, self._entries)}; there are {known}")
        return found
