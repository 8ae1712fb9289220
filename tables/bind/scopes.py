"""Which columns a name may mean: those of the tables in FROM, by table and alone."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.errors import nearest
from penstock.tables.expressions import Constant, Expression, FunctionCall, InputColumn
from penstock.tables.parse.nodes import Identifier, Name
from penstock.tables.parse.text import SqlText
from penstock.tables.plan.nodes import Columns
from penstock.tables.types import STRING, Kind


@dataclass(frozen=True, slots=True)
class Member:
    """A table in FROM.

    Args:
        name: its alias or its own name; None for one without.
        first: the place of its first column among those of all.
        names: the names of its columns, as the query may use them.
        hidden: columns that are not among those of `*`, because USING has them from the other side.
    """

    name: str | None
    first: int
    names: tuple[str, ...]
    hidden: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Scope:
    """The columns of FROM."""

    members: tuple[Member, ...]
    columns: Columns

    @staticmethod
    def of(name: str | None, columns: Columns) -> Scope:
        """The scope of a single table."""
        return Scope((Member(name, 0, tuple(column.name for column in columns)),), columns)

    def beside(self, other: Scope, columns: Columns) -> Scope:
        """The scope of a join; `columns` are those of both."""
        moved = (Member(m.name, m.first + len(self.columns), m.names, m.hidden) for m in other.members)
        return Scope((*self.members, *moved), columns)

    def column(self, index: int) -> InputColumn:
        """The expression of a column."""
        return InputColumn(self.columns[index].type, index)

    def places(self, qualifier: str | None) -> list[int]:
        """The places of `*`, or of `qualifier.*`."""
        return [
            member.first + offset
            for member in self.members
            if qualifier is None or member.name == qualifier
            for offset, name in enumerate(member.names)
            if name not in member.hidden
        ]

    def find(self, name: Name, source: SqlText) -> Expression | None:
        """What the name means; None where it means nothing here.

        Raises:
            SqlValidationError: it means several columns, or a row has no such field.
        """
        parts = name.parts
        if len(parts) > 1:
            for member in self.members:
                if member.name == parts[0].name and parts[1].name in member.names:
                    place = member.first + member.names.index(parts[1].name)
                    return _fields(self.column(place), parts[2:], source)
        found = [
            member.first + member.names.index(parts[0].name)
            for member in self.members
            if parts[0].name in member.names and parts[0].name not in member.hidden
        ]
        if len(found) > 1:
            owners = [str(member.name) for member in self.members if parts[0].name in member.names]
            raise source.invalid(
                name.at,
                f"column {parts[0].name!r} is in several tables ({', '.join(owners)}); "
                f"write {owners[0]}.{parts[0].name}",
            )
        return _fields(self.column(found[0]), parts[1:], source) if found else None

    def unknown(self, name: Name, source: SqlText) -> Exception:
        """The error for a name that means nothing."""
        tables = [member.name for member in self.members if member.name]
        if len(name.parts) > 1:
            for member in self.members:
                if member.name == name.parts[0].name:
                    missing = name.parts[1].name
                    return source.invalid(
                        name.parts[1].at,
                        f"table {member.name!r} has no column {missing!r}{nearest(missing, member.names)}; "
                        f"it has {', '.join(member.names)}",
                    )
            first = name.parts[0].name
            return source.invalid(
                name.at,
                f"no table or column {first!r}{nearest(first, tables)}; FROM has {', '.join(tables) or 'no table'}",
            )
        known = [name for member in self.members for name in member.names]
        missing = name.parts[0].name
        have = f"there are {', '.join(known)}" if known else "there is no FROM"
        return source.invalid(name.at, f"no column {missing!r}{nearest(missing, known)}; {have}")


def _fields(expression: Expression, names: tuple[Identifier, ...], source: SqlText) -> Expression:
    for name in names:
        expression = field_of(expression, name, source)
    return expression


def field_of(expression: Expression, name: Identifier, source: SqlText) -> Expression:
    """The field of a row.

    Raises:
        SqlValidationError: no row, or one without such a field.
    """
    kind = expression.type
    if kind.kind is not Kind.ROW:
        raise source.invalid(name.at, f"only a ROW has fields; this is {kind}, so it has no {name.name!r}")
    for field in kind.fields:
        if field.name == name.name:
            found = field.type.with_nullable(field.type.nullable or kind.nullable)
            return FunctionCall(found, "FIELD", (expression, Constant(STRING.with_nullable(False), name.name)))
    names = [field.name for field in kind.fields]
    raise source.invalid(
        name.at, f"the row has no field {name.name!r}{nearest(name.name, names)}; it has {', '.join(names)}"
    )
