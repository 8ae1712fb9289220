"""The syntax tree of statements about tables and views: CREATE TABLE with all its clauses, and ALTER.

`statements.py` lists them beside the others.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from penstock.tables.parse.nodes import Identifier, Name, Node
from penstock.tables.parse.queries import Query
from penstock.tables.types import SqlType


@dataclass(frozen=True, slots=True)
class PhysicalColumn(Node):
    """`name type [COMMENT text]`."""

    name: str
    type: SqlType
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class MetadataColumn(Node):
    """`name type METADATA [FROM 'key'] [VIRTUAL] [COMMENT text]`."""

    name: str
    type: SqlType
    key: str | None
    virtual: bool
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class ComputedColumn(Node):
    """`name AS expression [COMMENT text]`; `text` is the expression as it was written."""

    name: str
    value: Node
    text: str
    comment: str | None = None


ColumnDefinition = PhysicalColumn | MetadataColumn | ComputedColumn


@dataclass(frozen=True, slots=True)
class WatermarkDefinition(Node):
    """`WATERMARK FOR column AS expression`; `text` is the expression as it was written."""

    column: Name
    value: Node
    text: str


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """What stands in the brackets of CREATE TABLE.

    Args:
        primary_key: its columns; none without one.
    """

    columns: tuple[ColumnDefinition, ...] = ()
    primary_key: tuple[Identifier, ...] = ()
    watermark: WatermarkDefinition | None = None


@dataclass(frozen=True, slots=True)
class TableOption(Node):
    """`'key' = 'value'`."""

    key: str
    value: str


class Merge(enum.Enum):
    """What LIKE does with a part of the other table."""

    INCLUDING = "INCLUDING"
    """It is taken, and may not be there twice."""
    EXCLUDING = "EXCLUDING"
    OVERWRITING = "OVERWRITING"
    """It is taken where the new table has none of that name."""


@dataclass(frozen=True, slots=True)
class Like(Node):
    """`LIKE table [(INCLUDING | EXCLUDING | OVERWRITING part, ...)]`.

    Args:
        merges: how each part of the other table is taken, by its word, such as OPTIONS.
    """

    table: Name
    merges: tuple[tuple[str, Merge], ...]


@dataclass(frozen=True, slots=True)
class Distribution(Node):
    """`DISTRIBUTED [BY [HASH | RANGE] (columns)] [INTO n BUCKETS]`: how a system that has buckets spreads rows."""

    kind: str | None
    columns: tuple[Identifier, ...]
    buckets: int | None


@dataclass(frozen=True, slots=True)
class CreateTable(Node):
    """`CREATE [OR REPLACE] [TEMPORARY] TABLE [IF NOT EXISTS] name (...) [COMMENT ..] [DISTRIBUTED ..]
    [PARTITIONED BY (..)] [WITH (...)]`.

    Args:
        like: the table that parts are taken from, for `LIKE table`.
        query: what fills it, for `AS query`.
        or_replace: whether it takes the place of a table that is there.
        order: the columns of the query as they stand in the table; none: as in the query.
    """

    name: Name
    definition: TableDefinition
    options: tuple[TableOption, ...]
    if_not_exists: bool
    comment: str | None = None
    partitioned_by: tuple[Identifier, ...] = ()
    like: Like | None = None
    query: Query | None = None
    distribution: Distribution | None = None
    or_replace: bool = False
    order: tuple[Identifier, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateView(Node):
    """`CREATE [OR REPLACE] [TEMPORARY] VIEW [IF NOT EXISTS] name [(columns)] AS query`.

    Args:
        text: the query as it was written.
        or_replace: whether it takes the place of a view that is there.
    """

    name: Name
    columns: tuple[Identifier, ...]
    query: Query
    if_not_exists: bool
    text: str
    or_replace: bool = False


@dataclass(frozen=True, slots=True)
class PlacedColumn(Node):
    """A column of ALTER TABLE ADD or MODIFY, and where it goes.

    Args:
        after: the column before it; FIRST where it is an empty text; None: where it is, or at the end.
    """

    column: ColumnDefinition
    after: str | None


class Alteration(enum.Enum):
    """What ALTER TABLE does with columns, key and watermark."""

    ADD = "ADD"
    MODIFY = "MODIFY"


@dataclass(frozen=True, slots=True)
class AlterColumns(Node):
    """`ADD (...)` and `MODIFY (...)`."""

    how: Alteration
    columns: tuple[PlacedColumn, ...]
    primary_key: tuple[Identifier, ...]
    watermark: WatermarkDefinition | None


@dataclass(frozen=True, slots=True)
class DropColumns(Node):
    """`DROP (columns)`, `DROP PRIMARY KEY`, `DROP WATERMARK`; `part` is COLUMN, PRIMARY KEY or WATERMARK."""

    part: str
    columns: tuple[Identifier, ...] = ()


@dataclass(frozen=True, slots=True)
class RenameColumn(Node):
    """`RENAME column TO name`."""

    column: Identifier
    to: Identifier


@dataclass(frozen=True, slots=True)
class Rename(Node):
    """`RENAME TO name`."""

    to: Name


@dataclass(frozen=True, slots=True)
class SetTableOptions(Node):
    """`SET ('key' = 'value', ...)`."""

    options: tuple[TableOption, ...]


@dataclass(frozen=True, slots=True)
class ResetTableOptions(Node):
    """`RESET ('key', ...)`."""

    keys: tuple[Identifier, ...]


@dataclass(frozen=True, slots=True)
class ChangeQuery(Node):
    """`AS query` of ALTER VIEW; `text` is the query as it was written."""

    query: Query
    text: str


@dataclass(frozen=True, slots=True)
class Alter(Node):
    """`ALTER TABLE | VIEW [IF EXISTS] name ...`."""

    kind: str
    name: Name
    change: AlterColumns | DropColumns | RenameColumn | Rename | SetTableOptions | ResetTableOptions | ChangeQuery
    if_exists: bool = False
