"""Which state somebody outside a job asks an operator for, to be answered between two steps of its task.

Made by queryable state, taken by `Operator.read_state`. What is read so changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class StateRequest:
    """Which state, and of which keys.

    Args:
        state: its name, as it is stored.
        keys: the key columns, a row a key, in the types that the state has; None: all keys.
    """

    state: str
    keys: pa.RecordBatch | None = None
