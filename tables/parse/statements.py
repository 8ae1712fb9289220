"""The syntax tree of statements: what a script is a list of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.tables.parse.nodes import Identifier, Name, Node
from penstock.tables.parse.queries import Query
from penstock.tables.types import SqlType


@dataclass(frozen=True, slots=True)
class PhysicalColumn(Node):
    """`name type`."""

    name: str
    type: SqlType


@dataclass(frozen=True, slots=True)
class MetadataColumn(Node):
    """`name type METADATA [FROM 'key'] [VIRTUAL]`."""

    name: str
    type: SqlType
    key: str | None
    virtual: bool


@dataclass(frozen=True, slots=True)
class ComputedColumn(Node):
    """`name AS expression`."""

    name: str
    value: Node


ColumnDefinition = PhysicalColumn | MetadataColumn | ComputedColumn


@dataclass(frozen=True, slots=True)
class WatermarkDefinition(Node):
    """`WATERMARK FOR column AS expression`."""

    column: Name
    value: Node


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """What stands in the brackets of CREATE TABLE.

    Args:
        primary_key: its columns; none without one.
    """

    columns: tuple[ColumnDefinition, ...]
    primary_key: tuple[Identifier, ...] = ()
    watermark: WatermarkDefinition | None = None


@dataclass(frozen=True, slots=True)
class CreateTable(Node):
    """`CREATE [TEMPORARY] TABLE [IF NOT EXISTS] name (...) WITH (...)`."""

    name: Name
    definition: TableDefinition
    options: Mapping[str, str]
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class CreateView(Node):
    """`CREATE [TEMPORARY] VIEW [IF NOT EXISTS] name [(columns)] AS query`."""

    name: Name
    columns: tuple[Identifier, ...]
    query: Query
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class Drop(Node):
    """`DROP [TEMPORARY] TABLE | VIEW [IF EXISTS] name`."""

    kind: str
    name: Name
    if_exists: bool


@dataclass(frozen=True, slots=True)
class Insert(Node):
    """`INSERT INTO name [(columns)] query [ON CONFLICT DO action]`."""

    table: Name
    columns: tuple[Identifier, ...]
    query: Query
    on_conflict: str | None


@dataclass(frozen=True, slots=True)
class StatementSet(Node):
    """`[EXECUTE] STATEMENT SET BEGIN insert; ... END`: one job of several inserts."""

    inserts: tuple[Insert, ...]


@dataclass(frozen=True, slots=True)
class Explain(Node):
    """`EXPLAIN [PLAN FOR] query | insert | statement set`."""

    statement: Query | Insert | StatementSet


@dataclass(frozen=True, slots=True)
class Show(Node):
    """`SHOW TABLES`, `VIEWS`, `FUNCTIONS`, `CREATE TABLE name`, `COLUMNS FROM name`, ..."""

    what: str
    name: Name | None = None


@dataclass(frozen=True, slots=True)
class Describe(Node):
    """`DESCRIBE name`."""

    name: Name


@dataclass(frozen=True, slots=True)
class Use(Node):
    """`USE CATALOG name`, `USE [catalog.]database`."""

    kind: str
    name: Name


@dataclass(frozen=True, slots=True)
class SetOption(Node):
    """`SET 'key' = 'value'`; `SET` alone shows them (no key), `SET 'key'` one of them (no value)."""

    key: str | None
    value: str | None


@dataclass(frozen=True, slots=True)
class ResetOption(Node):
    """`RESET 'key'`, or all of them."""

    key: str | None


Statement = (
    Query
    | CreateTable
    | CreateView
    | Drop
    | Insert
    | StatementSet
    | Explain
    | Show
    | Describe
    | Use
    | SetOption
    | ResetOption
)
