"""The text of an expression differs where it computes something else, and is the same for what is written alike."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from zoneinfo import ZoneInfo

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from penstock.engine.canonical_expressions import canonical
from penstock.engine.errors import GraphError
from penstock.engine.expressions import Expr, col, lit, when

_NS = pa.timestamp("ns")
_EXPRESSIONS: list[Callable[[], Expr]] = [
    lambda: col("a"),
    lambda: col("b"),
    lambda: col("a", "b"),
    lambda: col("a") + 1,
    lambda: col("a") + 1.0,
    lambda: col("a") + "1",
    lambda: 1 + col("a"),
    lambda: (col("a") + 1) * 2,
    lambda: col("a") + col("b") * 2,
    lambda: col("a") + np.int64(1),
    lambda: col("a") + np.int32(1),
    lambda: col("a") + True,
    lambda: col("a").fill_null(Decimal("1.0")),
    lambda: col("a").is_in([1, None]),
    lambda: col("a").is_in([1, "None"]),
    lambda: col("a").is_in({1, 2}),
    lambda: col("a").is_in({"x", "y"}),
    lambda: col("a").is_in({"x, y"}),
    lambda: col("a").is_in(np.arange(2000)),
    lambda: col("a").is_in(np.delete(np.arange(2000), 1500)),
    lambda: col("a").is_in(np.arange(2000, dtype="i4")),
    lambda: col("a").is_in(np.array(["x", None], object)),
    lambda: col("a").is_in(pa.array(range(2000))),
    lambda: col("a").is_in(pa.array([*range(1500), *range(1501, 2000)])),
    lambda: col("a").is_in(pa.array([1, None], _NS)),
    lambda: col("a").is_in(pa.chunked_array([[2, None]], _NS)),
    lambda: col("a") > pa.scalar(3, _NS),
    lambda: col("a") > datetime(2024, 1, 1),
    lambda: col("a") > datetime(2024, 1, 1, tzinfo=timezone.utc),
    lambda: col("a") > datetime(2024, 1, 1, tzinfo=ZoneInfo("Africa/Accra")),
    lambda: col("a") > pd.Timestamp("2024-01-01 00:00:00.000000001"),
    lambda: col("a") > pd.NaT,
    lambda: col("a") > date(2024, 1, 1),
    lambda: col("a") > time(1),
    lambda: col("a") > timedelta(1),
    lambda: col("a").cast(nw.Int64),
    lambda: col("a").cast(nw.Datetime("us", "UTC")),
    lambda: col("a").cast(nw.Datetime("ms", "UTC")),
    lambda: col("a").replace_strict({1: 2}),
    lambda: col("a").replace_strict({1: 3}),
    lambda: when(col("a") > 1).then("b"),
    lambda: when(col("a") > 1).then(lit("b")),
    lambda: when(col("a") > 1).then("b").otherwise(0),
]


def test_each_expression_has_a_text_of_its_own() -> None:
    texts = [canonical(made()) for made in _EXPRESSIONS]
    assert texts == [canonical(made()) for made in _EXPRESSIONS]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("value", [pd.Series([1]), np.ma.array([1]), iter([1])], ids=lambda value: type(value).__name__)
def test_other_objects_are_refused(value: object) -> None:
    with pytest.raises(GraphError, match="give its values as a list"):
        canonical(col("a").is_in(value))  # type: ignore[arg-type]
