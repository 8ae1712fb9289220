"""What the changelog operators take: modes of changelogs, and columns of the declared types, without dictionaries."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.aggregates.accumulators import plain_type
from penstock.engine.changelog import APPEND_ONLY, WITH_BEFORE_IMAGES, ChangelogMode
from penstock.engine.elements import Batch, with_types
from penstock.engine.operators.base import OperatorContext
from penstock.engine.state.keys.identity import coded_columns
from penstock.engine.state.keys.numbering import row_numbers


def plain_columns(schema: pa.Schema) -> pa.Schema:
    """The columns with plain types, all nullable, without metadata."""
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])


def conformed(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of `schema` in its order and of its types, which differ from those of `rows` by form alone."""
    chosen = rows if rows.schema.names == schema.names else rows.select(schema.names)
    if chosen.schema.equals(schema):
        return chosen
    return with_types(chosen, schema)


def on_time(
    batch: Batch, schema: pa.Schema, watermark: int, context: OperatorContext
) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
    """The rows behind the watermark, of the types of `schema`, and their times; late ones are counted, and dropped."""
    assert batch.timestamps is not None, "a plan orders by event time where rows have it"
    rows, times = conformed(batch.data, schema), batch.timestamps.to_numpy()
    late = times <= watermark
    if late.any():
        context.metrics.late_rows += int(late.sum())
        rows, times = rows.filter(pa.array(~late)), times[~late]
    return rows, times


def accepted(takes: ChangelogMode) -> AbstractSet[ChangelogMode]:
    """The modes that an input accepts of which the plan says that it comes in the mode `takes`."""
    return APPEND_ONLY if takes is ChangelogMode.APPEND else WITH_BEFORE_IMAGES


def distinct_keys(keys: list[pa.Array], rows: int) -> tuple[npt.NDArray[np.int64], list[pa.Array]]:
    """The number of each row's key, and the keys by number, in order of first occurrence.

    Args:
        keys: the key columns; none: there is one key, that of all rows.
        rows: how many rows there are, at least one.
    """
    if not keys:
        return np.zeros(rows, np.int64), []
    numbers = row_numbers(coded_columns(keys))
    first = np.empty(int(numbers.max()) + 1, np.int64)
    first[numbers[::-1]] = np.arange(rows - 1, -1, -1)
    return numbers, [key.take(pa.array(first)) for key in keys]
