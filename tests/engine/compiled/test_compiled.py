"""Compiled functions give the rows of plain Python, and say before the job runs what they cannot do."""

from __future__ import annotations

import datetime
import enum
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import StreamEnvironment
from penstock.engine.compiled.program import Program
from penstock.engine.errors import GraphError, JobFailedError
from penstock.engine.operators import compiled as compiled_operators
from penstock.engine.operators.rows import RowFilterOperator, RowFlatMapOperator, RowMapOperator
from tests.draws import drawn

SCHEMA = pa.schema([("i", pa.int64()), ("s", pa.int8()), ("x", pa.float64()), ("b", pa.bool_()), ("t", pa.string())])
FEE = 3
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9),
            "s": st.integers(-128, 127),
            "x": st.floats() | st.sampled_from([0.0, -0.0, 2.0**53]),
            "b": st.booleans(),
            "t": st.sampled_from(["view", "click", "", None]),
        }
    ),
    min_size=1,
    max_size=8,
)


def branches(row: dict[str, Any]) -> dict[str, Any]:
    """Variables that branches give a value."""
    rate = FEE
    if row["t"] == "view":
        label = "seen"
        rate += 1
    elif row["t"] in ("click", "tap") and not row["b"]:
        label = "clicked"
    else:
        label = "other"
    return {"t": row["t"], "label": label, "n": row["s"] * rate % 7, "x": row["x"] if row["b"] else -row["x"]}


def wide_numbers(row: dict[str, Any]) -> dict[str, Any]:
    return {"n": row["i"] + row["s"] - 1, "m": row["i"] * row["s"], "q": abs(row["i"]) // 3, "r": row["i"] % 5}


def floats(row: dict[str, Any]) -> dict[str, Any]:
    half: float = row["i"] / 2
    return {"h": half, "m": min(row["x"], half), "z": max(float(row["s"]), row["x"]), "less": 0 < row["x"] <= row["i"]}


def divides(row: dict[str, Any]) -> dict[str, Any]:
    return {"n": 100 // row["s"], "x": 1.5 / row["s"]}


def loops(row: dict[str, Any]) -> dict[str, Any]:
    total = 0
    for step in range(abs(row["s"])):
        if step == 50:
            break
        total += step
    while total > 100:
        total = total // 2
    return {"total": total, "whole": int(row["b"]), "cut": int(float(total) * 0.5)}


class Level(enum.IntEnum):
    LOW = -1


class Kind(str, enum.Enum):
    VIEW = "view"


HALF: Final = np.float64(-0.5)


def named_constants(row: dict[str, Any]) -> dict[str, Any]:
    """Numbers and texts of classes of their own."""
    return {"n": row["s"] * NAMED + NAMED, "x": row["x"] * HALF, "seen": row["t"] == SEEN, "t": SEEN}


NAMED: Final = Level.LOW
SEEN: Final = Kind.VIEW


MAPS: list[tuple[Callable[[dict[str, Any]], dict[str, Any]], dict[str, str]]] = [
    (branches, {"t": "string", "label": "string", "n": "int64", "x": "float64"}),
    (wide_numbers, {"n": "int64", "m": "int64", "q": "int64", "r": "int8"}),
    (floats, {"h": "float64", "m": "float64", "z": "float64", "less": "bool"}),
    (divides, {"n": "int64", "x": "float64"}),
    (loops, {"total": "int64", "whole": "int64", "cut": "int64"}),
    (named_constants, {"n": "int64", "x": "float64", "seen": "bool", "t": "string"}),
]


def outcome(stream_of: Callable[[ps.DataStream], ps.DataStream], rows: list[dict[str, Any]]) -> str:
    """The rows that come out, or the message of the error."""
    env = StreamEnvironment(runtime="local", parallelism=1)
    results = stream_of(env.from_collection(rows, SCHEMA)).collect()
    try:
        env.execute("compiled")
    except JobFailedError as error:
        return str(error).replace(", compiled)", ")")
    return repr(list(results))


@pytest.mark.parametrize(("function", "returns"), MAPS, ids=lambda value: getattr(value, "__name__", ""))
def test_maps_give_what_plain_python_gives(function: Any, returns: dict[str, str]) -> None:
    compiled = ps.compiled(function)

    @settings(max_examples=drawn(12))
    @given(ROWS)
    def check(rows: list[dict[str, Any]]) -> None:
        plain = outcome(lambda stream: stream.map(function, returns=returns), rows)
        assert outcome(lambda stream: stream.map(compiled, returns=returns), rows) == plain

    check()


def yielded(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """More rows than places, none, and what follows a loop."""
    if row["t"] == "view":
        return
    for number in range(row["s"]):
        if number % 2 == 0:
            yield {"t": row["t"], "n": number + row["i"]}
    yield {"t": row["t"], "n": -1}


def listed(row: dict[str, Any]) -> list[dict[str, Any]]:
    if row["b"]:
        return []
    return [{"t": row["t"], "n": row["s"]}, {"t": row["t"], "n": row["i"] + 1}]


def silent(row: dict[str, Any]) -> list[dict[str, Any]]:
    return []


@pytest.mark.parametrize("function", [yielded, listed, silent])
def test_flat_maps_give_what_plain_python_gives(function: Any) -> None:
    compiled, returns = ps.compiled(function), {"t": "string", "n": "int64"}

    @settings(max_examples=drawn(12))
    @given(ROWS)
    def check(rows: list[dict[str, Any]]) -> None:
        plain = outcome(lambda stream: stream.flat_map(function, returns=returns), rows)
        assert outcome(lambda stream: stream.flat_map(compiled, returns=returns), rows) == plain

    check()


def test_flat_maps_of_many_rows_are_not_run_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    returns = {"t": "string", "n": "int64"}
    rows = [{"i": n, "s": 100, "x": 0.5, "b": False, "t": "tap"} for n in range(20)]
    wanted = outcome(lambda stream: stream.flat_map(yielded, returns=returns), rows)
    monkeypatch.setattr(RowFlatMapOperator, "process_batch", lambda *_: pytest.fail("rows were made"))
    assert outcome(lambda stream: stream.flat_map(ps.compiled(yielded), returns=returns), rows) == wanted


def chooses(row: dict[str, Any]) -> Any:
    return [{"n": 1}] if row["b"] else None


def returns_nothing(row: dict[str, Any]) -> Any:
    if row["b"]:
        return [{"n": 1}]
    return None


def yields_and_returns(row: dict[str, Any]) -> Any:
    yield {"n": 1}
    return [{"n": 2}]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (returns_nothing, "ends without rows; return"),
        (chooses, "only lists of dicts are returned"),
        (yields_and_returns, "only lists of dicts are returned"),
    ],
)
def test_flat_maps_that_are_not_compiled_are_refused(function: Any, message: str) -> None:
    stream = StreamEnvironment(runtime="local").from_collection([], SCHEMA)
    with pytest.raises(GraphError, match=message):
        stream.flat_map(ps.compiled(function), returns={"n": "int64"})


@settings(max_examples=drawn(12))
@given(ROWS)
def test_filters_give_what_plain_python_gives(rows: list[dict[str, Any]]) -> None:
    def kept(row: dict[str, Any]) -> bool:
        return row["t"] != "view" or row["x"] > 0 or (row["b"] and row["i"] < row["s"])

    plain = outcome(lambda stream: stream.filter(kept), rows)
    assert outcome(lambda stream: stream.filter(ps.compiled(kept)), rows) == plain


def test_the_plain_function_is_not_called_where_compiled_code_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    for operator in (RowMapOperator, RowFilterOperator):
        monkeypatch.setattr(operator, "process_batch", lambda *_: pytest.fail("rows were made"))
    rows = [{"i": i, "s": i % 100, "x": i / 7, "b": i % 2 == 0, "t": "view" if i % 3 else None} for i in range(500)]
    compiled = ps.compiled(branches)
    returned = MAPS[0][1]
    found = outcome(lambda stream: stream.filter(ps.compiled(even)).map(compiled, returns=returned), rows)
    assert found == repr([branches(row) for row in rows if even(row)])


def even(row: dict[str, Any]) -> bool:
    return row["b"]


def returns_nothing(row: Any) -> Any:
    n = 1 if row["b"] else 2
    n += 1


def changes_kind(row: Any) -> Any:
    n = 1
    n = row["x"]
    return {"n": n}


def perhaps_unbound(row: Any) -> Any:
    if row["b"]:
        n = 1
    return {"n": n}


def unknown_column(row: Any) -> Any:
    return {"n": row["ii"]}


def calls(row: Any) -> Any:
    return {"n": math.floor(row["x"])}


def adds_text(row: Any) -> Any:
    return {"n": row["t"] + "s"}


def truth(row: Any) -> Any:
    return {"n": 1 if row["i"] else 2}


def orders_texts(row: Any) -> Any:
    return {"n": 1 if row["t"] < "view" else 2}


def counts_on(row: Any) -> Any:
    total = 0
    for n in range(row["i"]):
        total += n
    return {"n": n}


def own_abs(value: int) -> int:
    return value


def shadows(abs: Callable[[int], int]) -> Callable[[Any], Any]:  # noqa: A002 - that is the case
    def function(row: Any) -> Any:
        return {"n": abs(row["i"])}

    return function


def steps(row: Any) -> Any:
    n = 0
    for _ in range(0, 10, 2):
        n += 1
    return {"n": n}


def no_bounds(row: Any) -> Any:
    n = 0
    for _ in range():  # type: ignore[call-overload]
        n += 1
    return {"n": n}


def large(row: Any) -> Any:
    return {"n": row["i"] + 2**64}


def fraction(row: Any) -> Any:
    return {"n": row["x"]}


def other_name(row: Any) -> Any:
    return {"m": row["i"]}


def doubling(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Whose source is not that of what it wraps."""

    @functools.wraps(function)
    def wrapper(row: Any) -> Any:
        return {"n": 2 * function(row)["n"]}

    return wrapper


def other_kinds(row: Any) -> Any:
    if row["b"]:
        return {"n": row["i"]}
    return {"n": row["x"]}


def other_texts(row: Any) -> Any:
    if row["b"]:
        return {"n": row["t"]}
    return {"n": "b"}


def other_names(row: Any) -> Any:
    if row["b"]:
        return {"n": row["i"], "m": 1}
    return {"m": 1, "n": row["i"]}


@doubling
def wrapped(row: Any) -> Any:
    return {"n": row["i"]}


REFUSED: dict[Callable[[Any], Any], str] = {
    returns_nothing: "ends without `return`",
    changes_kind: "'n' is an int above and a float here",
    perhaps_unbound: "'n' has no value on some way",
    unknown_column: "there is no column 'ii'",
    calls: r"`math.floor\(row\['x'\]\)` is not compiled",
    adds_text: "the value of column 't' is no number",
    truth: "a bool is needed, and this is an int; compare it",
    orders_texts: "the value of column 't' and a text are not compared",
    counts_on: "'n' has no value on some way",
    shadows(own_abs): "'abs' is not Python's own here",
    steps: "`range` takes one or two ints",
    no_bounds: "`range` takes one or two ints",
    large: "is not compiled",
    fraction: "'n' is a float and declared as int64",
    other_name: "gives m, and `returns` declares n",
    other_kinds: "'n' of the result is a float, and further up an int",
    other_texts: "'n' of the result is a text that comes from elsewhere than further up; give it from one variable",
    other_names: "the result has the names m, n, and further up n, m",
    wrapped: "it is wrapped by another function",
}


@pytest.mark.parametrize(("function", "message"), REFUSED.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_what_is_not_compiled_is_refused_when_the_graph_is_built(function: Any, message: str) -> None:
    stream = StreamEnvironment(runtime="local").from_collection([], SCHEMA)
    with pytest.raises(GraphError, match=message):
        stream.map(ps.compiled(function), returns={"n": "int64"})


def test_a_refusal_names_file_function_and_line() -> None:
    stream = StreamEnvironment(runtime="local").from_collection([], SCHEMA)
    line = calls.__code__.co_firstlineno + 1
    with pytest.raises(GraphError, match=rf"test_compiled\.py, calls, line {line}: "):
        stream.map(ps.compiled(calls), returns={"n": "int64"})


def test_a_map_without_declared_columns_and_a_filter_without_a_bool_are_refused() -> None:
    stream = StreamEnvironment(runtime="local").from_collection([], SCHEMA)
    with pytest.raises(GraphError, match="needs `returns`"):
        stream.map(ps.compiled(branches))
    with pytest.raises(GraphError, match="must return a bool"):
        stream.filter(ps.compiled(branches))
    with pytest.raises(GraphError, match="takes a function of a row"):
        ps.compiled(ps.ProcessFunction)  # type: ignore[type-var]


def test_small_batches_run_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_operators, "FEW_ROWS", 64)
    monkeypatch.setattr(Program, "run", lambda *_: pytest.fail("columns were computed"))
    rows = [{"i": 3, "s": 1, "x": 0.5, "b": True, "t": "view"}] * 63
    assert outcome(lambda stream: stream.filter(ps.compiled(even)), rows) == repr(rows)


def shouts(row: Any) -> Iterator[dict[str, Any]]:
    yield {"t": row["t"].upper()}


def whispers(row: Any) -> dict[str, Any]:
    return {"t": row["t"].lower()}


@pytest.mark.parametrize("known", [True, False], ids=["known columns", "unknown columns"])
def test_what_is_not_compiled_runs_as_plain_python_where_it_may(known: bool, caplog: pytest.LogCaptureFixture) -> None:
    may = ps.compiled(fallback=True)
    rows = [{"i": i, "s": 1, "x": i + 0.5, "b": i > 1, "t": "a"} for i in range(4)]
    given = StreamEnvironment(runtime="local", parallelism=1).from_collection(rows, SCHEMA)
    stream = given if known else given.map(lambda row: row)
    stream = stream.filter(may(truth)).flat_map(may(shouts), returns={"t": "string"}).map(may(whispers))
    assert list(stream.collect()) == [{"t": "a"}] * 4
    messages = [message for message in caplog.messages if "runs as plain Python, row by row" in message]
    assert [name in "".join(messages) for name in ("truth", "shouts", "whispers")] == [True] * 3


class Passing(ps.ProcessFunction):
    """Gives its rows, whose types nobody has declared."""

    opened = 0

    def open(self, ctx: object) -> None:
        Passing.opened += 1

    def process_element(self, row: dict[str, Any], ctx: object) -> Iterator[dict[str, Any]]:
        yield row


@ps.compiled
def pass_on(row: dict[str, Any]) -> dict[str, Any]:
    return {"at": row["at"]}


def test_a_type_that_only_rows_show_to_be_wrong_is_named_and_ends_the_job_at_once() -> None:
    env = StreamEnvironment(runtime="local", parallelism=1, restart=ps.fixed_delay(attempts=3, delay="0s"))
    at = datetime.datetime(2024, 1, 1)
    rows = env.from_collection([{"at": at}] * 2_000).process(Passing())
    rows.map(pass_on, returns={"at": "timestamp[ms]"}).collect()
    Passing.opened = 0
    with pytest.raises(JobFailedError, match=r"'at' is the value of column 'at', timestamp\[us\], and declared as"):
        env.execute("wrong")
    assert Passing.opened == 1


def same_texts(row: dict[str, Any]) -> dict[str, Any]:
    text = row["s"]
    return {"same": text == row["t"], "seen": text == "a"}


def test_a_null_among_the_values_of_a_dictionary_is_none() -> None:
    words = pa.array(["a", None, "b"])
    columns = [pa.array([(i // 3**place) % 3 for i in range(90)], pa.int32()) for place in range(2)]
    given = pa.table([pa.DictionaryArray.from_arrays(column, words) for column in columns], ["s", "t"])
    types = {"same": "bool", "seen": "bool"}
    compiled, plain = (
        StreamEnvironment(runtime="local", parallelism=1).from_collection(given).map(function, returns=types).collect()
        for function in (ps.compiled(same_texts), same_texts)
    )
    assert list(compiled) == list(plain)
