"""What the state of one key holds, as a Python value: of a savepoint and of a running job alike.

`SavedState.get` and `LiveState.get` give it. State of windows is refused: a key may have any number of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.engine.errors import StateError
from penstock.savepoints.layout import Layout, StateKind

_OF_A_KEY: Final = frozenset({StateKind.VALUE, StateKind.LIST, StateKind.MAP, StateKind.AGGREGATE})
_COLUMNS_BESIDE: Final = {StateKind.VALUE: 1, StateKind.LIST: 1, StateKind.MAP: 2}
"""How many columns beside the keys one has that belongs to no window; of an aggregate, any number."""


def check_of_one_key(layout: Layout, key: Sequence[Any], place: str, instead: str) -> None:
    """Make sure that a key has one thing in a state, and that this is a key.

    Args:
        layout: of the state.
        key: the value of each key column.
        place: names the state in messages.
        instead: the call that gives rows.

    Raises:
        StateError: it has not, or it is none.
    """
    own = layout.own
    if layout.kind is StateKind.BROADCAST:
        raise StateError(f"{place} is broadcast state, which belongs to no key; use {instead}")
    if layout.kind not in _OF_A_KEY:
        raise StateError(f"{place} holds {layout.kind.value}, of which a key may have any number; use {instead}")
    is_of_windows = layout.kind is StateKind.AGGREGATE and layout.identity != layout.keys
    if is_of_windows or len(own) != _COLUMNS_BESIDE.get(layout.kind, len(own)):
        raise StateError(f"{place} belongs to windows, and a key may have several; use {instead}")
    if len(key) != len(layout.keys):
        raise StateError(f"{place} has the keys ({', '.join(layout.keys)}); get takes a value of each")


def value_of_key(layout: Layout, found: pa.Table) -> Any:
    """The value, the list, the map as a dict, the accumulators of an aggregate as a dict; None where there is nothing.

    Args:
        layout: of the state, which `check_of_one_key` has let pass.
        found: the rows of the key.
    """
    own = layout.own
    if not found.num_rows:
        return None
    if layout.kind is StateKind.MAP:
        return dict(zip(*(found.column(name).to_pylist() for name in own), strict=True))
    if layout.kind is StateKind.AGGREGATE:
        return {name: found.column(name)[0].as_py() for name in own}
    return found.column(own[0])[0].as_py()
