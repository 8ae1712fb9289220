"""What the engine does with many rows or keys alone is done with few: its bounds are lowered, each by chance.

The ways beyond a bound give the same as those below, so a run with lowered bounds gives what one without them gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from random import Random
from types import ModuleType
from typing import Final, TypeAlias
from unittest import mock

from penstock.engine.cells import (
    accumulator_cells,
    cell_index,
    key_slots,
    segment_cells,
    session_cells,
    slice_cells,
    slice_tree,
    slot_accumulators,
)
from penstock.engine.exchange import partitioners
from penstock.engine.operators.functions import compiled_process, compiled_reduce
from penstock.engine.operators.joins import join_buffers, join_windows, session_rows
from penstock.engine.operators.matching import column_finder, match_state
from penstock.engine.operators.windows import compiled_window, compiled_window_process, session_aggregate
from penstock.engine.patterns.rows import column_search
from penstock.engine.state import segments, snapshot
from penstock.engine.state.keys import groups, hash_tables, index

Lower: TypeAlias = Callable[[Random], AbstractContextManager[None]]
_BOUNDS: Final[tuple[tuple[ModuleType, str, int], ...]] = (
    (accumulator_cells, "_MIN_CAPACITY", 1),
    (cell_index, "_SMALL", 0),
    (key_slots, "_MANY_ROWS", 2),
    (key_slots, "_MANY_A_KEY", 1),
    (key_slots, "_FEW_KEYS", 0),
    (key_slots, "_MIN_UNUSED", 0),
    (segment_cells, "_MIN_RELEASED", 0),
    (session_cells, "_FEW", 0),
    (partitioners, "_FEW_ROWS", 0),
    (slice_cells, "_SMALL", 0),
    (slice_tree, "_MANY_SLICES", 4),
    (slot_accumulators, "_MANY_ROWS", 2),
    (compiled_process, "FEW_ROWS", 0),
    (compiled_process, "FEW_ROWS_OF_MANY", 0),
    (compiled_reduce, "FEW_ROWS", 0),
    (compiled_window, "FEW_ROWS", 0),
    (compiled_window_process, "FEW_ROWS", 0),
    (join_buffers, "_SMALL_ROWS", 0),
    (join_buffers, "_FEW_TIMES", 0),
    (join_windows, "_MANY_SESSIONS", 0),
    (session_rows, "_MIN_DEAD", 0),
    (column_finder, "_MIN_GARBAGE", 0),
    (match_state, "_MOST_AT_HAND", 1),
    (session_aggregate, "_SMALL", 0),
    (column_search, "_MIN_GARBAGE", 0),
    (segments, "_MIN_ROWS", 1),
    (snapshot, "_MANY_ROWS", 1),
    (groups, "_MANY_WORDS", 2),
    (groups, "_FEW_WORDS", 0),
    (groups, "_FEW_STRINGS", 0),
    (hash_tables, "_MIN_ROWS", 1),
    (index, "_FEW", 0),
    (index, "_MIN_DEAD_BYTES", 0),
)


def as_they_are(random: Random) -> AbstractContextManager[None]:
    """Lower none."""
    return nullcontext()


@contextmanager
def compiled_alone(random: Random) -> Iterator[None]:
    """Lower those below which plain Python does what compiled functions would."""
    with ExitStack() as stack:
        for module, name, value in _BOUNDS:
            if name.startswith("FEW_ROWS"):
                stack.enter_context(mock.patch.object(module, name, value))
        yield


@contextmanager
def lowered(random: Random) -> Iterator[None]:
    """Lower some bounds, or none."""
    share = random.choice((0, 0.3, 1))
    with ExitStack() as stack:
        for module, name, value in _BOUNDS:
            if random.random() < share:
                stack.enter_context(mock.patch.object(module, name, value))
        yield
