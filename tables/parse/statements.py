"""The syntax tree of statements: what a script is a list of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from penstock.tables.parse.nodes import Identifier, Name, Node
from penstock.tables.parse.queries import Query
from penstock.tables.parse.table_statements import Alter, CreateTable, CreateView, TableOption

OnConflict: TypeAlias = Literal["DEDUPLICATE", "NOTHING", "ERROR"]
"""What becomes of rows that share a key of the table: the last counts, the first counts, or the job fails."""
ON_CONFLICT: Final[tuple[OnConflict, ...]] = ("DEDUPLICATE", "NOTHING", "ERROR")
"""All of them."""


@dataclass(frozen=True, slots=True)
class Drop(Node):
    """`DROP [TEMPORARY] TABLE | VIEW | FUNCTION | DATABASE | CATALOG [IF EXISTS] name [CASCADE]`."""

    kind: str
    name: Name
    if_exists: bool
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class CreateFunction(Node):
    """`CREATE [TEMPORARY [SYSTEM]] FUNCTION [IF NOT EXISTS] name AS 'module.object' LANGUAGE PYTHON`.

    Args:
        path: the Python object, and `path_at` where it stands.
    """

    name: Name
    path: str
    path_at: int
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class CreatePlace(Node):
    """`CREATE CATALOG | DATABASE [IF NOT EXISTS] name [COMMENT text] [WITH (...)]`; `kind` is CATALOG or DATABASE."""

    kind: str
    name: Name
    options: tuple[TableOption, ...]
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class Insert(Node):
    """`INSERT INTO | OVERWRITE name [PARTITION (k = v)] [(columns)] query [ON CONFLICT DO action]`.

    Args:
        partition: columns with the value that all rows have there.
        overwrite: whether the rows take the place of those that the table has.
    """

    table: Name
    columns: tuple[Identifier, ...]
    query: Query
    on_conflict: OnConflict | None
    partition: tuple[tuple[Identifier, Node], ...] = ()
    overwrite: bool = False


@dataclass(frozen=True, slots=True)
class StatementSet(Node):
    """`[EXECUTE] STATEMENT SET BEGIN insert; ... END`: one job of several inserts."""

    inserts: tuple[Insert, ...]


@dataclass(frozen=True, slots=True)
class Explain(Node):
    """`EXPLAIN [PLAN FOR | UPGRADE FROM 'savepoint'] query | insert | statement set`.

    Args:
        savepoint: the path of the savepoint, and where it stands.
    """

    statement: Query | Insert | StatementSet
    savepoint: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Show(Node):
    """`SHOW TABLES`, `VIEWS`, `FUNCTIONS`, `CREATE TABLE name`, `COLUMNS FROM name`, ...

    Args:
        name: behind CREATE TABLE or VIEW, or behind FROM.
        pattern: of `[NOT] LIKE 'pattern'`, and whether names that fit are left out.
    """

    what: str
    name: Name | None = None
    pattern: tuple[str, bool] | None = None


@dataclass(frozen=True, slots=True)
class Describe(Node):
    """`DESCRIBE name`, `DESCRIBE CATALOG name`, `DESCRIBE FUNCTION [EXTENDED] name`.

    Args:
        what: TABLE, CATALOG or FUNCTION.
        extended: whether all is told.
    """

    name: Name
    what: str = "TABLE"
    extended: bool = False


@dataclass(frozen=True, slots=True)
class JobStatement(Node):
    """`SHOW JOBS`, `DESCRIBE JOB 'id'`, `STOP JOB 'id' [WITH SAVEPOINT] [WITH DRAIN]`, for what knows a cluster.

    Args:
        action: SHOW, DESCRIBE or STOP.
        job: its id or name.
    """

    action: str
    job: str = ""
    savepoint: bool = False
    drain: bool = False


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
    | CreateFunction
    | CreatePlace
    | Alter
    | Drop
    | Insert
    | StatementSet
    | Explain
    | Show
    | Describe
    | JobStatement
    | Use
    | SetOption
    | ResetOption
)
