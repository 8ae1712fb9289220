"""Between changelogs and plain rows: row kinds as a column, and a column as row kinds.

`TO_CHANGELOG` and `FROM_CHANGELOG` are made of these, and so are tables whose connectors give changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.engine.elements import Batch
from penstock.engine.errors import RecordError
from penstock.engine.operators.base import Collector, Operator, OperatorContext

KINDS: Final = {"INSERT": 0, "UPDATE_BEFORE": 1, "UPDATE_AFTER": 2, "DELETE": 3}
"""Row kinds as `Batch.kinds` has them."""
_NONE: Final = -1


@dataclass(frozen=True, slots=True)
class ToChangelogFactory:
    """Creates the operator that puts the kind of each row into a first column.

    Args:
        codes: by operation; rows of operations without one are dropped.
        schema: of the result.
    """

    codes: Mapping[str, str]
    schema: pa.Schema

    def __call__(self) -> Operator:
        return ToChangelog(self)


class ToChangelog(Operator):
    """Gives plain rows."""

    def __init__(self, factory: ToChangelogFactory) -> None:
        self._schema = factory.schema
        names = [factory.codes.get(name) for name in KINDS]
        self._codes = pa.array(names, pa.string())
        self._kept = np.array([name is not None for name in names])

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        kinds = np.zeros(batch.num_rows, np.int8) if batch.kinds is None else batch.kinds.to_numpy()
        kept = self._kept[kinds]
        if not kept.all():
            batch, kinds = batch.filter(pa.array(kept)), kinds[kept]
        if not len(kinds):
            return
        op = self._codes.take(pa.array(kinds))
        data = pa.RecordBatch.from_arrays([op, *batch.data.columns], schema=self._schema)
        out.collect(Batch(data, batch.timestamps))


@dataclass(frozen=True, slots=True)
class FromChangelogFactory:
    """Creates the operator that takes the kind of each row from a column, which goes.

    Args:
        op: the column's place.
        operations: by code.
        schema: of the result.
    """

    op: int
    operations: Mapping[str, str]
    schema: pa.Schema

    def __call__(self) -> Operator:
        return FromChangelog(self)


class FromChangelog(Operator):
    """Gives rows with kinds."""

    def __init__(self, factory: FromChangelogFactory) -> None:
        self._factory = factory
        self._kinds = {code: KINDS[operation] for code, operation in factory.operations.items()}

    def open(self, context: OperatorContext) -> None:
        self._where = context.where

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        column = batch.data.column(self._factory.op).dictionary_encode()
        numbers = [self._kinds.get(code, _NONE) for code in column.dictionary.to_pylist()]
        if _NONE in numbers or column.null_count:
            unknown = [code for code in column.dictionary.to_pylist() if code not in self._kinds] or [None]
            raise RecordError(
                f"{self._where}: {unknown[0]!r} is no operation; there are {', '.join(self._kinds)}: name others in "
                "'op_mapping'"
            )
        kinds = pa.array(np.array(numbers, np.int8)[column.indices.to_numpy()], pa.int8())
        columns = [column for place, column in enumerate(batch.data.columns) if place != self._factory.op]
        data = pa.RecordBatch.from_arrays(columns, schema=self._factory.schema)
        out.collect(Batch(data, batch.timestamps, kinds))
