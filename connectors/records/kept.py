"""Bad records as rows beside the good ones: what `bad_records="keep"` means in every source that has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

ERROR_COLUMN: Final = "error"
RAW_COLUMN: Final = "raw"
KEPT_FIELDS: Final = (pa.field(ERROR_COLUMN, pa.string()), pa.field(RAW_COLUMN, pa.binary()))
"""The columns behind those of the records, null for good ones: what is wrong, and the record."""


def with_kept(good: pa.RecordBatch, bad: Mapping[int, tuple[str, bytes]], count: int) -> list[pa.Array]:
    """The columns of `count` records in their order, and those of `KEPT_FIELDS`.

    Args:
        good: a row for each good record, in their order.
        bad: by their places among all, what is wrong with the others, and their bytes.
        count: how many records there are, good and bad.
    """
    if not bad:
        return [*good.columns, *(pa.nulls(count, field.type) for field in KEPT_FIELDS)]
    rows = iter(range(good.num_rows))
    taken = pa.array([None if place in bad else next(rows) for place in range(count)], pa.int64())
    told = [bad.get(place, (None, None)) for place in range(count)]
    return [
        *(column.take(taken) for column in good.columns),
        pa.array([reason for reason, _ in told], pa.string()),
        pa.array([raw for _, raw in told], pa.binary()),
    ]
