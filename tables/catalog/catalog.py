"""The catalog: tables, views and streams by name, in databases of catalogs, for one environment.

The binder resolves names in it; DDL statements and `TableEnvironment` change it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from penstock.engine.api.streams import DataStream
from penstock.engine.errors import nearest
from penstock.tables.parse.nodes import Identifier, Name
from penstock.tables.parse.queries import Query
from penstock.tables.parse.table_statements import Distribution, MetadataColumn, TableDefinition
from penstock.tables.parse.text import SqlText
from penstock.tables.plan.nodes import Columns, PlanNode

CATALOG: Final = "default_catalog"
DATABASE: Final = "default_database"
Place: TypeAlias = tuple[str, str]
"""A catalog and one of its databases."""


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table of CREATE TABLE.

    Args:
        name: what the catalog calls it: its own name in the default database, else behind catalog and database.
        definition: its columns, keys and watermark.
        options: of WITH.
        source: the text of the statement, for errors.
        at: where the statement begins in it.
        places: where each option stands in it.
        partitioned_by: the columns of PARTITIONED BY.
        comment: of the table.
        distribution: how a system that has buckets spreads its rows.
    """

    name: str
    definition: TableDefinition
    options: Mapping[str, str]
    source: SqlText
    at: int = 0
    places: Mapping[str, int] = field(default_factory=dict)
    partitioned_by: tuple[str, ...] = ()
    comment: str | None = None
    distribution: Distribution | None = None

    @property
    def connector(self) -> str:
        """The option `connector`, or an empty text."""
        return self.options.get("connector", "")

    def with_options(self, options: Mapping[str, str]) -> CatalogTable:
        """The table with some options changed, as the hint OPTIONS does."""
        return replace(self, options={**self.options, **options}) if options else self

    def place_of(self, option: str) -> int:
        """Where an option stands in the statement; where the connector is named, or the statement, for others."""
        return self.places.get(option, self.places.get("connector", self.at))

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
        text: the query as it was written.
        within: the catalog and database in which its names were given.
    """

    name: str
    query: Query
    columns: tuple[Identifier, ...]
    source: SqlText
    text: str
    within: Place = (CATALOG, DATABASE)


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

    @property
    def has_run(self) -> bool:
        """Whether its program was submitted, so that no query can read the stream any more."""
        return self.stream._program.job is not None


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """A `Table` of the program that got a name."""

    name: str
    plan: PlanNode

    @property
    def columns(self) -> Columns:
        """Of its rows."""
        return self.plan.columns


Entry: TypeAlias = CatalogTable | CatalogView | StreamTable | PlannedTable


class Catalog:
    """What there is by name. Names are as they are written: `Orders` is not `orders`.

    Example:
        >>> catalog = Catalog()
        >>> catalog.add_catalog("lake", "raw")
        >>> catalog.use("lake", "raw")
        >>> catalog.entry_name("clicks"), catalog.databases("lake")
        ('lake.raw.clicks', ['raw'])
    """

    def __init__(self) -> None:
        self._entries: dict[str, tuple[Place, str, Entry]] = {}
        self._databases: dict[str, list[str]] = {CATALOG: [DATABASE]}
        self.current: Place = (CATALOG, DATABASE)

    def __iter__(self) -> Iterator[Entry]:
        return (entry for _, entry in self.entries(self.current))

    def __len__(self) -> int:
        return len(self._entries)

    def within(self, place: Place) -> Catalog:
        """The same catalog, as it is seen from another database."""
        seen = copy.copy(self)
        seen.current = place
        return seen

    # Catalogs and databases

    def catalogs(self) -> list[str]:
        """The names of all catalogs."""
        return sorted(self._databases)

    def databases(self, catalog: str) -> list[str]:
        """The names of a catalog's databases; none where there is no such catalog."""
        return sorted(self._databases.get(catalog, ()))

    def add_catalog(self, name: str, database: str) -> None:
        """Begin a catalog, with one database, which is its default."""
        self._databases[name] = [database]

    def add_database(self, catalog: str, name: str) -> None:
        """Begin a database of a catalog."""
        self._databases[catalog].append(name)

    def remove_catalog(self, name: str) -> None:
        """Forget a catalog and all that is in it."""
        for database in self.databases(name):
            self.remove_database(name, database)
        del self._databases[name]

    def remove_database(self, catalog: str, name: str) -> None:
        """Forget a database and all that is in it."""
        self._databases[catalog].remove(name)
        for key in [key for key, value in self._entries.items() if value[0] == (catalog, name)]:
            del self._entries[key]

    def use(self, catalog: str, database: str | None = None) -> None:
        """Look names up in a database; without one, in the catalog's first."""
        self.current = (catalog, database or self._databases[catalog][0])

    def find_place(self, name: Name, source: SqlText) -> Place:
        """The catalog and database that `[catalog.]database` names.

        Raises:
            SqlValidationError: there is none.
        """
        parts = [part.name for part in name.parts]
        return self._place(parts if len(parts) == 2 else [self.current[0], *parts], name, source)

    def _place(self, parts: list[str], name: Name, source: SqlText) -> Place:
        if len(parts) != 2:
            raise source.invalid(name.at, f"{name.text!r} has too many parts; write catalog.database.name")
        catalog, database = parts
        if catalog not in self._databases:
            known = self.catalogs()
            raise source.invalid(
                name.at, f"there is no catalog {catalog!r}{nearest(catalog, known)}; there are {', '.join(known)}"
            )
        if database not in self._databases[catalog]:
            known = self.databases(catalog)
            raise source.invalid(
                name.at,
                f"there is no database {database!r} in {catalog}{nearest(database, known)}; there are "
                f"{', '.join(known)}",
            )
        return catalog, database

    # Entries

    def entries(self, place: Place) -> Iterator[tuple[str, Entry]]:
        """What a database has: own names and entries."""
        for within, own, entry in self._entries.values():
            if within == place and (not isinstance(entry, StreamTable) or entry.is_named):
                yield own, entry

    def find(self, name: str) -> Entry | None:
        """The entry that the catalog calls so, if there is one."""
        found = self._entries.get(name)
        return None if found is None else found[2]

    def place_of(self, name: str) -> tuple[Place, str]:
        """Where an entry is, and its own name there."""
        place, own, _ = self._entries[name]
        return place, own

    def entry_name(self, own: str) -> str:
        """What the catalog calls an entry of that own name in the current database."""
        return _entry_name(self.current, own)

    def add(self, entry: Entry, place: Place | None = None, own: str | None = None) -> None:
        """Keep an entry, in the place of one with its name.

        Args:
            entry: a table, view or stream.
            place: its database; None: the current one.
            own: its own name there; None: as the catalog calls it.
        """
        self._entries[entry.name] = (place or self.current, own or entry.name, entry)

    def remove(self, name: str) -> None:
        """Forget an entry."""
        del self._entries[name]

    def named(self, name: Name, source: SqlText) -> tuple[Place, str, str]:
        """Of a name that may have catalog and database before it: these, the own name, and what the catalog calls it.

        Raises:
            SqlValidationError: there is no such catalog or database.
        """
        before = [part.name for part in name.parts[:-1]]
        catalog, database = self.current
        whole = [catalog, database] if not before else [catalog, *before] if len(before) == 1 else before
        place, own = self._place(whole, name, source), name.parts[-1].name
        return place, own, _entry_name(place, own)

    def resolve(self, name: Name, source: SqlText) -> Entry:
        """The entry that a name in a statement means.

        Raises:
            SqlValidationError: there is none.
        """
        place, own, whole = self.named(name, source)
        found = self.find(whole)
        if found is None:
            names = [known for known, _ in self.entries(place)]
            known = ", ".join(names) or "none yet: CREATE TABLE makes one"
            raise source.invalid(name.at, f"there is no table {own!r}{nearest(own, names)}; there are {known}")
        return found


def quoted(name: str) -> str:
    """A name in backticks."""
    return f"`{name.replace('`', '``')}`"


def _entry_name(place: Place, own: str) -> str:
    """Own names in the default database, whole ones elsewhere; with backticks where a dot would be unclear."""
    parts = (own,) if place == (CATALOG, DATABASE) else (*place, own)
    return ".".join(quoted(part) if "." in part else part for part in parts)
