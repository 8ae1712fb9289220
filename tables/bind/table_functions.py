"""Binds functions in FROM: TUMBLE, HOP, CUMULATE, SESSION, TO_CHANGELOG, FROM_CHANGELOG."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from penstock.engine.errors import nearest
from penstock.tables import types as t
from penstock.tables.bind.expression_binder import ExpressionBinder
from penstock.tables.bind.scopes import Scope
from penstock.tables.expressions import Constant, InputColumn
from penstock.tables.parse import nodes as n
from penstock.tables.parse import queries as q
from penstock.tables.parse.text import SqlText
from penstock.tables.plan.nodes import (
    Column,
    Columns,
    FromChangelog,
    Normalize,
    PlanNode,
    Project,
    TimeAttribute,
    ToChangelog,
    WindowKind,
    WindowSpec,
    WindowTable,
    unique_names,
)
from penstock.tables.types import Kind

_PARAMETERS: Final[Mapping[str, tuple[tuple[str, ...], int]]] = {
    "TUMBLE": (("DATA", "TIMECOL", "SIZE", "OFFSET"), 3),
    "HOP": (("DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"), 4),
    "CUMULATE": (("DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"), 4),
    "SESSION": (("DATA", "TIMECOL", "GAP"), 3),
    "TO_CHANGELOG": (("INPUT", "OP", "OP_MAPPING", "UID"), 1),
    "FROM_CHANGELOG": (("INPUT", "OP", "OP_MAPPING", "ERROR_HANDLING", "UID"), 1),
}
"""Names of the parameters, and how many must be given. UID is taken: operators are known by what they compute."""
TABLE_FUNCTIONS: Final = frozenset(_PARAMETERS)
_OPERATIONS: Final = ("INSERT", "UPDATE_BEFORE", "UPDATE_AFTER", "DELETE")
_DEFAULT_OP: Final = "op"


class TableFunctionBinder:
    """Binds one call.

    Args:
        source: the text, for errors.
        call: the call; its table argument is bound already.
        zone: the session's.
        arguments: by parameter, in capitals.
    """

    def __init__(self, source: SqlText, call: n.Call, zone: str) -> None:
        self._source = source
        self._zone = zone
        self._call = call
        self.arguments = self._assigned()

    def _assigned(self) -> dict[str, n.Node]:
        names, fewest = _PARAMETERS[self._call.name]
        found: dict[str, n.Node] = {}
        for place, argument in enumerate(self._call.arguments):
            if argument.name is None and place >= len(names):
                raise self._source.invalid(argument.at, f"{self._call.name} takes at most {len(names)} arguments")
            name = argument.name or names[place]
            if name not in names:
                raise self._source.invalid(
                    argument.at,
                    f"{self._call.name} has no parameter {name.lower()!r}{nearest(name, names)}; it takes "
                    f"{', '.join(names).lower()}",
                )
            found[name] = argument.value
        missing = [name for name in names[:fewest] if name not in found]
        if missing:
            raise self._source.invalid(
                self._call.at, f"{self._call.name} lacks {missing[0].lower()!r}; it takes {', '.join(names).lower()}"
            )
        return found

    def table(self) -> q.TableArgument:
        """The argument that is a table.

        Raises:
            SqlValidationError: another kind of argument.
        """
        name = _PARAMETERS[self._call.name][0][0]
        argument = self.arguments[name]
        if isinstance(argument, q.Subquery):
            return q.TableArgument(argument.at, argument.query, ())
        if not isinstance(argument, q.TableArgument):
            raise self._source.invalid(
                argument.at, f"the first argument of {self._call.name} is a table: write TABLE before its name"
            )
        return argument

    def bind(self, node: PlanNode, scope: Scope) -> PlanNode:
        """The plan of the call over its table."""
        if self._call.name == "TO_CHANGELOG":
            return self._to_changelog(node, scope)
        if self._call.name == "FROM_CHANGELOG":
            return self._from_changelog(node, scope)
        return self._window(node, scope)

    # Windows

    def _window(self, node: PlanNode, scope: Scope) -> PlanNode:
        place = self._descriptor("TIMECOL", node.columns)
        time = node.columns[place].time
        if time not in (TimeAttribute.ROWTIME, TimeAttribute.PROCTIME):
            raise self._source.invalid(
                self.arguments["TIMECOL"].at,
                f"column {node.columns[place].name!r} is no time attribute, so windows over it would never end; "
                "declare WATERMARK FOR it in CREATE TABLE, or take a column of PROCTIME()",
            )
        kind = WindowKind(self._call.name)
        size = self._length("GAP" if kind is WindowKind.SESSION else "SIZE", positive=True)
        step = self._length({"HOP": "SLIDE", "CUMULATE": "STEP"}.get(self._call.name, ""), positive=True)
        if kind is WindowKind.CUMULATE and size % step:
            raise self._source.invalid(self._call.at, "the size of CUMULATE must be a multiple of its step")
        spec = WindowSpec(kind, size, step, self._length("OFFSET", positive=False), time)
        partition = self._partition(scope)
        if partition and kind is not WindowKind.SESSION:
            raise self._source.unsupported(self._call.at, f"PARTITION BY has no meaning in {kind.value}; leave it out")
        return window_table(node, spec, place, partition, self._zone)

    def _partition(self, scope: Scope) -> tuple[int, ...]:
        """The columns of PARTITION BY behind the table."""
        binder = ExpressionBinder(self._source, scope)
        partition = []
        for key in self.table().partition_by:
            bound = binder.bind(key)
            if not isinstance(bound, InputColumn):
                raise self._source.invalid(key.at, "PARTITION BY of a table takes columns")
            partition.append(bound.index)
        return tuple(partition)

    def _descriptor(self, parameter: str, columns: Columns) -> int:
        argument = self.arguments[parameter]
        if not isinstance(argument, n.Descriptor) or len(argument.columns) != 1:
            raise self._source.invalid(argument.at, f"write DESCRIPTOR(column) for {parameter.lower()!r}")
        name = argument.columns[0].name
        names = [column.name for column in columns]
        if name not in names:
            raise self._source.invalid(
                argument.columns[0].at, f"no column {name!r}{nearest(name, names)}; the table has {', '.join(names)}"
            )
        return names.index(name)

    def _length(self, parameter: str, positive: bool) -> int:
        if parameter not in self.arguments:
            return 0
        argument = self.arguments[parameter]
        bound = ExpressionBinder(self._source, Scope((), ())).bind(argument)
        if not isinstance(bound, Constant) or bound.type.kind is not Kind.INTERVAL_MILLIS:
            raise self._source.invalid(
                argument.at,
                f"{parameter.lower()!r} is an interval without months, whose lengths differ: INTERVAL '5' MINUTE",
            )
        length = bound.value
        assert isinstance(length, int)
        if positive and length <= 0:
            raise self._source.invalid(argument.at, f"{parameter.lower()!r} must be longer than 0")
        return length

    # Changelogs

    def _to_changelog(self, node: PlanNode, scope: Scope) -> PlanNode:
        codes = {operation: operation for operation in _OPERATIONS}
        if "OP_MAPPING" in self.arguments:
            codes = {}
            for operations, code, at in self._mapping():
                for operation in operations:
                    self._check_operation(operation, at, codes)
                    codes[operation] = code
        names = unique_names([self._op_name(), *(column.name for column in node.columns)])
        op = Column(names[0], t.STRING.with_nullable(False))
        # A row that is taken back may be of any time.
        times = [c.time if c.time is TimeAttribute.PROCTIME else None for c in node.columns]
        plain = tuple(Column(name, c.type, time) for name, c, time in zip(names[1:], node.columns, times, strict=True))
        changes = ToChangelog(node, codes, (op, *plain))
        return in_front(changes, tuple(place + 1 for place in self._partition(scope)))

    def _from_changelog(self, node: PlanNode, scope: Scope) -> PlanNode:
        place = self._op_column(node.columns)
        kinds = {operation: operation for operation in _OPERATIONS}
        keys = tuple(key - (key > place) for key in self._partition(scope))
        if "OP_MAPPING" in self.arguments:
            kinds = {}
            for codes, operation, at in self._mapping():
                self._check_operation(operation, at, kinds.values())
                for code in codes:
                    self._check_new(code, at, kinds)
                    kinds[code] = operation
        columns = tuple(column for i, column in enumerate(node.columns) if i != place)
        changes = FromChangelog(node, place, kinds, columns, self._skips_unknown())
        if "UPDATE_AFTER" not in kinds.values() or "UPDATE_BEFORE" in kinds.values():
            return in_front(changes, keys)
        if not keys:
            raise self._source.invalid(
                self.arguments["OP_MAPPING"].at,
                "'op_mapping' has UPDATE_AFTER without UPDATE_BEFORE, so the rows that are updated must be known by a "
                "key: write TABLE ... PARTITION BY key, or map UPDATE_BEFORE",
            )
        return in_front(Normalize(changes, keys), keys)

    def _skips_unknown(self) -> bool:
        """Whether rows with another operation are left out."""
        argument = self.arguments.get("ERROR_HANDLING")
        if argument is None:
            return False
        if not isinstance(argument, n.StringLiteral) or argument.value not in ("FAIL", "SKIP"):
            raise self._source.invalid(argument.at, "'error_handling' is 'FAIL' or 'SKIP'")
        return argument.value == "SKIP"

    def _op_column(self, columns: Columns) -> int:
        """The column with the operation."""
        name = self._op_name()
        names = [column.name for column in columns]
        if name not in names:
            raise self._source.invalid(
                self._call.at,
                f"the table has no column {name!r} with the operation{nearest(name, names)}; name it with "
                "op => DESCRIPTOR(column)",
            )
        place = names.index(name)
        if not columns[place].type.is_text:
            raise self._source.invalid(
                self._call.at,
                f"column {name!r} has the operation, so it must be of type STRING, and it is of type "
                f"'{columns[place].type}'; name another one with op => DESCRIPTOR(column)",
            )
        return place

    def _op_name(self) -> str:
        argument = self.arguments.get("OP")
        if argument is None:
            return _DEFAULT_OP
        if not isinstance(argument, n.Descriptor) or len(argument.columns) != 1:
            raise self._source.invalid(argument.at, "'op' is one column; write op => DESCRIPTOR(column)")
        return argument.columns[0].name

    def _mapping(self) -> Sequence[tuple[list[str], str, int]]:
        argument = self.arguments["OP_MAPPING"]
        if not isinstance(argument, n.Constructor) or argument.kind != "MAP" or len(argument.items) % 2:
            raise self._source.invalid(argument.at, "'op_mapping' is a MAP of texts, such as MAP['c, r', 'INSERT']")
        pairs = []
        for key, value in zip(argument.items[::2], argument.items[1::2], strict=True):
            if not isinstance(key, n.StringLiteral) or not isinstance(value, n.StringLiteral):
                raise self._source.invalid(key.at, "'op_mapping' is a MAP of texts, such as MAP['c, r', 'INSERT']")
            pairs.append(([part.strip() for part in key.value.split(",")], value.value, key.at))
        return pairs

    def _check_operation(self, operation: str, at: int, known: Collection[str]) -> None:
        if operation not in _OPERATIONS:
            raise self._source.invalid(
                at,
                f"in 'op_mapping', {operation!r} is no kind of change{nearest(operation, _OPERATIONS)}; there are "
                f"{', '.join(_OPERATIONS)}",
            )
        self._check_new(operation, at, known)

    def _check_new(self, name: str, at: int, known: Collection[str]) -> None:
        if name in known:
            raise self._source.invalid(
                at, f"{name!r} is twice in 'op_mapping'; name all that belongs to it at once, as in 'c, r'"
            )


def in_front(node: PlanNode, places: tuple[int, ...]) -> PlanNode:
    """The rows with some of their columns before the others."""
    if not places:
        return node
    order = (*places, *(place for place in range(len(node.columns)) if place not in places))
    columns = tuple(node.columns[place] for place in order)
    return Project(node, tuple(InputColumn(node.columns[place].type, place) for place in order), columns)


def window_table(node: PlanNode, spec: WindowSpec, place: int, partition: tuple[int, ...], zone: str) -> WindowTable:
    """The plan node that gives rows their windows, which lie in a time zone where their time is a moment."""
    given = node.columns[place]
    is_moment = given.type.kind is Kind.TIMESTAMP_LTZ
    spec = replace(spec, zone=zone if is_moment and zone != "UTC" else None)
    bound = t.timestamp(3).with_nullable(False)
    time = t.timestamp_ltz(3).with_nullable(False) if is_moment else bound
    kept = tuple(Column(c.name, c.type, c.time if c.time is TimeAttribute.PROCTIME else None) for c in node.columns)
    added = (
        Column("window_start", bound, TimeAttribute.WINDOW_START),
        Column("window_end", bound, TimeAttribute.WINDOW_END),
        Column("window_time", time, spec.time),
    )
    return WindowTable(node, spec, place, partition, (*kept, *added))
