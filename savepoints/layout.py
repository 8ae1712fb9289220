"""How tables of state look to people: which kind of state they hold, which columns are keys, and what is left out.

The reader shows tables by it, the editor turns what people give back into the stored form, and the comparison learns
what tells rows apart. Showing and storing are each other's inverse, but for the order of rows of different keys.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.errors import StateError, nearest
from penstock.engine.operators.join_columns import FIRED_UNTIL, TIMESTAMP
from penstock.engine.operators.sink import CHECKPOINT, COMMITTABLES, WRITER
from penstock.engine.operators.windows.group_watermarks import GROUP_WATERMARKS
from penstock.engine.operators.windows.window_aggregate import WINDOW_END, WINDOW_START, WINDOW_TYPE
from penstock.engine.state.keys.identity import coded_type
from penstock.engine.state.snapshot import KEY_GROUP, Redistribution
from penstock.engine.state.state_tables import END, MAP_KEY, START, TOUCHED, VALUE, StateTables
from penstock.engine.state.timers import EVENT_TIMERS, PROCESSING_TIMERS
from penstock.engine.task.source_head import SPLIT_WATERMARK, SPLITS_SCHEMA, SPLITS_TABLE

TIME: Final = "time"
LAST_TOUCHED: Final = "last_touched"
_TIMERS: Final = {EVENT_TIMERS: "event timers", PROCESSING_TIMERS: "processing timers"}
_ACCUMULATORS: Final = {"accumulators": "__", "window_aggregate": "__", "groups": "__rows"}
"""The states of aggregates, a row for each key (and window): how the first column behind the key columns begins."""
_SLICE: Final = "__slice"
_TIMER_TIME: Final = "__time"
_NUMBER: Final = "__number"
"""Of a timer, in the order of registration: it decides which of several at one time comes first."""
_INTERNAL: Final = "__"
_SHOWN: Final = {
    START: WINDOW_START,
    END: WINDOW_END,
    TOUCHED: LAST_TOUCHED,
    _SLICE: "slice_start",
    _TIMER_TIME: TIME,
    TIMESTAMP: "timestamp",
    FIRED_UNTIL: "fired_until",
}
"""Stored columns of int64 milliseconds, and the names under which they are shown as timestamps."""


class StateKind(enum.Enum):
    """What a table of state holds."""

    VALUE = "value"
    """One value a key: value, reducing and aggregating state."""
    LIST = "list"
    """A list a key (or one value a key whose type is a list: both are kept alike)."""
    MAP = "map"
    """A row for each entry of each key's map."""
    TIMERS = "timers"
    """The times at which keys are called."""
    AGGREGATE = "aggregate"
    """Accumulators of built-in aggregates, by key, and by window where there is one."""
    ROWS = "rows"
    """Rows that an operator keeps, such as a join or a Top-N."""
    OPERATOR_LIST = "operator list"
    """Values that belong to no key, dealt out evenly after a rescale."""
    UNION_LIST = "union list"
    """Values that belong to no key, of which every subtask gets all."""
    BROADCAST = "broadcast"
    """One map that all subtasks hold alike."""
    SPLITS = "splits"
    """How far a source has read each of its splits."""
    COMMITTABLES = "committables"
    """What a transactional sink has prepared and not committed."""
    INTERNAL = "internal"
    """What an operator notes for itself."""


_OF_ONE_KEY: Final = (StateKind.VALUE, StateKind.LIST, StateKind.AGGREGATE)


@dataclass(frozen=True)
class Layout:
    """How one table is shown.

    Args:
        kind: what it holds.
        keys: the key columns; empty where there are none, or where they are not known (rows that operators keep).
        columns: the stored and the shown name of each column that is shown, in order.
        identity: the shown columns that tell rows apart; empty where equal rows may come several times.
        stored: the stored columns with their types, but for the key group.
    """

    kind: StateKind
    keys: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    identity: tuple[str, ...]
    stored: pa.Schema

    def __reduce__(self) -> tuple[Any, ...]:
        # Without what is computed: it is sent with answers.
        return type(self), (self.kind, self.keys, self.columns, self.identity, self.stored)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns that are shown."""
        return pa.schema(
            [(shown, _shown_type(stored, self.stored.field(stored).type)) for stored, shown in self.columns]
        )

    @cached_property
    def own(self) -> tuple[str, ...]:
        """What a key has in it: the shown columns that are neither of the key nor times of its last use."""
        return tuple(shown for stored, shown in self.columns if stored not in (*self.keys, TOUCHED))

    def holds_for(self, table: pa.Table) -> bool:
        """Whether `layout_of` gives the same for other stored rows of the state."""
        hides = START in self.stored.names and START not in dict(self.columns)
        return self.stored.equals(table.schema) and hides == _hides_windows(table)

    def show(self, table: pa.Table) -> pa.Table:
        """The stored rows as people see them; timers in the order of their registration."""
        if self.kind is StateKind.TIMERS and _NUMBER in table.column_names:
            table = table.sort_by(_NUMBER)
        columns = [table.column(stored) for stored, _ in self.columns]
        arrays = [
            column if column.type == kind else column.cast(kind)
            for column, kind in zip(columns, self.schema.types, strict=True)
        ]
        return pa.table(arrays, schema=self.schema)

    def store(self, table: pa.Table, where: str) -> pa.Table:
        """Rows as people see them in the stored form, without key groups.

        Args:
            table: the columns of `schema`, in any order; `last_touched`, and the watermark of a split, may be missing.
            where: operator and state, for messages.

        Raises:
            StateError: a column is missing or unknown, or its values do not fit.
        """
        names = [shown for _, shown in self.columns]
        unknown = [name for name in table.column_names if name not in names]
        if unknown:
            raise StateError(
                f"{where}: there is no column {unknown[0]!r}{nearest(unknown[0], names)}; give the columns "
                f"({', '.join(names)})"
            )
        shown = dict(self.columns)
        fields: list[pa.Field] = []
        arrays: list[pa.ChunkedArray] = []
        for field in self.stored:
            name = shown.get(field.name)
            if field.name == _NUMBER and self.kind is StateKind.TIMERS:
                fields, arrays = [*fields, field], [*arrays, numbers(table.num_rows)]
            elif name is None:
                fields, arrays = [*fields, field], [*arrays, pa.nulls(table.num_rows, field.type)]
            elif name in table.column_names:
                column = fitted(table.column(name), _shown_type(field.name, field.type), f"{where}: column {name!r}")
                fields, arrays = [*fields, field], [*arrays, column.cast(field.type)]
            elif field.name != (SPLIT_WATERMARK if self.kind is StateKind.SPLITS else TOUCHED):
                raise StateError(f"{where}: column {name!r} is missing; give the columns ({', '.join(names)})")
        return pa.table(arrays, schema=pa.schema(fields))


def numbers(rows: int) -> pa.ChunkedArray:
    """Numbers of so many timers, registered in this order."""
    return pa.chunked_array([pa.array(np.arange(1, rows + 1))])


def shown_name(name: str) -> str:
    """What people call a table: timers have a name of their own."""
    return _TIMERS.get(name, name)


def layout_of(name: str, redistribution: Redistribution, sample: pa.Table) -> Layout:
    """How a table is shown.

    Args:
        name: the state's.
        redistribution: how it is shared out.
        sample: some of its rows, without marks of changes; of keyed state, all belong to windows or none does.
    """
    fields = [field for field in sample.schema if field.name != KEY_GROUP]
    names = [field.name for field in fields]
    kind, keys = _kind_and_keys(name, redistribution, pa.schema(fields))
    hidden: set[str] = {START, END} if _hides_windows(sample) else set()
    if kind is StateKind.TIMERS:
        hidden.add(_NUMBER)
    columns: list[tuple[str, str]] = []
    for stored in names:
        if stored not in hidden:
            columns.append((stored, _free_name(stored, keys, names, [shown for _, shown in columns])))
    identity = _identity(kind, keys, dict(columns))
    return Layout(kind, keys, tuple(columns), identity, pa.schema(fields))


def _hides_windows(sample: pa.Table) -> bool:
    """Whether none of the rows belongs to a window, in a state of which some may."""
    names = sample.column_names
    return START in names and END in names and sample.column(START).null_count == sample.num_rows


def _kind_and_keys(name: str, redistribution: Redistribution, schema: pa.Schema) -> tuple[StateKind, tuple[str, ...]]:
    names = schema.names
    if redistribution is Redistribution.KEYED:
        return _keyed_kind(name, schema)
    if name == SPLITS_TABLE and set(SPLITS_SCHEMA.names) - set(names) <= {SPLIT_WATERMARK}:
        return StateKind.SPLITS, ()
    if name == COMMITTABLES and names[:2] == [WRITER, CHECKPOINT]:
        return StateKind.COMMITTABLES, ()
    own = {
        Redistribution.BROADCAST: (StateKind.BROADCAST, [MAP_KEY, VALUE]),
        Redistribution.SPLIT: (StateKind.OPERATOR_LIST, [VALUE]),
        Redistribution.UNION: (StateKind.UNION_LIST, [VALUE]),
    }
    kind, columns = own.get(redistribution, (StateKind.INTERNAL, []))
    return (kind if names == columns else StateKind.INTERNAL), ()


def _keyed_kind(name: str, schema: pa.Schema) -> tuple[StateKind, tuple[str, ...]]:
    names = schema.names
    if name == GROUP_WATERMARKS:
        return StateKind.INTERNAL, ()
    if START in names:
        keys = tuple(names[: names.index(START)])
        if name in _TIMERS:
            return StateKind.TIMERS, keys
        # Key columns may be called as the state's own columns are.
        value, map_key = (StateTables(keys, 1, name).column_name(own) for own in (VALUE, MAP_KEY))
        if value in names[len(keys) :] and _TIMER_TIME not in names:
            if map_key in names[len(keys) :]:
                return StateKind.MAP, keys
            is_list = pa.types.is_list(schema.field(value).type)
            return (StateKind.LIST if is_list else StateKind.VALUE), keys
    if name in _ACCUMULATORS:
        keys = tuple(itertools.takewhile(lambda column: not column.startswith(_ACCUMULATORS[name]), names))
        if own := [at for at, one in enumerate(names) if name == "groups" and one.rstrip("_") == _ACCUMULATORS[name]]:
            # A key may be called as the groups' own column, which has an underscore more then.
            keys = tuple(names[: own[-1]])
        # SQL groups by any type; of those that cannot be keys of streams, rows are divided by their codes.
        if all(coded_type(schema.field(key).type) == schema.field(key).type for key in keys):
            return StateKind.AGGREGATE, keys
    # By which of their columns other rows are divided is not written down.
    return StateKind.ROWS, ()


def _free_name(stored: str, keys: Sequence[str], names: Sequence[str], taken: Sequence[str]) -> str:
    """The name under which a column is shown: a plain one, unless another column has it."""
    if stored in keys or not stored.startswith(_INTERNAL):
        return stored
    plain = _SHOWN.get(stored, stored[len(_INTERNAL) :])
    return stored if plain in names or plain in taken else plain


def _identity(kind: StateKind, keys: tuple[str, ...], shown: dict[str, str]) -> tuple[str, ...]:
    windows = tuple(shown[name] for name in (START, END, _SLICE) if name in shown)
    if kind in _OF_ONE_KEY:
        return (*keys, *windows)
    if kind is StateKind.MAP:
        map_key = StateTables(keys, 1, "").column_name(MAP_KEY)
        return (*keys, *windows, shown[map_key])
    if kind is StateKind.TIMERS:
        return tuple(shown.values())
    if kind is StateKind.SPLITS:
        return ("split_id",)
    return (MAP_KEY,) if kind is StateKind.BROADCAST else ()


def _shown_type(stored: str, kind: pa.DataType) -> pa.DataType:
    is_list = pa.types.is_list(kind)
    if stored not in _SHOWN or not pa.types.is_int64(kind.value_type if is_list else kind):
        # Columns of rows may have such names, too.
        return kind
    return pa.list_(WINDOW_TYPE) if is_list else WINDOW_TYPE


def fitted(column: pa.ChunkedArray, kind: pa.DataType, where: str) -> pa.ChunkedArray:
    """A column of type `kind`, if its values can be that without loss.

    Raises:
        StateError: they cannot.
    """
    if column.type == kind:
        return column
    is_text = [pa.types.is_string(one) or pa.types.is_large_string(one) for one in (column.type, kind)]
    if is_text[0] != is_text[1] and not pa.types.is_dictionary(column.type) and not pa.types.is_null(column.type):
        raise StateError(f"{where} is {column.type}, and must be {kind}; cast it")
    try:
        return column.cast(kind)
    except (pa.ArrowException, ValueError) as error:
        raise StateError(f"{where} is {column.type}, and must be {kind}: {error}; cast it") from error


def plain_table(data: object, where: str, types: Mapping[str, pa.DataType]) -> pa.Table:
    """What a user gave as rows, as an Arrow table whose dictionary columns are replaced by their values.

    Args:
        data: a pyarrow Table or RecordBatch, a pandas or polars DataFrame, a list of dicts, or a dict of columns.
        where: for messages.
        types: of some columns, by which Python values are read.

    Raises:
        StateError: it is none of these.
    """
    try:
        table = _table(data, types)
    except (pa.ArrowException, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise StateError(
            f"{where}: data is an Arrow table, a DataFrame, a list of dicts or a dict of columns; {data!r:.200} "
            f"({type(data).__name__}) makes none: {error}"
        ) from error
    for index, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(index, field.name, pc.cast(table.column(index), field.type.value_type))
    return table.replace_schema_metadata(None)


def _table(data: object, types: Mapping[str, pa.DataType]) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if hasattr(data, "iloc"):
        # Of a pandas frame the index is no column, unless the user makes it one.
        return pa.Table.from_pandas(data, preserve_index=False)
    if isinstance(data, list | tuple):
        names = dict.fromkeys(name for row in data for name in row)
        data = {name: [row.get(name) for row in data] for name in [*names] or types}
    if isinstance(data, Mapping):
        return pa.table({name: _column(values, types.get(name)) for name, values in data.items()})
    return pa.table(data)


def _column(values: Any, kind: pa.DataType | None) -> Any:
    return values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values, kind)
