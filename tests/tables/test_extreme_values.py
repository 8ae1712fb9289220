"""Extreme values: a call that says that it cannot fail gives one for each row, whatever its arguments are.

Nothing is listed here by function: a new one is called with all of these, too.
"""

from __future__ import annotations

import datetime as dt
import itertools
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest

from penstock.engine.errors import SqlError
from penstock.tables import types as t
from penstock.tables.bind.expression_binder import ExpressionBinder
from penstock.tables.bind.scopes import Scope
from penstock.tables.functions import signatures as s
from penstock.tables.functions.registry import OF_OPERATORS, SCALAR_FUNCTIONS
from penstock.tables.lower.evaluation import Evaluation
from penstock.tables.parse import nodes as n
from penstock.tables.parse.text import SqlText
from penstock.tables.plan.expression_traits import is_fallible
from penstock.tables.plan.nodes import Column
from penstock.tables.types import Kind, RowField, SqlType

_INF: Final = float("inf")
_TEXTS: Final = (
    *("", " ", "a", "a" * 300, "(", "\\", "%", "é𝄞", "\x00", "=", ",", "%zz", "%c", "%s%d", "-1", "1e400"),
    *("9999-12-31 23:59:59", "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999999", "+99:99", "UTC", "Asia/Tokyo"),
    *("yyyy-MM-dd", "XXX", "UTF-8", "utf-16", "$.a", "http://[::1", "HOST", "QUERY"),
    *('{"a":' * 5_000 + "1", '{"a":"\\ud83d"}', '"\\ud83d"'),
)
_ENTRY: Final = SqlType(Kind.ROW, fields=(RowField("k", t.STRING), RowField("v", t.INT)))
_VALUES: Final[tuple[tuple[SqlType, tuple[Any, ...]], ...]] = (
    (t.BOOLEAN, (True, False)),
    (SqlType(Kind.TINYINT), (-128, 127, 0, -1, 1)),
    (t.INT, (-(2**31), 2**31 - 1, 0, -1, 1, 7, 256, 55_296, 1_114_112)),
    (t.BIGINT, (-(2**63), 2**63 - 1, 0, -1, 1, 55_296, 1_114_112, 253_402_300_800)),
    (t.decimal(38, 10), (Decimal("9" * 28), -Decimal("9" * 28), Decimal(0), Decimal("0.0000000001"))),
    (t.FLOAT, (float("nan"), _INF, -_INF, 0.0, 3.4e38, 1e-40)),
    (t.DOUBLE, (float("nan"), _INF, -_INF, -0.0, 1.7e308, 5e-324, -1.5)),
    (t.STRING, _TEXTS),
    (t.BYTES, (b"", b"\xff\xfe", b"a", b"\0" * 20)),
    (t.DATE, (dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1970, 1, 1))),
    (SqlType(Kind.TIME, precision=0), (dt.time(0), dt.time(23, 59, 59))),
    (t.timestamp(3), (dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59), dt.datetime(1970, 1, 1))),
    (t.timestamp_ltz(3), (dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30), dt.datetime(1970, 1, 1))),
    (t.INTERVAL_MONTHS, (-(2**31), 2**31 - 1, 0, 96_000)),
    (t.INTERVAL_MILLIS, (-(2**63), 2**63 - 1, 0, 10**15)),
    (t.array(t.INT), ([], [1], [1, None], [None], [-(2**31), 2**31 - 1])),
    (t.array(t.STRING), ([], ["a"], ["a", None], [None], ["a", "b"])),
    (t.array(_ENTRY), ([], [{"k": None, "v": 1}], [None])),
    (SqlType(Kind.MULTISET, parts=(t.STRING,)), ([("a", 1)], [])),
    (SqlType(Kind.MAP, parts=(t.STRING, t.INT)), ([], [("a", 1)], [("a", None), ("b", 2)])),
    (SqlType(Kind.VARIANT), ("1", '{"a":1}', "[1]")),
)
_COLUMNS: Final = tuple(Column(f"c{place}", kind) for place, (kind, _) in enumerate(_VALUES))
_BINDER: Final = ExpressionBinder(SqlText("?"), Scope.of("t", _COLUMNS))
_ROWS: Final = 20
_CALLS: Final = 30
"""Of each function with so many arguments, at most."""
_GROWING: Final = ("LPAD", "RPAD", "REPEAT")
"""What has as many characters as a number says."""


def _column(place: int) -> n.Node:
    return n.Name(0, (n.Identifier(0, f"c{place}"),))


def _calls(function: s.ScalarFunction, draw: random.Random) -> Iterator[n.Node]:
    most = function.fewest + 2 if function.most is None else function.most
    for count in range(max(function.fewest, 1), most + 1):
        parameters = [function.parameter(place) for place in range(count)]
        fitting = [
            [place for place, (kind, _) in enumerate(_VALUES) if s.accepts(parameter, kind) is not None]
            for parameter in parameters
        ]
        chosen = list(itertools.product(*fitting))
        for places in draw.sample(chosen, min(len(chosen), _CALLS)):
            yield n.Call(0, function.name, tuple(n.Argument(0, _column(place)) for place in places))


def _fault(node: n.Node, draw: random.Random) -> str | None:
    """What has become of rows that cannot fail; None: they have values, or it is refused, or may fail."""
    try:
        bound = _BINDER.bind(node)
    except SqlError:
        return None
    if is_fallible(bound):
        return None
    columns = [
        pa.array([draw.choice((*values, None)) for _ in range(_ROWS)], t.arrow_type(kind)) for kind, values in _VALUES
    ]
    try:
        Evaluation(columns, _ROWS, s.SessionValues("Europe/Berlin")).value(bound)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


_CALLED: Final = sorted(
    name
    for name, function in SCALAR_FUNCTIONS.items()
    if name not in (*OF_OPERATORS, *_GROWING) and s.KEYWORD not in function.parameters
)


@pytest.mark.parametrize("first", sorted({name[0] for name in _CALLED}))
def test_what_cannot_fail_has_a_value_for_each_row(first: str) -> None:
    draw = random.Random(7)
    nodes = [node for name in _CALLED if name[0] == first for node in _calls(SCALAR_FUNCTIONS[name], draw)]
    assert not [(node, fault) for node in nodes if (fault := _fault(node, draw)) is not None]


def test_operators_that_cannot_fail_have_a_value_for_each_row() -> None:
    draw, places = random.Random(7), range(len(_VALUES))
    pairs = [(_column(one), _column(other)) for one, other in itertools.product(places, repeat=2)]
    nodes: list[n.Node] = [n.Binary(0, sign, *pair) for pair in pairs for sign in ("+", "-", "*", "=", "<", "||")]
    kinds = (*(kind for kind, _ in _VALUES), t.timestamp(9), t.array(t.BIGINT), t.decimal(3, 0))
    nodes += [n.Cast(0, _column(place), kind, safe) for place in places for kind in kinds for safe in (False, True)]
    assert not [(node, fault) for node in nodes if (fault := _fault(node, draw)) is not None]
