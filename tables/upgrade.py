"""EXPLAIN UPGRADE FROM: what becomes of a savepoint's state when a statement resumes from it.

The environment of tables gives it the savepoint's operators and those of the statement; nothing is run or restored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.tables.lower.uids import Placed

_SCHEMA: Final = pa.schema([(name, pa.string()) for name in ("state", "operator", "meaning")] + [("bytes", pa.int64())])


@dataclass(frozen=True, slots=True)
class SavedOperator:
    """An operator of a savepoint.

    Args:
        uid, name: of it.
        nbytes: of its state.
        has_state: whether a program must have it, or say that its state may be dropped.
    """

    uid: str
    name: str
    nbytes: int
    has_state: bool


def upgrade(placed: Sequence[Placed], saved: Sequence[SavedOperator]) -> pa.Table:
    """What is kept, begins anew and is lost.

    Args:
        placed: what the statement keeps from one run to the next.
        saved: the savepoint's operators.

    Returns:
        A row for each: `state` (kept, new, lost), the operator, what that means, and the bytes in the savepoint.
    """
    known = {operator.uid: operator for operator in saved}
    rows = []
    for one in placed:
        found = [known.pop(uid) for uid in one.uids if uid in known]
        nbytes = sum(operator.nbytes for operator in found)
        if found:
            meaning = "resumes where it was" if one.is_table else "its state fits"
            rows.append({"state": "kept", "operator": one.shown, "meaning": meaning, "bytes": nbytes})
        else:
            meaning = (
                "begins as for a new job"
                if one.is_table
                else "begins empty, and gets what comes from its inputs from now on"
            )
            rows.append({"state": "new", "operator": one.shown, "meaning": meaning, "bytes": 0})
    for operator in known.values():
        if operator.has_state:
            meaning = "resume with allow_non_restored_state (-n) to drop it"
            rows.append(
                {
                    "state": "lost",
                    "operator": f"{operator.name} ({operator.uid})",
                    "meaning": meaning,
                    "bytes": operator.nbytes,
                }
            )
    return pa.Table.from_pylist(rows, _SCHEMA)
