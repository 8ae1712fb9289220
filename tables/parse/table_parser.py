"""Reads CREATE TABLE, CREATE VIEW and ALTER: columns, keys, options, LIKE and AS.

`statement_parser.py` gives it the cursor behind the words that begin them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.tables.parse import table_statements as s
from penstock.tables.parse.cursor import Cursor
from penstock.tables.parse.nodes import Identifier
from penstock.tables.parse.query_parser import QueryParser
from penstock.tables.parse.tokens import TokenKind
from penstock.tables.parse.type_parser import parse_type

_BEHIND_NAME: Final = ("COMMENT", "DISTRIBUTED", "PARTITIONED", "WITH", "LIKE", "AS")
_INCLUDING, _OVERWRITING = s.Merge.INCLUDING, s.Merge.OVERWRITING
_PARTS: Final = ("CONSTRAINTS", "DISTRIBUTION", "PARTITIONS", "GENERATED", "METADATA", "OPTIONS", "WATERMARKS")
_OVERWRITTEN: Final = ("GENERATED", "METADATA", "OPTIONS", "WATERMARKS")
"""The parts of LIKE, and those of which the new table may have another."""


@dataclass
class _Elements:
    """What the brackets of a definition have had so far."""

    columns: list[s.PlacedColumn] = field(default_factory=list)
    keys: list[Identifier] = field(default_factory=list)
    watermarks: list[s.WatermarkDefinition] = field(default_factory=list)


class TableParser:
    """Takes statements about tables from the text."""

    def __init__(self, cursor: Cursor, queries: QueryParser) -> None:
        self.cursor = cursor
        self.queries = queries

    # CREATE

    def create_view(self, at: int) -> s.CreateView:
        """Behind CREATE VIEW."""
        cursor = self.cursor
        if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
        name = cursor.name("the name of the view")
        columns = cursor.in_brackets(cursor.identifier) if cursor.sees("(") else ()
        self._comment()
        cursor.expect("AS", where="behind the name of the view")
        begin = cursor.at
        query = self.queries.query()
        return s.CreateView(at, name, columns, query, if_not_exists, cursor.text_since(begin))

    def create_table(self, at: int) -> s.CreateTable:
        """Behind CREATE TABLE."""
        cursor = self.cursor
        if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
        name = cursor.name("the name of the table")
        order = cursor.in_brackets(cursor.identifier) if self._sees_names() else ()
        is_whole = not order and not any(cursor.sees(word) for word in _BEHIND_NAME)
        definition = self.definition() if is_whole else s.TableDefinition()
        comment = self._comment()
        distribution = self._distribution() if cursor.sees("DISTRIBUTED") else None
        partitioned_by: tuple[Identifier, ...] = ()
        if cursor.accept("PARTITIONED"):
            cursor.expect("BY", where="behind PARTITIONED")
            partitioned_by = cursor.in_brackets(cursor.identifier)
        options = self.options() if cursor.accept("WITH") else ()
        like = self._like() if cursor.sees("LIKE") else None
        query = None
        if like is None and cursor.accept("AS"):
            query = self.queries.query()
        if order and query is None:
            raise cursor.source.syntax(order[0].at, "columns without types may stand before AS only; say their types")
        if like is None and query is None and not definition.columns:
            raise cursor.expected("the columns in brackets, LIKE or AS", "behind the name of the table")
        return s.CreateTable(
            at,
            name,
            definition,
            options,
            if_not_exists,
            comment,
            partitioned_by,
            like,
            query,
            distribution,
            order=order,
        )

    def _sees_names(self) -> bool:
        """Whether names without types follow in brackets: the order of the columns of CREATE TABLE ... AS."""
        names = (TokenKind.WORD, TokenKind.QUOTED)
        return self.cursor.sees("(") and self.cursor.ahead(1).kind in names and self.cursor.ahead(2).text in (",", ")")

    def _distribution(self) -> s.Distribution:
        cursor, at = self.cursor, self.cursor.take().at
        kind: str | None = None
        columns: tuple[Identifier, ...] = ()
        if cursor.accept("BY"):
            kind = next((word for word in ("HASH", "RANGE") if cursor.accept(word)), None)
            columns = cursor.in_brackets(cursor.identifier)
        buckets = None
        if cursor.accept("INTO"):
            buckets = cursor.whole_number("how many buckets")
            cursor.expect("BUCKETS", where="behind the number")
        if not columns and buckets is None:
            raise cursor.expected("BY or INTO", "behind DISTRIBUTED")
        return s.Distribution(at, kind, columns, buckets)

    def _like(self) -> s.Like:
        cursor, at = self.cursor, self.cursor.take().at
        table = cursor.name("the name of a table")
        rules = []
        if cursor.accept("("):
            while not cursor.accept(")"):
                rules.append(self._like_rule())
        # As Flink: all is taken, and options of the new table are over those of the other.
        merges = dict.fromkeys(_PARTS, _INCLUDING) | {"OPTIONS": _OVERWRITING}
        for merge, part in sorted(rules, key=lambda rule: rule[1] != "ALL"):
            for chosen in _PARTS if part == "ALL" else (part,):
                merges[chosen] = merge
        return s.Like(at, table, tuple(merges.items()))

    def _like_rule(self) -> tuple[s.Merge, str]:
        cursor = self.cursor
        for merge in s.Merge:
            if cursor.accept(merge.value):
                parts = _OVERWRITTEN if merge is _OVERWRITING else ("ALL", *_PARTS)
                for part in parts:
                    if cursor.accept(part):
                        return merge, part
                raise cursor.expected(" or ".join((", ".join(parts[:-1]), parts[-1])), f"behind {merge.value}")
        raise cursor.expected("INCLUDING, EXCLUDING or OVERWRITING", "in the brackets of LIKE")

    # Options

    def options(self) -> tuple[s.TableOption, ...]:
        """Keys and values in brackets."""
        if self.cursor.accept("(", ")"):
            return ()
        return self.cursor.in_brackets(self._option, where="around the options")

    def _option(self) -> s.TableOption:
        at = self.cursor.at
        key = self.cursor.string("the option's key in quotes")
        self.cursor.expect("=", where="behind the option's key")
        return s.TableOption(at, key, self.cursor.string("the option's value in quotes"))

    def _option_key(self) -> Identifier:
        at = self.cursor.at
        return Identifier(at, self.cursor.string("the option's key in quotes"))

    # Columns

    def definition(self) -> s.TableDefinition:
        """Columns, computed columns, keys and the watermark, in brackets."""
        found = self._elements()
        for placed in found.columns:
            if placed.after is not None:
                raise self.cursor.source.syntax(
                    placed.at, "FIRST and AFTER are for ALTER TABLE; write columns in order"
                )
        watermark = found.watermarks[0] if found.watermarks else None
        return s.TableDefinition(tuple(placed.column for placed in found.columns), tuple(found.keys), watermark)

    def _elements(self) -> _Elements:
        cursor, found = self.cursor, _Elements()
        cursor.expect("(", where="before the columns")
        while True:
            self._element(found)
            if not cursor.accept(","):
                break
        cursor.expect(")", where="behind the columns")
        if len(found.watermarks) > 1:
            raise cursor.source.invalid(found.watermarks[1].at, "a table has one WATERMARK; leave this one out")
        return found

    def _element(self, found: _Elements) -> None:
        cursor, at = self.cursor, self.cursor.at
        if cursor.accept("WATERMARK", "FOR"):
            column = cursor.name("the column of event time")
            cursor.expect("AS", where="behind the column of WATERMARK")
            begin = cursor.at
            value = self.queries.expressions.expression()
            found.watermarks.append(s.WatermarkDefinition(at, column, value, cursor.text_since(begin)))
            return
        if cursor.sees("CONSTRAINT") or cursor.sees("PRIMARY", "KEY") or cursor.sees("UNIQUE"):
            if cursor.accept("CONSTRAINT"):
                cursor.identifier("the name of the constraint")
            if cursor.sees("UNIQUE"):
                raise cursor.source.unsupported(cursor.at, "UNIQUE is not supported; use PRIMARY KEY")
            cursor.expect("PRIMARY", "KEY", where="as the constraint")
            self._add_key(found.keys, cursor.in_brackets(cursor.identifier), at)
            return
        declared = self._column(found.keys)
        found.columns.append(s.PlacedColumn(at, declared, self._after()))

    def _after(self) -> str | None:
        if self.cursor.accept("FIRST"):
            return ""
        if self.cursor.accept("AFTER"):
            return self.cursor.identifier("the column before it").name
        return None

    def _add_key(self, keys: list[Identifier], columns: Sequence[Identifier], at: int) -> None:
        """The columns behind PRIMARY KEY, and what must follow them."""
        source = self.cursor.source
        if keys:
            raise source.invalid(at, "a table has one PRIMARY KEY, which may have several columns; leave this one out")
        for column in columns:
            if column.name in [key.name for key in keys]:
                raise source.invalid(column.at, f"the primary key names {column.name!r} more than once; name it once")
            keys.append(column)
        self._not_enforced()

    def _not_enforced(self) -> None:
        if not self.cursor.accept("NOT", "ENFORCED"):
            raise self.cursor.source.invalid(
                self.cursor.at,
                "a primary key is not checked; say so with NOT ENFORCED behind it",
            )

    def _column(self, keys: list[Identifier]) -> s.ColumnDefinition:
        cursor = self.cursor
        name = cursor.identifier("a column, PRIMARY KEY or WATERMARK")
        if cursor.accept("AS"):
            begin = cursor.at
            value = self.queries.expressions.expression()
            return s.ComputedColumn(name.at, name.name, value, cursor.text_since(begin), self._comment())
        kind = parse_type(cursor)
        if cursor.accept("METADATA"):
            key = cursor.string("the key of the metadata in quotes") if cursor.accept("FROM") else None
            virtual = cursor.accept("VIRTUAL")
            return s.MetadataColumn(name.at, name.name, kind, key, virtual, self._comment())
        at, is_named = cursor.at, cursor.accept("CONSTRAINT")
        if is_named:
            cursor.identifier("the name of the constraint")
            cursor.expect("PRIMARY", "KEY", where="as the constraint")
        if is_named or cursor.accept("PRIMARY", "KEY"):
            self._add_key(keys, (name,), at)
        return s.PhysicalColumn(name.at, name.name, kind, self._comment())

    def _comment(self) -> str | None:
        return self.cursor.string("the comment in quotes") if self.cursor.accept("COMMENT") else None

    # ALTER

    def alter(self) -> s.Alter:
        """From ALTER on."""
        cursor, at = self.cursor, self.cursor.take().at
        for kind in ("TABLE", "VIEW"):
            if cursor.accept(kind):
                if_exists = cursor.accept("IF", "EXISTS")
                name = cursor.name(f"the name of a {kind.lower()}")
                change = self._table_change() if kind == "TABLE" else self._view_change()
                return s.Alter(at, kind, name, change, if_exists)
        for kind in ("DATABASE", "CATALOG", "FUNCTION"):
            if cursor.sees(kind):
                raise cursor.source.unsupported(cursor.at, f"ALTER {kind} is not supported; drop it and create it anew")
        raise cursor.expected("TABLE or VIEW", "behind ALTER")

    def _view_change(self) -> s.Rename | s.ChangeQuery:
        cursor, at = self.cursor, self.cursor.at
        if cursor.accept("RENAME", "TO"):
            return s.Rename(at, cursor.name("the new name"))
        if cursor.accept("AS"):
            begin = cursor.at
            query = self.queries.query()
            return s.ChangeQuery(at, query, cursor.text_since(begin))
        raise cursor.expected("RENAME TO or AS", "behind the name of the view")

    def _table_change(
        self,
    ) -> s.AlterColumns | s.DropColumns | s.RenameColumn | s.Rename | s.SetTableOptions | s.ResetTableOptions:
        cursor, at = self.cursor, self.cursor.at
        if cursor.accept("RENAME", "TO"):
            return s.Rename(at, cursor.name("the new name"))
        if cursor.accept("RENAME"):
            column = cursor.identifier("a column")
            cursor.expect("TO", where="behind the column")
            return s.RenameColumn(at, column, cursor.identifier("the new name"))
        if cursor.accept("SET"):
            return s.SetTableOptions(at, self.options())
        if cursor.accept("RESET"):
            return s.ResetTableOptions(at, cursor.in_brackets(self._option_key))
        if cursor.accept("DROP"):
            return self._dropped(at)
        for how in s.Alteration:
            if cursor.accept(how.value):
                return self._altered(at, how)
        raise cursor.expected("ADD, MODIFY, DROP, RENAME, SET or RESET", "behind the name of the table")

    def _altered(self, at: int, how: s.Alteration) -> s.AlterColumns:
        cursor = self.cursor
        if cursor.token.kind is TokenKind.WORD and cursor.token.word in ("PARTITION", "DISTRIBUTION"):
            raise cursor.source.unsupported(cursor.at, f"{cursor.token.word} is not supported here")
        if cursor.sees("("):
            found = self._elements()
        else:
            found = _Elements()
            self._element(found)
        watermark = found.watermarks[0] if found.watermarks else None
        return s.AlterColumns(at, how, tuple(found.columns), tuple(found.keys), watermark)

    def _dropped(self, at: int) -> s.DropColumns:
        cursor = self.cursor
        if cursor.accept("PRIMARY", "KEY"):
            return s.DropColumns(at, "PRIMARY KEY")
        if cursor.accept("CONSTRAINT"):
            cursor.identifier("the name of the constraint")
            return s.DropColumns(at, "PRIMARY KEY")
        if cursor.accept("WATERMARK"):
            return s.DropColumns(at, "WATERMARK")
        if cursor.sees("("):
            return s.DropColumns(at, "COLUMN", cursor.in_brackets(cursor.identifier))
        return s.DropColumns(at, "COLUMN", (cursor.identifier("a column, PRIMARY KEY or WATERMARK"),))
