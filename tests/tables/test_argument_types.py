"""Every function with arguments of every type: refused when the statement is planned, or it gives a value for each row.

Nothing is listed here by function: a new one is called with all of these, too.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest

from penstock import StreamEnvironment
from penstock.engine.errors import PenstockError, SqlUnsupportedError, SqlValidationError
from penstock.tables import types as t
from penstock.tables.bind.expression_binder import ExpressionBinder
from penstock.tables.bind.scopes import Scope
from penstock.tables.functions import signatures as s
from penstock.tables.functions.aggregates import AGGREGATES
from penstock.tables.functions.registry import OF_OPERATORS, SCALAR_FUNCTIONS
from penstock.tables.functions.temporal import UNITS
from penstock.tables.lower.evaluation import Evaluation
from penstock.tables.parse import nodes as n
from penstock.tables.parse.text import SqlText
from penstock.tables.plan.nodes import Column
from penstock.tables.types import Kind, RowField, SqlType

_AT: Final = datetime.datetime(2024, 1, 31, 9, 5, 7)
_VALUES: Final[tuple[tuple[str, SqlType, tuple[Any, Any]], ...]] = (
    ("a_boolean", t.BOOLEAN, (True, False)),
    ("a_tinyint", SqlType(Kind.TINYINT), (1, 2)),
    ("an_int", t.INT, (1, 2)),
    ("a_bigint", t.BIGINT, (1, 2)),
    ("a_decimal", t.decimal(10, 2), (Decimal("1.00"), Decimal("2.50"))),
    ("a_float", t.FLOAT, (0.5, 1.0)),
    ("a_double", t.DOUBLE, (0.5, 1.0)),
    ("a_char", SqlType(Kind.CHAR, precision=3), ("1  ", "abc")),
    ("a_text", t.STRING, ("1", "abc")),
    ("a_binary", t.BYTES, (b"ab", b"c")),
    ("a_date", t.DATE, (_AT.date(), _AT.date())),
    ("a_time", SqlType(Kind.TIME, precision=0), (_AT.time(), datetime.time(1))),
    ("a_timestamp", t.timestamp(3), (_AT, _AT)),
    ("a_moment", t.timestamp_ltz(6), (_AT, _AT)),
    ("some_months", t.INTERVAL_MONTHS, (1, 2)),
    ("some_millis", t.INTERVAL_MILLIS, (86_400_000, 2)),
    ("an_array", t.array(t.INT), ([1, 2], [])),
    ("some_texts", t.array(t.STRING), (["a", None], ["b"])),
    ("a_multiset", SqlType(Kind.MULTISET, parts=(t.STRING,)), ([("a", 1)], [])),
    ("a_map", SqlType(Kind.MAP, parts=(t.STRING, t.INT)), ([("a", 1)], [])),
    ("a_row", SqlType(Kind.ROW, fields=(RowField("f", t.INT), RowField("g", t.STRING))), ({"f": 1}, {"g": "x"})),
    ("a_variant", SqlType(Kind.VARIANT), ("1", '{"a":1}')),
)
_NAMES: Final = (*(name for name, _, _ in _VALUES), "NULL")
_COLUMNS: Final = tuple(Column(name, kind) for name, kind, _ in _VALUES)
_ROWS: Final = [pa.array([*values, None], t.arrow_type(kind)) for _, kind, values in _VALUES]
_BINDER: Final = ExpressionBinder(SqlText("?"), Scope.of("t", _COLUMNS))
_EVALUATIONS: Final = (
    Evaluation(_ROWS, len(_ROWS[0]), s.SessionValues()),
    Evaluation([column.slice(0, 0) for column in _ROWS], 0, s.SessionValues()),
)
_CALLED: Final = sorted(
    name
    for name, function in SCALAR_FUNCTIONS.items()
    if name not in OF_OPERATORS and s.KEYWORD not in function.parameters
)
_LIKE_OTHERS: Final = ("a_tinyint", "a_bigint", "a_float", "a_char", "some_texts", "a_multiset")
_PAIRED: Final = tuple(name for name in _NAMES if name not in _LIKE_OTHERS)
"""Of two arguments the types of one root stand for each other, but where one of them is the only one."""


_FORMS: Final = (
    "SELECT k, {}(v) AS a FROM t GROUP BY k",
    "SELECT k, {}(DISTINCT v) AS a FROM t GROUP BY k",
    "SELECT {}(v) OVER (ORDER BY PROCTIME()) AS a FROM t",
)


def _fault(node: n.Node) -> str | None:
    """What is wrong with how an expression is taken; None: it is refused, computed, or a row's value is at fault."""
    try:
        bound = _BINDER.bind(node)
    except SqlValidationError:
        return None
    for evaluation in _EVALUATIONS:
        try:
            found = evaluation.value(bound)
        except pa.ArrowException as error:
            return f"{type(error).__name__}: {error}"
        except (ValueError, ArithmeticError):
            return None  # of its values: each message of ours says which
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        if found.type != t.arrow_type(bound.type) or len(found) != evaluation.rows:
            return f"{found.type} and not {bound.type}"
    return None


def _argument(name: str) -> n.Node:
    return n.NullLiteral(0) if name == "NULL" else n.Name(0, (n.Identifier(0, name),))


def _call(name: str, *arguments: n.Node) -> n.Call:
    return n.Call(0, name, tuple(n.Argument(0, argument) for argument in arguments))


def _fitting(function: s.ScalarFunction, place: int) -> str:
    parameter = function.parameter(place)
    return next((name for name, kind, _ in reversed(_VALUES) if s.accepts(parameter, kind) == kind), "a_double")


def _given(function: s.ScalarFunction) -> Iterator[tuple[str, ...]]:
    """Names of arguments: each type in each place, the others fitting; and of two arguments all pairs."""
    most = max(function.fewest, 1) + 1 if function.most is None else function.most
    for count in range(function.fewest, most + 1):
        if not count:
            yield ()
        usual = [_fitting(function, place) for place in range(count)]
        for place, name in itertools.product(range(count), _NAMES):
            yield (*usual[:place], name, *usual[place + 1 :])
        if count == 2:
            yield from itertools.product(_PAIRED, repeat=2)


@pytest.mark.parametrize("name", _CALLED)
def test_a_function_refuses_types_or_computes_them(name: str) -> None:
    function = SCALAR_FUNCTIONS[name]
    faults = {
        names: fault
        for names in _given(function)
        if (fault := _fault(_call(name, *(_argument(one) for one in names)))) is not None
    }
    assert not faults


@pytest.mark.parametrize("name", [name for name, _, _ in _VALUES])
def test_an_aggregate_refuses_types_or_computes_them(name: str) -> None:
    """Each in one of the forms: of each type, as of each aggregate, a third in each."""
    place = _NAMES.index(name)
    _check_aggregates(name, [(one, _FORMS[(place + number) % 3]) for number, one in enumerate(AGGREGATES)])


@pytest.mark.long("the test above has each type of each aggregate in one form")
@pytest.mark.parametrize("name", [name for name, _, _ in _VALUES])
def test_an_aggregate_refuses_types_or_computes_them_in_each_form(name: str) -> None:
    _check_aggregates(name, list(itertools.product(AGGREGATES, _FORMS)))


def _check_aggregates(name: str, asked: Sequence[tuple[str, str]]) -> None:
    rows = pa.table({"k": [1, 1, 2], "v": _ROWS[_NAMES.index(name)]})
    refused, faults = 0, {}
    for aggregate, form in asked:
        env = StreamEnvironment(runtime="local", parallelism=1)
        env.tables.create_temporary_view("t", env.from_collection(rows.to_pylist(), schema=rows.schema))
        try:
            query = env.sql(form.format(aggregate))
            assert query is not None
            assert list(query.to_changelog().collect())
        except (SqlValidationError, SqlUnsupportedError):
            refused += 1
        except PenstockError as error:
            faults[form.format(aggregate)] = str(error)
    assert not faults
    assert refused < len(asked)


@pytest.mark.parametrize("unit", sorted(UNITS))
def test_units_of_time_are_those_of_the_type(unit: str) -> None:
    word, faults = n.Keyword(0, unit), {}
    for name in _NAMES:
        one = _argument(name)
        for call in (
            _call("EXTRACT", word, one),
            _call("FLOOR", one, word),
            _call("CEIL", one, word),
            *(_call("TIMESTAMPDIFF", word, one, _argument(other)) for other in ("a_date", "a_moment", name)),
            *(_call("TIMESTAMPADD", word, _argument(other), one) for other in ("an_int", "a_double", name)),
        ):
            fault = _fault(call)
            if fault is not None:
                faults[call.name, name] = fault
    assert not faults


@pytest.mark.parametrize("one", _NAMES)
def test_an_operator_refuses_types_or_computes_them(one: str) -> None:
    left = _argument(one)
    nodes: list[n.Node] = [n.Unary(0, operator, left) for operator in ("-", "+", "NOT")]
    nodes += [n.IsTest(0, left, word, False) for word in ("NULL", "TRUE", "FALSE", "UNKNOWN")]
    nodes += [n.Cast(0, left, kind, safe) for _, kind, _ in _VALUES for safe in (False, True)]
    for other in _NAMES:
        right = _argument(other)
        operators = ("+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "AND", "OR", "||")
        nodes += [n.Binary(0, operator, left, right) for operator in operators]
        nodes += [n.Element(0, left, right), n.IsDistinct(0, left, right, False)]
        nodes += [n.Constructor(0, kind, (left, right)) for kind in ("ROW", "ARRAY", "MAP")]
        nodes += [n.Case(0, None, ((_argument("a_boolean"), left),), right), n.InList(0, left, (right,), False)]
        nodes += [_call(name, left, right) for name in ("NULLIF", "COALESCE")]
        nodes += [_call("TRIM", n.Keyword(0, "BOTH"), left, right)]
    faults = {node: fault for node in nodes if (fault := _fault(node)) is not None}
    assert not faults
