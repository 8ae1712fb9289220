"""Answers SHOW and DESCRIBE: what there is by name, and what tables are.

The environment of tables makes a table of each answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.engine.errors import nearest
from penstock.tables.bind.built_in import BUILT_IN
from penstock.tables.bind.expression_binder import CONDITIONALS
from penstock.tables.bind.queries import QueryContext
from penstock.tables.bind.query_binder import bind_view
from penstock.tables.bind.session_calls import CURRENT_DATABASE
from penstock.tables.bind.table_binder import bind_table, primary_key
from penstock.tables.bind.table_functions import TABLE_FUNCTIONS
from penstock.tables.catalog.catalog import CatalogTable, CatalogView, Entry, Place, PlannedTable, StreamTable
from penstock.tables.catalog.texts import shown_table, shown_view
from penstock.tables.functions.aggregates import AGGREGATES, OVER_ONLY, RANKS
from penstock.tables.functions.registry import OF_OPERATORS, SCALAR_FUNCTIONS
from penstock.tables.functions.user import UserFunction, UserFunctionKind
from penstock.tables.parse import statements as s
from penstock.tables.parse import table_statements as d
from penstock.tables.parse.list_calls import OF_LISTS
from penstock.tables.parse.nodes import Name
from penstock.tables.plan.nodes import INSERT_ONLY, Column
from penstock.tables.types import summary
from penstock.tables.user_functions import UserFunctions


@dataclass(frozen=True, slots=True)
class Shows:
    """Answers for one statement.

    Args:
        context: the catalog, and what queries of views may refer to.
        functions: of the user.
    """

    context: QueryContext
    functions: UserFunctions

    def show(self, statement: s.Show) -> pa.Table:
        """The rows of SHOW.

        Raises:
            SqlValidationError: there is nothing of that name.
        """
        if statement.what in ("CREATE TABLE", "CREATE VIEW"):
            return _listed("statement", [self._created(statement)])
        if statement.what == "COLUMNS":
            assert statement.name is not None, "the parser gives it"
            described = self._described(statement.name)
            chosen = [_fits(name, statement.pattern) for name in described.column("name").to_pylist()]
            return described.filter(pa.array(chosen, pa.bool_()))
        heading, names = self._names(statement)
        return _listed(heading, [name for name in sorted(names) if _fits(name, statement.pattern)])

    def _names(self, statement: s.Show) -> tuple[str, list[str]]:
        catalog = self.context.catalog
        match statement.what:
            case "TABLES":
                return "table name", [own for own, _ in catalog.entries(self._place(statement))]
            case "VIEWS":
                entries = catalog.entries(self._place(statement))
                return "view name", [own for own, entry in entries if isinstance(entry, CatalogView)]
            case "FUNCTIONS":
                known = {*SCALAR_FUNCTIONS, *OF_LISTS, *CONDITIONALS, *AGGREGATES, *RANKS, *OVER_ONLY, CURRENT_DATABASE}
                names = [name.lower() for name in known - OF_OPERATORS]
                return "function name", [*names, *self.functions.names()]
            case "USER FUNCTIONS":
                return "function name", self.functions.names()
            case "CONNECTORS":
                return "connector", self.context.connectors.names()
            case "CATALOGS":
                return "catalog name", catalog.catalogs()
            case "CURRENT CATALOG":
                return "catalog name", [catalog.current[0]]
            case "DATABASES":
                return "database name", catalog.databases(self._catalog(statement))
        return "database name", [catalog.current[1]]

    def _place(self, statement: s.Show) -> Place:
        if statement.name is None:
            return self.context.catalog.current
        return self.context.catalog.find_place(statement.name, self.context.source)

    def _catalog(self, statement: s.Show) -> str:
        return self.context.catalog.current[0] if statement.name is None else self._known_catalog(statement.name)

    def _known_catalog(self, name: Name) -> str:
        known = self.context.catalog.catalogs()
        if name.text not in known:
            raise self.context.source.invalid(
                name.at, f"there is no catalog {name.text!r}{nearest(name.text, known)}; there are {', '.join(known)}"
            )
        return name.text

    def _created(self, statement: s.Show) -> str:
        assert statement.name is not None, "the parser gives it"
        catalog, source = self.context.catalog, self.context.source
        entry, wanted = catalog.resolve(statement.name, source), statement.what.removeprefix("CREATE ")
        match entry:
            case CatalogTable() if wanted == "TABLE":
                return shown_table(entry, catalog)
            case CatalogView() if wanted == "VIEW":
                return shown_view(entry, catalog)
            case StreamTable() | PlannedTable():
                raise source.invalid(
                    statement.name.at, f"{entry.name!r} is a stream or table of the program: no statement made it"
                )
        kind = "VIEW" if isinstance(entry, CatalogView) else "TABLE"
        raise source.invalid(
            statement.name.at, f"{statement.name.text!r} is a {kind.lower()}; write SHOW CREATE {kind}"
        )

    def describe(self, statement: s.Describe) -> pa.Table:
        """The rows of DESCRIBE: the columns of a table, or what is known of a catalog or a function.

        Raises:
            SqlValidationError: there is nothing of that name.
        """
        match statement.what:
            case "CATALOG":
                return self._described_catalog(statement.name)
            case "FUNCTION":
                return self._described_function(statement.name, extended=statement.extended)
        return self._described(statement.name)

    def _described(self, name: Name) -> pa.Table:
        entry = self.context.catalog.resolve(name, self.context.source)
        keys, extras, watermarks = _declared(entry) if isinstance(entry, CatalogTable) else ((), {}, {})
        key = f"PRI({', '.join(keys)})"
        rows = [
            {
                "name": column.name,
                "type": summary(column.type.with_nullable(True)) + _time_text(column),
                "null": column.type.nullable,
                "key": key if column.name in keys else None,
                "extras": extras.get(column.name),
                "watermark": watermarks.get(column.name),
            }
            for column in self._columns(entry)
        ]
        texts = ("key", "extras", "watermark")
        kinds = [
            ("name", pa.string()),
            ("type", pa.string()),
            ("null", pa.bool_()),
            *((one, pa.string()) for one in texts),
        ]
        return pa.Table.from_pylist(rows, pa.schema(kinds))

    def _described_catalog(self, name: Name) -> pa.Table:
        return _told({"name": self._known_catalog(name), "type": "generic_in_memory", "comment": None})

    def _described_function(self, name: Name, *, extended: bool) -> pa.Table:
        known = name.parts[-1].name.upper()
        own = self.functions.named.get(known)
        if own is None and known not in BUILT_IN:
            raise self.context.source.invalid(
                name.at, f"there is no function {name.text}{nearest(known, sorted({*BUILT_IN, *self.functions.named}))}"
            )
        told: dict[str, str | None] = {
            "is system function": str(own is None).lower(),
            "is temporary": str(own is not None).lower(),
        }
        if extended:
            told |= _of_function(known, own)
        return _told(told)

    def _columns(self, entry: Entry) -> tuple[Column, ...]:
        match entry:
            case CatalogTable():
                return bind_table(entry, INSERT_ONLY, (), bounded=True).columns
            case CatalogView():
                return bind_view(entry, self.context).columns
        return entry.columns


def _declared(table: CatalogTable) -> tuple[tuple[str, ...], dict[str, str], dict[str, str]]:
    """Of a table: its key, what DESCRIBE says of computed columns and metadata, and the watermark by its column."""
    extras = {}
    for column in table.definition.columns:
        if isinstance(column, d.ComputedColumn):
            extras[column.name] = f"AS {column.text}"
        elif isinstance(column, d.MetadataColumn):
            key = "" if column.key is None else f" FROM '{column.key}'"
            extras[column.name] = f"METADATA{key}{' VIRTUAL' if column.virtual else ''}"
    watermark = table.definition.watermark
    return primary_key(table), extras, {} if watermark is None else {watermark.column.text: watermark.text}


def _fits(name: str, pattern: tuple[str, bool] | None) -> bool:
    if pattern is None:
        return True
    text, excluded = pattern
    signs = {"%": ".*", "_": "."}
    found = re.fullmatch("".join(signs.get(sign) or re.escape(sign) for sign in text), name, re.DOTALL)
    return (found is None) is excluded


def _told(known: Mapping[str, str | None]) -> pa.Table:
    """What is known of one thing, a row each."""
    return pa.table({"info name": list(known), "info value": pa.array(known.values(), pa.string())})


def _of_function(name: str, own: UserFunction | None) -> dict[str, str | None]:
    """What kind of a function it is, and of those of the user the types."""
    if own is not None:
        takes = "..." if own.takes is None else ", ".join(map(str, own.takes))
        signature = f"{name.lower()}({takes}) => {own.returns}"
        kind = "SCALAR" if own.kind is UserFunctionKind.COLUMNS else own.kind.name
        return {"kind": kind, "is deterministic": str(own.deterministic).lower(), "signature": signature}
    if name in AGGREGATES or name in RANKS or name in OVER_ONLY:
        return {"kind": "AGGREGATE", "is deterministic": "true"}
    kind = "TABLE" if name in TABLE_FUNCTIONS or name == "UNNEST" else "SCALAR"
    function = SCALAR_FUNCTIONS.get(name)
    return {"kind": kind, "is deterministic": str(function is None or function.deterministic).lower()}


def _listed(name: str, values: Sequence[str]) -> pa.Table:
    return pa.table({name: pa.array(values, pa.string())})


def _time_text(column: Column) -> str:
    return "" if column.time is None else f" *{column.time.name}*"
