"""Names of columns that stand beside those of rows, which users name, in states and in their saved tables.

The operators that keep rows ask for them. What is beside a row gets a name that no column of the row has; in saved
tables, where some names are fixed, it is the row's column that gets another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import Final

from penstock.engine.state.capture import DELETED
from penstock.engine.state.snapshot import KEY_GROUP
from penstock.engine.state.state_tables import START, TOUCHED

_SAVED: Final = MappingProxyType({name: f"column {name}" for name in (DELETED, KEY_GROUP, START, TOUCHED)})
"""What stands in saved tables for columns of rows that are named as what these tables have beside rows.

Debezium gives one: `__deleted`.
"""
_OWN: Final = MappingProxyType({saved: name for name, saved in _SAVED.items()})


def free_name(name: str, columns: Iterable[str]) -> str:
    """The name of a column beside others: `name`, with as many underscores behind it as it takes."""
    taken = set(columns)
    while name in taken:
        name += "_"
    return name


def free_prefix(place: int, columns: Sequence[str]) -> str:
    """What the names of a call's own columns begin with, and no name of `columns` does: `__0_` for the first call."""
    prefix = f"__{place}_"
    while any(name.startswith(prefix) for name in columns):
        prefix += "_"
    return prefix


def saved_names(names: Sequence[str]) -> list[str]:
    """The names that columns of rows have in saved tables."""
    return [_SAVED.get(name, name) for name in names]


def own_names(names: Sequence[str]) -> list[str]:
    """The names of columns of rows, of those that they have in saved tables."""
    return [_OWN.get(name, name) for name in names]
