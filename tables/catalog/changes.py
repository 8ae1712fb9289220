"""What LIKE and ALTER TABLE make of a table: definitions of definitions.

`definitions.py` of the tables' environment writes the result as a statement, and makes the table that it reads from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.engine.errors import nearest
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.parse import table_statements as d
from penstock.tables.parse.nodes import Identifier
from penstock.tables.parse.text import SqlText

_INCLUDING, _EXCLUDING = d.Merge.INCLUDING, d.Merge.EXCLUDING


def changed_like(statement: d.CreateTable, base: CatalogTable, source: SqlText) -> CatalogTable:
    """The new table of CREATE TABLE LIKE, with what it takes of the other.

    Raises:
        SqlValidationError: both have a part that may not be there twice.
    """
    like = statement.like
    assert like is not None, "the caller has looked"
    merges, own, other = dict(like.merges), statement.definition, base.definition
    columns = _merged_columns(own, other, merges, source)
    key = own.primary_key
    if other.primary_key and merges["CONSTRAINTS"] is _INCLUDING:
        if key:
            raise _twice(key[0].at, "a PRIMARY KEY", "CONSTRAINTS", source)
        key = other.primary_key
    watermark = own.watermark
    if other.watermark is not None and merges["WATERMARKS"] is not _EXCLUDING:
        if watermark is not None and merges["WATERMARKS"] is _INCLUDING:
            raise _twice(watermark.at, "a WATERMARK", "WATERMARKS", source)
        watermark = watermark or other.watermark
    partitions = tuple(column.name for column in statement.partitioned_by)
    if base.partitioned_by and merges["PARTITIONS"] is _INCLUDING:
        if partitions:
            raise _twice(statement.partitioned_by[0].at, "PARTITIONED BY", "PARTITIONS", source)
        partitions = base.partitioned_by
    distribution = statement.distribution
    if base.distribution is not None and merges["DISTRIBUTION"] is _INCLUDING:
        if distribution is not None:
            raise _twice(distribution.at, "DISTRIBUTED", "DISTRIBUTION", source)
        distribution = base.distribution
    options = {option.key: option.value for option in statement.options}
    if merges["OPTIONS"] is not _EXCLUDING:
        for option in statement.options:
            if merges["OPTIONS"] is _INCLUDING and option.key in base.options:
                raise _twice(option.at, f"the option {option.key!r}", "OPTIONS", source)
        options = {**base.options, **options}
    definition = d.TableDefinition(columns, key, watermark)
    return CatalogTable("", definition, options, source, statement.at, {}, partitions, statement.comment, distribution)


def _merged_columns(
    own: d.TableDefinition, other: d.TableDefinition, merges: Mapping[str, d.Merge], source: SqlText
) -> tuple[d.ColumnDefinition, ...]:
    named = {column.name: column for column in own.columns}
    kept: list[d.ColumnDefinition] = []
    for column in other.columns:
        part = {d.ComputedColumn: "GENERATED", d.MetadataColumn: "METADATA"}.get(type(column), "")
        merge = merges.get(part, _INCLUDING)
        if merge is _EXCLUDING:
            continue
        if (mine := named.get(column.name)) is None:
            kept.append(column)
        elif merge is _INCLUDING or type(mine) is not type(column):
            raise _twice(mine.at, f"a column {column.name!r}", part, source)
        else:
            kept.append(named.pop(column.name))
    return (*kept, *named.values())


def _twice(at: int, what: str, part: str, source: SqlText) -> Exception:
    remedy = f"leave it out, or write EXCLUDING {part}" if part else "leave it out, or rename it"
    return source.invalid(at, f"the table behind LIKE has {what} as well; {remedy}")


def changed_by(table: CatalogTable, statement: d.Alter, source: SqlText) -> CatalogTable:
    """The table as ALTER TABLE makes it; its name stays.

    Raises:
        SqlValidationError: a column or an option that is not there, or is there already.
    """
    definition = table.definition
    match statement.change:
        case d.SetTableOptions() as change:
            return replace(table, options={**table.options, **{option.key: option.value for option in change.options}})
        case d.ResetTableOptions() as change:
            for key in change.keys:
                if key.name not in table.options or key.name == "connector":
                    reason = "is needed" if key.name == "connector" else f"is not set{nearest(key.name, table.options)}"
                    raise source.invalid(key.at, f"the option {key.name!r} {reason}")
            gone = {key.name for key in change.keys}
            return replace(table, options={k: v for k, v in table.options.items() if k not in gone})
        case d.RenameColumn() as change:
            return replace(table, definition=_renamed(definition, change, source))
        case d.DropColumns() as change:
            return replace(table, definition=_dropped(definition, change, source))
        case d.AlterColumns() as change:
            return replace(table, definition=_altered(definition, change, source))
    raise AssertionError("renaming is the catalog's")


def _dropped(definition: d.TableDefinition, change: d.DropColumns, source: SqlText) -> d.TableDefinition:
    if change.part == "PRIMARY KEY":
        if not definition.primary_key:
            raise source.invalid(change.at, "the table has no PRIMARY KEY")
        return replace(definition, primary_key=())
    if change.part == "WATERMARK":
        if definition.watermark is None:
            raise source.invalid(change.at, "the table has no WATERMARK")
        return replace(definition, watermark=None)
    for column in change.columns:
        _check_there(definition, column, source)
        if any(key.name == column.name for key in definition.primary_key):
            raise source.invalid(column.at, f"{column.name!r} is in the PRIMARY KEY; DROP PRIMARY KEY before")
    gone = {column.name for column in change.columns}
    return replace(definition, columns=tuple(column for column in definition.columns if column.name not in gone))


def _renamed(definition: d.TableDefinition, change: d.RenameColumn, source: SqlText) -> d.TableDefinition:
    old, new = change.column, change.to
    _check_there(definition, old, source)
    if any(column.name == new.name for column in definition.columns):
        raise source.invalid(new.at, f"there is a column {new.name!r} already")
    columns = tuple(
        replace(column, name=new.name) if column.name == old.name else column for column in definition.columns
    )
    key = tuple(Identifier(k.at, new.name) if k.name == old.name else k for k in definition.primary_key)
    watermark = definition.watermark
    if watermark is not None and watermark.column.text == old.name:
        # Its expression names the column as well, and expressions are kept as they were written.
        raise source.invalid(old.at, f"the WATERMARK is of {old.name!r}; DROP WATERMARK before, and ADD it anew")
    return d.TableDefinition(columns, key, watermark)


def _altered(definition: d.TableDefinition, change: d.AlterColumns, source: SqlText) -> d.TableDefinition:
    adds = change.how is d.Alteration.ADD
    columns = list(definition.columns)
    for placed in change.columns:
        name = placed.column.name
        place = next((place for place, column in enumerate(columns) if column.name == name), None)
        if adds and place is not None:
            raise source.invalid(placed.at, f"there is a column {name!r} already; MODIFY changes it")
        if not adds:
            _check_there(definition, Identifier(placed.at, name), source)
            assert place is not None, "it is there"
            del columns[place]
        columns.insert(_new_place(columns, placed, len(columns) if place is None else place, source), placed.column)
    key, watermark = definition.primary_key, definition.watermark
    if change.primary_key:
        _check_part(bool(key), adds, change.primary_key[0].at, "PRIMARY KEY", source)
        key = change.primary_key
    if change.watermark is not None:
        _check_part(watermark is not None, adds, change.watermark.at, "WATERMARK", source)
        watermark = change.watermark
    return d.TableDefinition(tuple(columns), key, watermark)


def _new_place(columns: list[d.ColumnDefinition], placed: d.PlacedColumn, otherwise: int, source: SqlText) -> int:
    if placed.after is None:
        return otherwise
    if not placed.after:
        return 0
    names = [column.name for column in columns]
    if placed.after not in names:
        raise source.invalid(placed.at, f"AFTER: there is no column {placed.after!r}{nearest(placed.after, names)}")
    return names.index(placed.after) + 1


def _check_part(is_there: bool, adds: bool, at: int, part: str, source: SqlText) -> None:
    if is_there is adds:
        say = (
            f"the table has a {part} already; MODIFY changes it"
            if adds
            else f"the table has no {part}; ADD gives it one"
        )
        raise source.invalid(at, say)


def _check_there(definition: d.TableDefinition, column: Identifier, source: SqlText) -> None:
    names = [one.name for one in definition.columns]
    if column.name not in names:
        raise source.invalid(
            column.at, f"there is no column {column.name!r}{nearest(column.name, names)}; there are {', '.join(names)}"
        )
