"""How the verbs of the streams describe operators in `explain()` and in messages."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.engine.aggregates.functions import Aggregate


def function_name(function: object) -> str:
    """How `explain()` names a Python function."""
    return str(getattr(function, "__name__", type(function).__name__))


def aggregates_text(aggregates: Mapping[str, Aggregate]) -> str:
    """Named aggregates, as they are written."""
    return ", ".join(f"{name}={aggregate}" for name, aggregate in aggregates.items())


def columns_text(schema: pa.Schema | None) -> str:
    """Names and types of columns."""
    return ", ".join(f"{field.name}: {field.type}" for field in schema or ())
