"""Runs the statements that change what there is by name: CREATE, ALTER and DROP.

The environment of tables gives it the catalog; each statement is checked whole before anything is changed.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from penstock.engine.errors import ConfigurationError, SqlError, nearest
from penstock.tables.bind.inserts import bind_insert
from penstock.tables.bind.queries import QueryContext
from penstock.tables.bind.query_binder import bind_query
from penstock.tables.bind.table_binder import check_table
from penstock.tables.bind.user_calls import resolved
from penstock.tables.catalog.catalog import CATALOG, Catalog, CatalogTable, CatalogView, quoted
from penstock.tables.catalog.changes import changed_by, changed_like
from penstock.tables.catalog.connectors import Connectors
from penstock.tables.catalog.texts import table_text
from penstock.tables.functions.user import UserFunction
from penstock.tables.parse import statements as s
from penstock.tables.parse import table_statements as d
from penstock.tables.parse.nodes import Identifier, Name
from penstock.tables.parse.statement_parser import parse_statement
from penstock.tables.parse.text import SqlText
from penstock.tables.plan.nodes import Column, PlanNode, SinkPlan
from penstock.tables.user_functions import UserFunctions

_CATALOG_TYPE: Final = "generic_in_memory"
_CATALOG_OPTIONS: Final = ("type", "default-database")
_FIRST_DATABASE: Final = "default"


class Definitions:
    """What changes the catalog.

    Args:
        catalog, connectors, functions: what there is.
        context: what the queries of a text may refer to.
    """

    def __init__(
        self,
        catalog: Catalog,
        connectors: Connectors,
        functions: UserFunctions,
        context: Callable[[SqlText], QueryContext],
    ) -> None:
        self._catalog = catalog
        self._connectors = connectors
        self._functions = functions
        self._context = context

    # Tables

    def create_table(self, statement: d.CreateTable, source: SqlText) -> SinkPlan | None:
        """CREATE TABLE; what fills it, where that stands behind AS.

        Raises:
            SqlError: the name is taken, or columns, options or query do not fit.
        """
        if statement.or_replace:
            with self._replaced(statement.name, source):
                return self.create_table(replace(statement, or_replace=False), source)
        if self._is_taken(statement.name, statement.if_not_exists, source):
            return None
        if statement.query is not None:
            return self._create_from_query(statement, source)
        if statement.like is not None:
            base = self._table(statement.like.table, source)
            made = changed_like(statement, base, source)
            self._add(self._derived(made, statement.name, statement.at, source), statement.name, source)
            return None
        self._add(self._declared(statement, source), statement.name, source)
        return None

    def _declared(self, statement: d.CreateTable, source: SqlText) -> CatalogTable:
        """The table of a statement, checked."""
        columns = {column.name for column in statement.definition.columns}
        for partition in statement.partitioned_by:
            if partition.name not in columns:
                hint = nearest(partition.name, columns)
                raise source.invalid(partition.at, f"PARTITIONED BY: there is no column {partition.name!r}{hint}")
        if statement.distribution is not None:
            for column in statement.distribution.columns:
                if column.name not in columns:
                    hint = nearest(column.name, columns)
                    raise source.invalid(column.at, f"DISTRIBUTED BY: there is no column {column.name!r}{hint}")
        table = CatalogTable(
            self._catalog.named(statement.name, source)[2],
            statement.definition,
            {option.key: option.value for option in statement.options},
            source,
            statement.at,
            {option.key: option.at for option in statement.options},
            tuple(column.name for column in statement.partitioned_by),
            statement.comment,
            statement.distribution,
        )
        check_table(table)
        self._connectors.of(table)
        return table

    def _derived(self, table: CatalogTable, name: Name, at: int, source: SqlText) -> CatalogTable:
        """A table that is made of another one: written as a statement of its own, to which its errors then point."""
        whole = ".".join(quoted(part.name) for part in name.parts)
        text = table_text(
            whole, table.definition, table.options, table.partitioned_by, table.comment, table.distribution
        )
        own = SqlText(text)
        try:
            statement = resolved(parse_statement(text), self._functions.named, own)
            assert isinstance(statement, d.CreateTable), "it was written as one"
            return self._declared(statement, own)
        except SqlError as error:
            raise source.invalid(at, f"the table would not fit together: {error.problem}") from error

    def _create_from_query(self, statement: d.CreateTable, source: SqlText) -> SinkPlan:
        assert statement.query is not None, "the caller has looked"
        node = bind_query(statement.query, self._context(source))
        declared = {column.name for column in statement.definition.columns}
        found: list[d.ColumnDefinition] = list(statement.definition.columns)
        queried = [column for column in _in_order(node, statement, source) if column.name not in declared]
        found.extend(d.PhysicalColumn(statement.query.at, column.name, column.type) for column in queried)
        table = CatalogTable(
            "",
            replace(statement.definition, columns=tuple(found)),
            {option.key: option.value for option in statement.options},
            source,
            partitioned_by=tuple(column.name for column in statement.partitioned_by),
            comment=statement.comment,
            distribution=statement.distribution,
        )
        made = self._derived(table, statement.name, statement.at, source)
        self._add(made, statement.name, source)
        columns = tuple(Identifier(statement.query.at, column.name) for column in node.columns)
        insert = s.Insert(statement.query.at, statement.name, columns, statement.query, None)
        try:
            return bind_insert(insert, self._context(source))
        except SqlError:
            self._catalog.remove(made.name)
            raise

    @contextlib.contextmanager
    def _replaced(self, name: Name, source: SqlText) -> Iterator[None]:
        """Takes what has a name out of the catalog, and puts it back where nothing can take its place."""
        place, own, whole = self._catalog.named(name, source)
        there = self._catalog.find(whole)
        if there is not None:
            self._catalog.remove(whole)
        try:
            yield
        except SqlError:
            if there is not None:
                self._catalog.add(there, place, own)
            raise

    def _add(self, table: CatalogTable | CatalogView, name: Name, source: SqlText) -> None:
        place, own, whole = self._catalog.named(name, source)
        self._catalog.add(replace(table, name=whole), place, own)

    def _is_taken(self, name: Name, accepted: bool, source: SqlText) -> bool:
        _, own, whole = self._catalog.named(name, source)
        there = self._catalog.find(whole) is not None
        if there and not accepted:
            raise source.invalid(name.at, f"there is a table {own!r} already; DROP it before, or write IF NOT EXISTS")
        return there

    def _table(self, name: Name, source: SqlText) -> CatalogTable:
        entry = self._catalog.resolve(name, source)
        if not isinstance(entry, CatalogTable):
            raise source.invalid(name.at, f"{name.text!r} is a view or a stream; a table is needed here")
        return entry

    # Views

    def create_view(self, statement: d.CreateView, source: SqlText) -> None:
        """CREATE VIEW.

        Raises:
            SqlError: the name is taken, or the query cannot be planned.
        """
        if statement.or_replace:
            with self._replaced(statement.name, source):
                self.create_view(replace(statement, or_replace=False), source)
            return
        if self._is_taken(statement.name, statement.if_not_exists, source):
            return
        bind_query(statement.query, self._context(source))
        view = CatalogView("", statement.query, statement.columns, source, statement.text, self._catalog.current)
        self._add(view, statement.name, source)

    # ALTER and DROP

    def alter(self, statement: d.Alter, source: SqlText) -> None:
        """ALTER TABLE and ALTER VIEW.

        Raises:
            SqlError: there is no such table or column, or the table does not fit together any more.
        """
        place, _, whole = self._catalog.named(statement.name, source)
        if self._catalog.find(whole) is None and statement.if_exists:
            return
        entry, change = self._catalog.resolve(statement.name, source), statement.change
        is_view = isinstance(entry, CatalogView)
        if not isinstance(entry, CatalogTable | CatalogView) or is_view is not (statement.kind == "VIEW"):
            kind = "view" if is_view else "table" if isinstance(entry, CatalogTable) else "stream of the program"
            raise source.invalid(statement.name.at, f"{statement.name.text!r} is a {kind}")
        if isinstance(change, d.Rename):
            own = change.to.parts[-1]
            if len(change.to.parts) > 1 and self._catalog.named(change.to, source)[0] != place:
                raise source.invalid(change.to.at, "a table stays in its database; give its own name")
            name = Name(own.at, (*statement.name.parts[:-1], own))
            self._is_taken(name, False, source)
            self._catalog.remove(whole)
            self._add(entry, name, source)
        elif isinstance(entry, CatalogView):
            assert isinstance(change, d.ChangeQuery), "the parser gives no other"
            bind_query(change.query, self._context(source))
            here = self._catalog.current
            view = replace(entry, query=change.query, source=source, text=change.text, within=here)
            self._add(view, statement.name, source)
        else:
            changed = self._derived(changed_by(entry, statement, source), statement.name, change.at, source)
            self._add(changed, statement.name, source)

    def drop(self, statement: s.Drop, source: SqlText) -> None:
        """DROP TABLE, VIEW, FUNCTION, DATABASE and CATALOG.

        Raises:
            SqlValidationError: there is none, or it is in use.
        """
        match statement.kind:
            case "FUNCTION":
                known = self._functions.names()
                if not self._functions.remove(statement.name.parts[-1].name) and not statement.if_exists:
                    hint = nearest(statement.name.text, known)
                    raise source.invalid(statement.name.at, f"there is no function {statement.name.text!r}{hint}")
            case "DATABASE" | "CATALOG":
                self._drop_place(statement, source)
            case _:
                self._drop_entry(statement, source)

    def _drop_entry(self, statement: s.Drop, source: SqlText) -> None:
        place, own, name = self._catalog.named(statement.name, source)
        entry = self._catalog.find(name)
        if entry is None:
            if statement.if_exists:
                return
            hint = nearest(own, [known for known, _ in self._catalog.entries(place)])
            what = f"{statement.kind.lower()} {own!r}{hint}"
            raise source.invalid(statement.name.at, f"there is no {what}; DROP {statement.kind} IF EXISTS minds none")
        is_view = isinstance(entry, CatalogView)
        if is_view is not (statement.kind == "VIEW"):
            kind = "VIEW" if is_view else "TABLE"
            text = statement.name.text
            raise source.invalid(statement.at, f"{text!r} is a {kind.lower()}; write DROP {kind} {text}")
        self._catalog.remove(name)

    # Functions

    def create_function(self, statement: s.CreateFunction, source: SqlText) -> None:
        """CREATE FUNCTION: a function of a Python module.

        Raises:
            SqlValidationError: there is none, it was not made by `udf` or its like, or the name is taken.
        """
        name = statement.name.parts[-1].name
        if statement.if_not_exists and name.upper() in self._functions.named:
            return
        function = _imported(statement, source)
        try:
            self._functions.add(name, function)
        except ConfigurationError as error:
            raise source.invalid(statement.name.at, str(error)) from error

    # Catalogs and databases

    def create_place(self, statement: s.CreatePlace, source: SqlText) -> None:
        """CREATE CATALOG and CREATE DATABASE.

        Raises:
            SqlValidationError: it is there already, or the catalog has options that there are not.
        """
        parts = [part.name for part in statement.name.parts]
        if statement.kind == "CATALOG":
            if len(parts) != 1:
                raise source.invalid(statement.name.at, "the name of a catalog has one part")
            is_there = parts[0] in self._catalog.catalogs()
        else:
            parts = [self._catalog.current[0], *parts] if len(parts) == 1 else parts
            if len(parts) != 2 or parts[0] not in self._catalog.catalogs():
                known = ", ".join(self._catalog.catalogs())
                raise source.invalid(statement.name.at, f"there is no catalog {parts[0]!r}; there are {known}")
            is_there = parts[1] in self._catalog.databases(parts[0])
        if is_there and not statement.if_not_exists:
            kind = statement.kind.lower()
            raise source.invalid(statement.name.at, f"there is a {kind} {statement.name.text!r} already")
        if is_there:
            return
        if statement.kind == "CATALOG":
            self._catalog.add_catalog(parts[0], _first_database(statement, source))
        else:
            self._catalog.add_database(*parts)

    def _drop_place(self, statement: s.Drop, source: SqlText) -> None:
        parts, at = [part.name for part in statement.name.parts], statement.name.at
        if statement.kind == "CATALOG":
            if parts[0] not in self._catalog.catalogs():
                if statement.if_exists:
                    return
                raise source.invalid(at, f"there is no catalog {statement.name.text!r}")
            if parts[0] in (CATALOG, self._catalog.current[0]):
                raise source.invalid(at, f"the catalog {parts[0]!r} is in use; USE another one before")
            self._catalog.remove_catalog(parts[0])
            return
        parts = [self._catalog.current[0], *parts] if len(parts) == 1 else parts
        if statement.if_exists and parts[1] not in self._catalog.databases(parts[0]):
            return
        place = self._catalog.find_place(statement.name, source)
        if place == self._catalog.current:
            raise source.invalid(at, f"the database {place[1]!r} is in use; USE another one before")
        if len(self._catalog.databases(place[0])) == 1:
            raise source.invalid(at, f"{place[1]!r} is the only database of {place[0]!r}; drop the catalog")
        entries = [own for own, _ in self._catalog.entries(place)]
        if entries and not statement.cascade:
            raise source.invalid(
                at, f"the database {place[1]!r} has {', '.join(entries)}; drop these before, or write CASCADE"
            )
        self._catalog.remove_database(*place)


def _first_database(statement: s.CreatePlace, source: SqlText) -> str:
    """What the options of CREATE CATALOG call its first database."""
    given = {option.key: option for option in statement.options}
    for option in statement.options:
        if option.key not in _CATALOG_OPTIONS:
            hint = nearest(option.key, _CATALOG_OPTIONS)
            raise source.invalid(
                option.at, f"a catalog has no option {option.key!r}{hint}; it has {', '.join(_CATALOG_OPTIONS)}"
            )
    kind = given.get("type")
    if kind is None or kind.value != _CATALOG_TYPE:
        at = statement.name.at if kind is None else kind.at
        raise source.invalid(
            at, f"a catalog has 'type' = '{_CATALOG_TYPE}': its tables are made by CREATE TABLE, for this session"
        )
    named = given.get("default-database")
    return _FIRST_DATABASE if named is None else named.value


def _imported(statement: s.CreateFunction, source: SqlText) -> UserFunction:
    module, _, name = statement.path.rpartition(".")
    if not module:
        raise source.invalid(
            statement.path_at, f"{statement.path!r} names no module; write 'module.function', as Python imports it"
        )
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise source.invalid(
            statement.path_at,
            f"the module {module!r} cannot be imported ({error}); it must be in the working directory or installed",
        ) from error
    if found is None:
        raise source.invalid(statement.path_at, f"the module {module!r} has no {name!r}")
    if not isinstance(found, UserFunction):
        raise source.invalid(
            statement.path_at, f"{statement.path!r} is no function of SQL; wrap it: {name} = udf({name}, returns=...)"
        )
    return found


def _in_order(node: PlanNode, statement: d.CreateTable, source: SqlText) -> list[Column]:
    """The columns of a query as CREATE TABLE ... AS wants them.

    Raises:
        SqlValidationError: a name that the query does not have, or not all of its names.
    """
    if not statement.order:
        return list(node.columns)
    columns = {column.name: column for column in node.columns}
    for name in statement.order:
        if name.name not in columns:
            known = ", ".join(columns)
            raise source.invalid(
                name.at, f"the query has no column {name.name!r}{nearest(name.name, columns)}; it has {known}"
            )
    wanted = list(dict.fromkeys(name.name for name in statement.order))
    if len(wanted) < len(columns):
        missing = ", ".join(name for name in columns if name not in wanted)
        raise source.invalid(statement.order[0].at, f"the table has all columns of the query; name {missing} as well")
    return [columns[name] for name in wanted]
