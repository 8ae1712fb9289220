"""Refuses orders of values that have none: arrays, maps, multisets, rows and variants are only equal or not."""

from __future__ import annotations

from penstock.tables.functions import signatures as s
from penstock.tables.parse.text import SqlText
from penstock.tables.types import SqlType


def check_ordered(kind: SqlType, at: int, where: str, source: SqlText) -> None:
    """Check a value that is compared by more than equality, or that rows go by.

    Args:
        kind: its type.
        at: its place in the text.
        where: what orders by it, for the message: `ORDER BY`, `'<'`.
        source: the text.

    Raises:
        SqlValidationError: it has no order.
    """
    if s.accepts(s.ORDERED, kind) is None:
        raise source.invalid(
            at, f"{kind.with_nullable(True)} has no order, so there is no {where} of it; take a part, or a text of it"
        )
