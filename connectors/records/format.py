"""What a record format implements: bytes of records to columns and back, whole batches at a time.

Connectors call it. What a record has wrong is told record by record, so that the others are kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that could not be decoded.

    Args:
        index: its place among the values that were given.
        reason: what is wrong with it, without the connector's place.
    """

    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """What `RecordFormat.decode` makes of some values.

    Args:
        rows: a row for each good record, in their order.
        bad: the others, in their order. Without any, row i is of value i.
    """

    rows: pa.RecordBatch
    bad: Sequence[BadRecord] = ()


class RecordFormat(ABC):
    """One value is one row. Picklable; must hold no open file or connection before its first use."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of every batch that `decode` gives."""

    @abstractmethod
    def decode(self, values: pa.LargeBinaryArray) -> Decoded:
        """The rows of the values; a null value (a tombstone) is a row of nulls.

        Args:
            values: one record each.
        """

    @abstractmethod
    def encode(self, rows: pa.RecordBatch) -> pa.LargeBinaryArray:
        """A value for each row.

        Raises:
            RecordError: a row cannot be written in this format; names column and row.
        """

    @abstractmethod
    def describe(self) -> str:
        """A short text for `explain()`, such as `json`."""
