"""Tables and views as the statements that make them, for SHOW CREATE, and for tables made of other tables.

What is written is read again by the parser, and gives an equal table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from penstock.engine.redaction import masked_options
from penstock.tables.catalog.catalog import Catalog, CatalogTable, CatalogView, quoted
from penstock.tables.parse.nodes import Identifier
from penstock.tables.parse.table_statements import (
    ColumnDefinition,
    ComputedColumn,
    Distribution,
    MetadataColumn,
    TableDefinition,
)
from penstock.tables.types import Kind, SqlType


def table_text(
    name: str,
    definition: TableDefinition,
    options: Mapping[str, str],
    partitioned_by: Sequence[str] = (),
    comment: str | None = None,
    distribution: Distribution | None = None,
) -> str:
    """CREATE TABLE.

    Args:
        name: as it is written, in backticks where it needs them.
        definition: columns, key and watermark.
        options: of WITH.
        partitioned_by: the columns of PARTITIONED BY.
        comment: of the table.
        distribution: how rows are spread over buckets.

    Example:
        >>> print(table_text("t", TableDefinition(), {"connector": "print"}))
        CREATE TABLE t (
        ) WITH (
          'connector' = 'print'
        )
    """
    parts = [f"CREATE TABLE {name} (\n{_listed(_elements(definition))})"]
    if comment is not None:
        parts.append(f"COMMENT {_text(comment)}")
    if distribution is not None:
        parts.append(_spread(distribution))
    if partitioned_by:
        parts.append(f"PARTITIONED BY ({_names(partitioned_by)})")
    written = _listed(f"{_text(key)} = {_text(value)}" for key, value in options.items())
    return " ".join([*parts, *([f"WITH (\n{written})"] if options else [])])


def _spread(distribution: Distribution) -> str:
    """DISTRIBUTED."""
    words = ["DISTRIBUTED"]
    if distribution.columns:
        names = _names([column.name for column in distribution.columns])
        words.append(f"BY {distribution.kind or ''}({names})")
    if distribution.buckets is not None:
        words.append(f"INTO {distribution.buckets} BUCKETS")
    return " ".join(words)


def shown_table(table: CatalogTable, catalog: Catalog) -> str:
    """SHOW CREATE TABLE: with its whole name, and without passwords."""
    options = masked_options(table.options)
    name = whole_name(table.name, catalog)
    return table_text(name, table.definition, options, table.partitioned_by, table.comment, table.distribution)


def shown_view(view: CatalogView, catalog: Catalog) -> str:
    """SHOW CREATE VIEW."""
    columns = f" ({_names([column.name for column in view.columns])})" if view.columns else ""
    return f"CREATE VIEW {whole_name(view.name, catalog)}{columns} AS {view.text}"


def whole_name(name: str, catalog: Catalog) -> str:
    """Catalog, database and own name of an entry, in backticks."""
    place, own = catalog.place_of(name)
    return ".".join(quoted(part) for part in (*place, own))


def type_text(kind: SqlType) -> str:
    """A type, with the names of its fields in backticks."""
    if kind.kind is Kind.ROW:
        inner = ", ".join(f"{quoted(field.name)} {type_text(field.type)}" for field in kind.fields)
    else:
        inner = ", ".join(map(type_text, kind.parts))
    text = f"{kind.kind.value}<{inner}>" if inner else str(kind.with_nullable(True))
    return text if kind.nullable else f"{text} NOT NULL"


def _elements(definition: TableDefinition) -> Iterator[str]:
    for column in definition.columns:
        comment = "" if column.comment is None else f" COMMENT {_text(column.comment)}"
        yield f"{quoted(column.name)} {_column(column)}{comment}"
    if (watermark := definition.watermark) is not None:
        column_name = ".".join(quoted(part.name) for part in watermark.column.parts)
        yield f"WATERMARK FOR {column_name} AS {watermark.text}"
    if definition.primary_key:
        yield f"PRIMARY KEY ({_identifiers(definition.primary_key)}) NOT ENFORCED"


def _column(column: ColumnDefinition) -> str:
    match column:
        case ComputedColumn():
            return f"AS {column.text}"
        case MetadataColumn():
            key = "" if column.key is None else f" FROM {_text(column.key)}"
            return f"{type_text(column.type)} METADATA{key}{' VIRTUAL' if column.virtual else ''}"
    return type_text(column.type)


def _listed(items: Iterator[str]) -> str:
    lines = ",\n".join(f"  {item}" for item in items)
    return f"{lines}\n" if lines else ""


def _identifiers(names: Sequence[Identifier]) -> str:
    return _names([name.name for name in names])


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names))


def _text(value: str) -> str:
    return f"'{value.replace(chr(39), 2 * chr(39))}'"
