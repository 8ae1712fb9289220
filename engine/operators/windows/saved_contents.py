"""Whether the general window operator finds again what windows were saved with: their places, and their accumulators.

It asks when it is restored. Rows, and accumulators of a user's functions, have types that the state backend compares,
and that may get more fields; those of named aggregates may not, as nothing is known of the rows before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from penstock.engine.aggregates.accumulators import INTERNAL
from penstock.engine.aggregates.scalar import are_numbers_of_times
from penstock.engine.errors import StateError
from penstock.engine.operators.saved_aggregates import ANOTHER_UID
from penstock.engine.operators.windows.merging_windows import MERGING_WINDOWS
from penstock.engine.operators.windows.window_folds import CONTENTS, Fold, NamedFold
from penstock.engine.state.snapshot import StateTable
from penstock.engine.state.state_tables import END, VALUE
from penstock.engine.windows.row_serializer import RowSerializer


def check_places(tables: Mapping[str, StateTable], is_merging: bool, where: str) -> None:
    """Make sure that windows merge if those that were saved did: others are kept in other places.

    Args:
        tables: of the snapshot.
        is_merging: whether the windows merge.
        where: the operator and subtask, for messages.

    Raises:
        StateError: they would not be found again.
    """
    if CONTENTS in tables and (MERGING_WINDOWS.name in tables) != is_merging:
        kinds = ("do not merge", "merge, as sessions do")
        raise StateError(
            f"{where}: the state was saved by windows that {kinds[not is_merging]}, and these {kinds[is_merging]}; "
            f"window as before, or {ANOTHER_UID}"
        )


def check_lateness(saved_ms: int, lateness_ms: int, where: str) -> None:
    """Make sure that windows are kept for as long behind their end as when they were saved.

    Raises:
        StateError: they are not. With a longer lateness, late rows would open windows that are gone, and replace their
            results; timers that are set do not forget windows at another time.
    """
    if saved_ms != lateness_ms:
        raise StateError(
            f"{where}: windows were kept for {saved_ms} ms behind their end, and are to be kept for {lateness_ms} ms; "
            f"keep allowed_lateness as it was, or {ANOTHER_UID}"
        )


def check_contents(table: StateTable | None, was_named: bool, fold: Fold | None, where: str) -> None:
    """Make sure that saved contents have the accumulators of the named aggregates, where there are such, and no others.

    Args:
        table: of the contents; None where nothing was saved.
        was_named: whether the snapshot has columns that named aggregates have noted.
        fold: of the windows now.
        where: the operator and subtask, for messages.

    Raises:
        StateError: they have not.
    """
    if table is None or not table.data.num_rows:
        return
    needed = set(fold.accumulators) if isinstance(fold, NamedFold) else set()
    names = table.data.column_names
    column = next(name for name in names[names.index(END) :] if name.lstrip("_") == VALUE)
    saved = {*_names_of_type(table.data.schema.field(column).type)}
    if was_named:
        value = table.data.column(column)[0].as_py()
        saved = {*_names_of_value(RowSerializer().loads(value[0] if isinstance(value, list) else value))}
    if saved != needed:
        raise StateError(
            f"{where}: the windows were saved with the accumulators ({', '.join(sorted(saved))}), and what is computed "
            f"needs ({', '.join(sorted(needed))}) now; aggregate as before, or {ANOTHER_UID}"
        )


def check_times(saved: pa.Schema, fold: Fold | None, where: str) -> None:
    """Make sure that accumulators which are times were saved with the types that they have now.

    They lie in state as numbers, of which it does not know the unit.

    Args:
        saved: the accumulators with their types.
        fold: of the windows now.
        where: the operator and subtask, for messages.

    Raises:
        StateError: one is a time, was one, or was one in another unit or zone.
    """
    now = fold.scalar.schema if isinstance(fold, NamedFold) and fold.is_declared else pa.schema([])
    for field in now:
        before = saved.field(field.name).type if field.name in saved.names else field.type
        if before != field.type and (are_numbers_of_times(before) or are_numbers_of_times(field.type)):
            raise StateError(
                f"{where}: the windows were saved with the accumulator {field.name} of {before}, and it is "
                f"{field.type} now; keep the type of the column, or {ANOTHER_UID}"
            )


def _names_of_type(kind: pa.DataType) -> Iterator[str]:
    """The names of accumulators in a type."""
    if pa.types.is_list(kind):
        yield from _names_of_type(kind.value_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            if field.name.startswith(INTERNAL):
                yield field.name
            else:
                yield from _names_of_type(field.type)


def _names_of_value(value: Any) -> Iterator[str]:
    """The names of accumulators in a value."""
    if isinstance(value, list):
        for one in value:
            yield from _names_of_value(one)
    elif isinstance(value, dict):
        for name, held in value.items():
            if name.startswith(INTERNAL):
                yield name
            else:
                yield from _names_of_value(held)
