"""Between changelogs and plain rows: row kinds as a column, and a column as row kinds.

`TO_CHANGELOG` and `FROM_CHANGELOG` are made of these, and so are tables whose connectors give changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.changelog import ANY_MODE, APPEND_ONLY, ChangelogMode, RowKind
from penstock.engine.elements import Batch
from penstock.engine.errors import RecordError
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.changelog.changes import Int64s, Mask, row_codes
from penstock.engine.operators.changelog.inputs import distinct_keys
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder

KINDS: Final = {kind.name: int(kind) for kind in RowKind}
"""Row kinds by name, as `Batch.kinds` has them."""
_NONE: Final = -1


@dataclass(frozen=True, slots=True)
class ToChangelogSpec(OperatorSpec):
    """Creates the operator that puts the kind of each row into a first column.

    Args:
        codes: by operation; rows of operations without one are dropped.
        schema: of the result.
    """

    codes: Mapping[str, str]
    schema: pa.Schema

    def create(self) -> Operator:
        return ToChangelog(self)

    def describe(self) -> str:
        return "to changelog"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(ANY_MODE,))


class ToChangelog(Operator):
    """Gives plain rows."""

    def __init__(self, spec: ToChangelogSpec) -> None:
        self._schema = spec.schema
        names = [spec.codes.get(name) for name in KINDS]
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
class FromChangelogSpec(OperatorSpec):
    """Creates the operator that takes the kind of each row from a column, which goes.

    Args:
        op: the column's place.
        operations: by code.
        mode: the changelog that comes of it.
        schema: of the result.
        skips_unknown: whether rows with another code, or null, are left out; else they fail the job.
    """

    op: int
    operations: Mapping[str, str]
    mode: ChangelogMode
    schema: pa.Schema
    skips_unknown: bool = False

    def create(self) -> Operator:
        return FromChangelog(self)

    def describe(self) -> str:
        return "from changelog"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(APPEND_ONLY,), emits=self.mode)


class FromChangelog(Operator):
    """Gives rows with kinds."""

    def __init__(self, spec: FromChangelogSpec) -> None:
        self._spec = spec
        self._kinds = {code: KINDS[operation] for code, operation in spec.operations.items()}

    def open(self, context: OperatorContext) -> None:
        self._where = context.where

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        column = batch.data.column(self._spec.op).dictionary_encode()
        numbers = [self._kinds.get(code, _NONE) for code in column.dictionary.to_pylist()]
        if (_NONE in numbers or column.null_count) and self._spec.skips_unknown:
            known = pa.array([code for code in column.dictionary.to_pylist() if code in self._kinds], pa.string())
            batch = batch.filter(pc.is_in(batch.data.column(self._spec.op), known))
            if batch.num_rows:
                self.process_batch(batch, input_index, out)
            return
        if _NONE in numbers or column.null_count:
            unknown = [code for code in column.dictionary.to_pylist() if code not in self._kinds] or [None]
            raise RecordError(
                f"{self._where}: {unknown[0]!r} is no operation; there are {', '.join(self._kinds)}: name others in "
                "'op_mapping'"
            )
        kinds = pa.array(np.array(numbers, np.int8)[column.indices.to_numpy()], pa.int8())
        columns = [column for place, column in enumerate(batch.data.columns) if place != self._spec.op]
        data = pa.RecordBatch.from_arrays(columns, schema=self._spec.schema)
        out.collect(Batch(data, batch.timestamps, kinds))


@dataclass(frozen=True, slots=True)
class UpsertSpec(OperatorSpec):
    """Creates the operator before a sink that knows rows by their key: what a row was before is of no use to it."""

    def create(self) -> Operator:
        return Upsert()

    def describe(self) -> str:
        return "upsert"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(ANY_MODE,), emits=ChangelogMode.UPSERT)


@dataclass(frozen=True, slots=True)
class SplitUpsertSpec(OperatorSpec):
    """Creates the operator before such a sink where conditions may have dropped one half of an update.

    Args:
        keys: the columns by which the sink knows rows.
    """

    keys: tuple[str, ...]

    def create(self) -> Operator:
        return SplitUpsert(self.keys)

    def describe(self) -> str:
        return f"upsert([{', '.join(self.keys)}])"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(accepts=(ANY_MODE,), emits=ChangelogMode.UPSERT)


class SplitUpsert(Operator):
    """Drops the rows of kind -U whose key a row of the batch has in the end, and makes deletes of the others.

    A row that goes from one rank to another may come before it goes: of keys with such rows, the batch is summed up.
    """

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._keys = keys

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        if batch.kinds is not None and batch.num_rows:
            kinds = batch.kinds.to_numpy()
            before = kinds == RowKind.UPDATE_BEFORE
            if before.any():
                goes = before | (kinds == RowKind.DELETE)
                numbers, _ = distinct_keys([batch.data.column(name) for name in self._keys], len(kinds))
                mixed = _come_before_they_go(numbers, goes)
                kept = np.ones(len(kinds), np.bool_)
                if mixed.any():
                    places = np.flatnonzero(mixed)
                    kept[places] = _in_the_end(batch.data.take(pa.array(places)), goes[places])
                comes = np.zeros(int(numbers.max()) + 1, np.bool_)
                comes[numbers[kept & ~goes]] = True
                kept &= ~((before | (goes & mixed)) & comes[numbers])
                kinds = np.where(before, np.int8(RowKind.DELETE), kinds)
                batch = Batch(batch.data, batch.timestamps, pa.array(kinds, pa.int8())).filter(pa.array(kept))
        if batch.num_rows:
            out.collect(batch)


def _come_before_they_go(numbers: Int64s, goes: Mask) -> Mask:
    """The rows of keys of which a row comes, and then one goes."""
    count, places = int(numbers.max()) + 1, np.arange(len(numbers))
    first, last = np.full(count, len(numbers)), np.full(count, _NONE)
    np.minimum.at(first, numbers[~goes], places[~goes])
    last[numbers[goes]] = places[goes]
    mixed: Mask = (first < last)[numbers]
    return mixed


def _in_the_end(rows: pa.RecordBatch, goes: Mask) -> Mask:
    """Of rows that are alike, the last one that says what all of them together do; none where they do nothing."""
    codes, signs = row_codes(rows), np.where(goes, -1, 1)
    sums = np.zeros(int(codes.max()) + 1, np.int64)
    np.add.at(sums, codes, signs)
    says = np.sign(sums)[codes] == signs
    last = np.full(len(sums), _NONE)
    last[codes[says]] = np.flatnonzero(says)
    kept: Mask = says & (last[codes] == np.arange(len(codes)))
    return kept


class Upsert(Operator):
    """Drops the rows of kind -U."""

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        if batch.kinds is not None:
            batch = batch.filter(pa.array(batch.kinds.to_numpy() != RowKind.UPDATE_BEFORE))
        if batch.num_rows:
            out.collect(batch)
