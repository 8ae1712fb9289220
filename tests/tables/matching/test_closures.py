"""What definitions compute row by row is what columns compute, also where whole numbers are too large."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pytest

from penstock.engine.patterns.rows.search import PartitionRows
from penstock.engine.patterns.rows.trail import Trail, TrailLayout
from penstock.tables.expressions import Constant, FunctionCall, InputColumn
from penstock.tables.functions.common_types import common_type
from penstock.tables.functions.signatures import SessionValues
from penstock.tables.lower.evaluation import Evaluation
from penstock.tables.lower.matching.closures import Closures
from penstock.tables.types import BIGINT, DOUBLE, INT, Kind, SqlType, arrow_type

_NUMBERS: Final[Mapping[SqlType, list[Any]]] = {
    SqlType(Kind.TINYINT): [-128, -1, 0, 2, 127, None],
    INT: [-(2**31), -7, 3, 2**31 - 1],
    BIGINT: [-(2**63), -7, 3, 2**63 - 1],
    DOUBLE: [-1.5, 0.0, 1e308, None],
}
_TRAIL: Final = Trail(TrailLayout((), (), 1))


@pytest.mark.parametrize("operator", ["+", "-", "*"])
@pytest.mark.parametrize(
    ("left", "right"), list(itertools.product(_NUMBERS, _NUMBERS)), ids=lambda kind: kind.kind.value
)
def test_arithmetic_is_that_of_columns(left: SqlType, right: SqlType, operator: str) -> None:
    kind = common_type([left, right])
    assert kind is not None
    for one, other in itertools.product(_NUMBERS[left], _NUMBERS[right]):
        columns = [pa.array([value], arrow_type(of)) for value, of in ((one, left), (other, right))]
        for second in (InputColumn(right, 1), Constant(right, other)):
            call = FunctionCall(kind, operator, (InputColumn(left, 0), second))
            closures = Closures({0: lambda *_, one=one: one, 1: lambda *_, other=other: other}, SessionValues)
            computed = closures.made(call)
            assert "_by_arrow" not in computed.__qualname__, "it is computed on columns, which is slow"
            wanted = Evaluation(columns, 1, SessionValues()).value(call)[0].as_py()
            assert computed(_TRAIL, PartitionRows(), 0) == wanted, (one, operator, other)
